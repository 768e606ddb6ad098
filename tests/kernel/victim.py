"""A runtime that works hard and says, a line for each, what it was told is safe. It is made to be killed.

`python -m tests.kernel.victim STATE FOLDER SEED [ACTIONS]`: without ACTIONS it goes on until somebody kills it.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import quell
from quell.events import ApprovalAsked, Event, encode
from quell.kernel.runtime import Runtime
from quell.kernel.sent import Sent

DRIVERS = 4
SETTINGS = quell.Settings(ask=0.2, term=0.1)
AGENTS = [
    quell.Agent(name="careful", tools=("shell",)),
    quell.Agent(name="free", approval={"*": "allow"}),
]
MARKS = "marks"
"""In the working folder: each effect appends its name, once."""

Chance = random.Random


def tell(what: str, **more: Any) -> None:
    os.write(1, json.dumps({"ack": what, **more}).encode() + b"\n")


def tell_event(event: Event) -> None:
    """Parts of streams are acknowledged by what ends them."""
    if not event.delta:
        os.write(1, b'{"ack":"event","event":' + encode(event) + b"}\n")


class Driver:
    """One person at work: a session, and one thing after another in it."""

    def __init__(self, rt: Runtime, folder: Path, number: int, seed: int) -> None:
        self.rt = rt
        self.folder = folder
        self.chance = Chance(f"{seed} {number}")
        self.names = (f"{seed}-{number}-{n}" for n in count(1))
        self.agent = "careful" if number % 4 == 3 else "free"
        self.session: quell.Session

    async def work(self, actions: int | None) -> None:
        await self.open()
        plan: list[Callable[[], Awaitable[None]]] = [
            *(self.answer, self.answer, self.queue, self.queue, self.stubborn, self.job),
            *(self.delegate, self.renew, self.delete, self.fork),
        ]
        for _ in count() if actions is None else range(actions):
            await self.chance.choice(plan)()

    async def open(self) -> None:
        self.session = await self.rt.open(self.agent, self.folder)
        tell("opened", session=self.session.id)

    def mark(self, then: str = "true") -> str:
        return f"$ echo {next(self.names)} >> {MARKS}; {then}"

    async def heard(self, sent: Sent) -> None:
        """All that is told of a message."""
        tell_event(await sent.accepted())
        async for event in sent:
            tell_event(event)

    async def stop(self, reach: str, **how: Any) -> None:
        reason = next(self.names)
        receipt = await self.session.stop(reach=reach, reason=reason, **how)  # type: ignore[arg-type]  # one of two
        tell("receipt", session=self.session.id, reason=reason, confirmed=receipt.confirmed)

    # -- what may be done

    async def answer(self) -> None:
        await self.heard(self.session.send(self.chance.choice(["Hello.", self.mark(), self.mark("sleep 0.03")])))

    async def queue(self) -> None:
        for _ in range(3):
            tell_event(await self.session.send(self.mark("sleep 0.02")).accepted())
        await asyncio.sleep(self.chance.random() * 0.05)
        await self.stop("turn")
        match self.chance.randrange(3):
            case 0:
                self.session.discard()
            case 1 if self.session.parked:
                self.session.release()
                await self.session.send("Hello.")

    async def stubborn(self) -> None:
        """Deaf to SIGTERM, with a child that has left its session."""
        self.session.send(self.mark("trap '' TERM; setsid sleep 601 & sleep 602; sleep 603"))
        await asyncio.sleep(self.chance.random() * 0.08)
        await self.stop("session", force=self.chance.random() < 0.5)

    async def job(self) -> None:
        await self.heard(self.session.send(f"{self.mark('sleep 604')} &"))

    async def delegate(self) -> None:
        await self.heard(self.session.send(f"@free {self.mark()}\n@free {self.mark()}"))

    async def renew(self) -> None:
        await self.session.close()
        tell("closed", session=self.session.id)
        self.session = await self.rt.resume(self.session.id)

    async def delete(self) -> None:
        await self.stop("session")
        with contextlib.suppress(quell.UsageError):  # a fork stands on it
            await self.session.delete()
            tell("deleted", session=self.session.id)
        await self.open()

    async def fork(self) -> None:
        old, self.session = self.session, await self.session.fork()
        tell("opened", session=self.session.id)
        await old.close()
        tell("closed", session=old.id)


async def listen(rt: Runtime, chance: Chance) -> None:
    """A client that sees everything, and answers what is asked."""
    async for event in rt.follow(rt.host.journal.last):
        tell_event(event)
        if isinstance(event, ApprovalAsked) and event.session in rt.host.live:
            with contextlib.suppress(quell.UsageError):  # a stop was faster
                rt.host.live[event.session].approve(event.seq, chance.random() < 0.8)


async def main(state: str, folder: Path, seed: int, actions: int | None) -> None:
    async with quell.Runtime(state_dir=state, agents=AGENTS, settings=SETTINGS) as rt:
        rt.reopen()
        tell("ready")
        client = asyncio.create_task(listen(rt, Chance(seed)))
        async with asyncio.TaskGroup() as drivers:
            for number in range(DRIVERS):
                drivers.create_task(Driver(rt, folder, number, seed).work(actions))
        client.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]) if sys.argv[4:] else None))
