"""A bus inside a supervisor, on each loop, with all that it says itself written down and published."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

import quell
from quell.events import Event, MessageUser, PluginError, SubscriberCut, ToolEnded, ToolRequested
from quell.kernel.bus import Bus
from tests.supervise.loops import LOOPS, run_on

SHORT = quell.Ladder(ask=0.3, term=0.3)


class Heard:
    """Stands in for the journal: numbers events, and publishes them at once."""

    def __init__(self, sup: quell.Supervisor) -> None:
        self.sup = sup
        self.seq = 0
        self.said: list[Event] = []
        """What the bus itself had to say."""
        self.bus = Bus(sup.scope("bus"), emit=self.emit)

    def emit(self, event: Event) -> Event:
        self.seq += 1
        event = msgspec.structs.replace(event, seq=self.seq)
        if isinstance(event, PluginError | SubscriberCut):
            self.said.append(event)
        self.bus.publish(event)
        return event

    def say(self, text: str, session: str = "s") -> Event:
        return self.emit(MessageUser(text=text, session=session))

    def request(self, session: str = "s") -> ToolRequested:
        """Numbered, not yet published."""
        self.seq += 1
        return ToolRequested(seq=self.seq, session=session)


Body = Callable[[Heard], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def within(body: Body) -> None:
        async def main() -> None:
            async with quell.Supervisor(ladder=SHORT) as sup:
                heard = Heard(sup)
                await body(heard)
                heard.bus.close()

        run_on(LOOPS[request.param], main)

    return within


def text(event: Event) -> str:
    assert isinstance(event, MessageUser)
    return event.text


def ended(request: Event) -> ToolEnded:
    return ToolEnded(request=request.seq, session=request.session)


async def forever(_: Event) -> None:
    await asyncio.get_running_loop().create_future()
