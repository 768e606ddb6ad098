"""Providers as plugins, the bundled ones and those of the configuration: each brings one model under its own name, and
agents say `name:model`.

All that is behind it, our own part and the SDK, is imported when its model is first used, in a thread.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ..config import Provider
from ..ports import Model, Plugin, PluginContext

if TYPE_CHECKING:
    from .line import Owner
    from .patience import Patience


class _Plugin:
    def __init__(self, provider: Provider, patience: Patience | None) -> None:
        self.name = provider.name
        self._provider = provider
        self._patience = patience

    def setup(self, ctx: PluginContext) -> None:
        ctx.model(self._provider.name, functools.partial(_make, self._provider, self._patience, ctx.scope))


def _make(provider: Provider, patience: Patience | None, scope: Owner) -> Model:
    if provider.kind == "anthropic":
        from .anthropic import make
    else:
        from .openai import make
    return make(provider, patience, scope)


def plugin_for(provider: Provider, patience: Patience | None = None) -> Plugin:
    return _Plugin(provider, patience)


openai = plugin_for(Provider(name="openai"))
anthropic = plugin_for(Provider(name="anthropic", kind="anthropic"))
