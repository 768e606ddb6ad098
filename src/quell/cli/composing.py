"""From what a person configured to a runtime: one way for `serve`, `run`, `chat` and whatever else opens one.

Flags come before `QUELL_…`, these before the file, the file before the defaults.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from ..config import Agent, usual_file, what_there_is
from ..configfile import BUILT_IN, Loaded, load, place
from ..errors import UsageError
from .screen import note

if TYPE_CHECKING:
    from ..ports import Plugin
    from ..runtime import Runtime

OFFLINE = "scripted"
"""The agent, and the provider, that need no key."""


def loaded_from(config: str | None) -> Loaded:
    """The configuration, with its warnings said. UsageError is one sentence."""
    loaded = load(config, os.environ)
    for warning in loaded.warnings:
        note(warning)
    return loaded


def agents_of(loaded: Loaded) -> dict[str, Agent]:
    """Those that are built in and those of the file; who names no model has the default one."""
    found = {**BUILT_IN, **{one.name: one for one in loaded.agents}}
    model = loaded.defaults.model
    return {
        name: msgspec.structs.replace(one, model=model) if model and not (one.model or one.harness) else one
        for name, one in found.items()
    }


def chosen(loaded: Loaded, agent: str | None = None, model: str | None = None) -> Agent:
    """Who answers: as the flags say, else as configured, else the offline one. It has a model.

    UsageError names the nearest, or says how to name a model.
    """
    agents = agents_of(loaded)
    wanted = model or loaded.defaults.model
    usual = "assistant" if wanted and wanted.partition(":")[0] != OFFLINE else OFFLINE
    default = loaded.defaults.agent
    if default == OFFLINE and model and usual != OFFLINE:
        default = usual  # a model that is named never gets the free hand of the offline agent
    name = agent or default or usual
    if name not in agents:
        raise UsageError(f"there is no agent {name!r}; {what_there_is('agents', name, sorted(agents))}")
    found = agents[name]
    if model:
        found = msgspec.structs.replace(found, model=model)
    if not (found.model or found.harness):
        raise UsageError(
            f"the agent {name} has no model: name one with --model openai:gpt-5,"
            " or for good with quell config set defaults.model openai:gpt-5"
        )
    return found


def runtime_for(
    loaded: Loaded,
    *,
    folder: str,
    home: str,
    config: str | None = None,
    contain: str = "auto",
    agents: Iterable[Agent] = (),
) -> Runtime:
    """A runtime on the state directory `folder`, not started. `agents` come before those that are configured.

    `home` is what it shares with others of this user. No tool of it gets at the configuration.
    """
    from ..runtime import Runtime

    with suppress(OSError):  # commands can be kept from writing only what is there
        os.makedirs(os.path.dirname(usual_file(os.environ)), mode=0o700, exist_ok=True)
    known = agents_of(loaded) | {one.name: one for one in agents}
    return Runtime(
        state_dir=folder,
        home=home,
        agents=known.values(),
        plugins=plugins_of(loaded),
        settings=loaded.settings,
        secrets=loaded.secrets,
        contain=contain,
        off_limits=[place(config, os.environ)],
    )


def plugins_of(loaded: Loaded) -> list[Plugin]:
    """Who serves the models of `[models.…]`."""
    if not loaded.providers:
        return []
    from ..models.providers import plugin_for

    return [plugin_for(one) for one in loaded.providers]
