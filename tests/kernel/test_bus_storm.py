"""Publishers, slow, failing, late and deaf handlers, unsubscribes and cuts, all at once and at random.

Whatever happens to the others, each subscriber gets each event of a session once and in order, until it is closed.
"""

import asyncio
import random

import pytest

import quell
from quell.events import Event, MessageUser
from quell.kernel import sweeper
from quell.kernel.bus import Bus
from quell.kernel.subscription import Subscription
from tests.supervise.loops import LOOPS, run_on, until

from .buses import SHORT, text

SESSIONS = 12
EVENTS = 1500


class Listener:
    """One subscriber, and what it has seen of each session."""

    def __init__(self, bus: Bus, chance: random.Random, number: int) -> None:
        self.chance = chance
        self.seen: dict[str, list[int]] = {}
        self.manners = chance.choice(["quick", "slow", "failing", "late", "deaf", "stalled", "fickle", "reading"])
        self.session = chance.choice([None, None, f"s{chance.randrange(SESSIONS)}"])
        self.began = 0
        """The first number that it can have heard."""
        self.subscription: Subscription
        limit = 20 if self.manners == "stalled" else 1_000_000
        if self.manners == "reading":
            self.subscription = self.stream = bus.stream(session=self.session, limit=limit)
        else:
            self.subscription = bus.subscribe(
                self.hear, session=self.session, name=f"{self.manners} {number}", deadline=0.05, limit=limit
            )

    async def hear(self, event: Event) -> None:
        self.note(event)
        odd = self.chance.random()
        if self.manners == "stalled":
            await asyncio.sleep(0.04)
        elif self.manners == "slow" and odd < 0.3:
            await asyncio.sleep(odd * 0.003)
        elif self.manners == "failing" and odd < 0.3:
            raise ValueError(text(event))
        elif self.manners == "late" and odd < 0.005:
            await asyncio.sleep(60)
        elif self.manners == "deaf" and odd < 0.003:
            for _ in range(2):
                try:
                    await asyncio.sleep(0.2)
                except asyncio.CancelledError:
                    continue
        elif self.manners == "fickle" and odd < 0.01:
            self.subscription.close()

    def note(self, event: Event) -> None:
        self.seen.setdefault(event.session, []).append(int(text(event)))

    async def read(self) -> None:
        async for event in self.stream:
            self.note(event)

    def check(self, published: dict[str, list[int]], whole: bool) -> None:
        """Once and in order, with no gap; and all of it (`whole`) if nothing cut it short."""
        for session, numbers in published.items():
            expected = [one for one in numbers if one >= self.began and self.session in (None, session)]
            seen = self.seen.get(session, [])
            assert seen == (expected if whole else expected[: len(seen)]), (self.manners, session)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_leaves_order_and_number_as_they_are(loop: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """H30: order per session and subscriber. H39: cuts and slow ones touch nobody else. H41: nor do failures."""
    monkeypatch.setattr(sweeper, "ABANDON", 0.05)
    chance = random.Random(seed)

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            bus = Bus(sup.scope("bus"))
            published: dict[str, list[int]] = {}
            listeners: list[Listener] = []
            number = 0

            def join() -> None:
                listeners.append(Listener(bus, chance, len(listeners)))
                listeners[-1].began = number
                if listeners[-1].manners == "reading":
                    sup.task(listeners[-1].read())

            async def publisher() -> None:
                nonlocal number
                while number < EVENTS:
                    session = f"s{chance.randrange(SESSIONS)}"
                    published.setdefault(session, []).append(number)
                    bus.publish(MessageUser(session=session, text=str(number)))
                    number += 1
                    if chance.random() < 0.01:
                        join()
                    if chance.random() < 0.2:
                        await asyncio.sleep(chance.choice([0, 0, 0.001]))

            for _ in range(16):
                join()
            await asyncio.gather(*(publisher() for _ in range(4)))
            await bus.drained()
            whole = [one for one in listeners if not one.subscription.closed]
            bus.close()
            assert await until(lambda: not sup.roots)  # who reads has read it all
            for one in listeners:
                one.check(published, one in whole)
            assert await until(lambda: not bus.sweeper.armed and not bus._scope.roots)

    run_on(LOOPS[loop], main)
