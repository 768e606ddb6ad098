"""Providers of the configuration as plugins: each brings one model under its own name, and agents say `name:model`."""

from __future__ import annotations

import functools

from ..config import Provider
from ..ports import Model, Plugin, PluginContext
from .line import Owner
from .patience import Patience


def plugin_for(provider: Provider, patience: Patience | None = None) -> Plugin:
    """Its SDK is imported when its model is first used."""
    return _Plugin(provider, patience)


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
