"""The runtime as a Python program gets it: the kernel with the SQLite log and every plugin that is installed.

async with quell.Runtime() as rt:
    session = await rt.open(agent="scripted", cwd=".")
    async for event in session.send("$ echo hello"):
        print(event)
    receipt = await session.stop()
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .config import Agent, Settings
from .kernel.discovery import Found, enabled_in
from .kernel.footing import Ports
from .kernel.runtime import Runtime as Kernel
from .ports import Model, Plugin, PluginContext, Tool
from .stores.sqlite import SqliteStore
from .supervise.ledger import state_dir as usual_place

HOME = "runtime"
"""Of the runtime that is given no folder, below the usual place."""


class Runtime(Kernel):
    """`state_dir` is where the log is, and is taken exclusively; without one, the usual place of this user.

    A plugin that is given takes the place of an installed one of its name. `tools` (typed functions with a docstring
    will do) and `models` (what makes each, by its name) need none.
    """

    def __init__(
        self,
        *,
        state_dir: str | os.PathLike[str] | None = None,
        agents: Iterable[Agent] = (),
        plugins: Iterable[Plugin] = (),
        tools: Iterable[Tool | Callable[..., Any]] = (),
        models: Mapping[str, Callable[[], Model]] | None = None,
        settings: Settings | None = None,
        contain: str = "auto",
        secrets: Iterable[str] = (),
        home: str | os.PathLike[str] | None = None,
        off_limits: Iterable[str] = (),
    ) -> None:
        given = list(plugins)
        if (tools := list(tools)) or models:
            given.append(Program(tools, models or {}))
        names = {getattr(one, "name", "") for one in given}
        super().__init__(
            Ports(store=SqliteStore, find=lambda: [one for one in installed() if one.name not in names]),
            state_dir=os.path.join(usual_place(), HOME) if state_dir is None else state_dir,
            agents=agents,
            plugins=given,
            settings=settings,
            contain=contain,
            secrets=secrets,
            home=home,
            off_limits=off_limits,
        )


class Program:
    """The plugin of a program that brings its own tools and models."""

    name = "program"

    def __init__(self, tools: Iterable[Tool | Callable[..., Any]], models: Mapping[str, Callable[[], Model]]) -> None:
        self._tools = tools
        self._models = models

    def setup(self, ctx: PluginContext) -> None:
        for tool in self._tools:
            ctx.tool(tool)
        for name, make in self._models.items():
            ctx.model(name, make)


def installed() -> list[Found]:
    """What is in the environment and what `quell plugin install` put beside it, but for what is disabled."""
    return enabled_in(usual_place())
