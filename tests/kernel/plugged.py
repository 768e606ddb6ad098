"""A bus, a registry and the plugins on them, with a log that is a list."""

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec

import quell
from quell.events import Event, PluginError, PluginRemoved
from quell.kernel.bus import Bus
from quell.kernel.plugins import Plugins
from quell.kernel.registry import Registry
from quell.ports import PluginContext
from tests.supervise.loops import until

QUICK = quell.Ladder(ask=0.2, term=0.2)


class Plugged:
    def __init__(self, sup: quell.Supervisor, deadline: float) -> None:
        self.sup = sup
        self.events: list[Event] = []
        self.registry = Registry(make_limit=deadline)
        self.bus = Bus(sup.scope("bus"), emit=self.emit, deadline=deadline)
        self.plugins = Plugins(sup.scope("plugins"), self.registry, self.bus, self.emit, deadline=deadline)

    def emit(self, event: Event) -> Event:
        stamped = msgspec.structs.replace(event, seq=len(self.events) + 1)
        self.events.append(stamped)
        self.bus.publish(stamped)
        return stamped

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events if event.kind.startswith("plugin.")]

    def errors(self) -> list[tuple[str, str, str]]:
        return [(one.plugin, one.call, one.error) for one in self.events if isinstance(one, PluginError)]

    def reasons(self) -> list[str]:
        return [one.reason for one in self.events if isinstance(one, PluginRemoved)]

    async def heard(self, count: int) -> None:
        """Until so many events about plugins were written."""
        assert await until(lambda: len(self.kinds()) >= count), self.events


@contextlib.asynccontextmanager
async def plugged(deadline: float = 5.0, ladder: quell.Ladder = QUICK) -> AsyncIterator[Plugged]:
    async with quell.Supervisor(ladder=ladder) as sup:
        here = Plugged(sup, deadline)
        yield here
        await here.plugins.close()
        here.bus.close()


class Made:
    """A plugin of one function."""

    def __init__(self, setup: Callable[[PluginContext], Any], name: str = "made") -> None:
        self.name = name
        self.setup = setup


def bringing(*names: str, plugin: str = "made") -> Made:
    """A plugin that brings tools of these names."""

    def setup(ctx: PluginContext) -> None:
        for name in names:
            ctx.tool(tool(name))

    return Made(setup, plugin)


def tool(name: str) -> Callable[..., str]:
    def call(text: str = "") -> str:
        """Say it."""
        return text

    call.__name__ = name
    return call


def names(found: Sequence[Any]) -> list[str]:
    return [one.name for one in found]
