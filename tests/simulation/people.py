"""People who open, send, stop, approve, fork and delete, in no order; and who notice what they are told wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from quell.errors import PluginRefusedError, QuellError
from quell.events import ApprovalAsked, Event
from quell.kernel.session import Session

from .cast import meddle
from .world import CORE, Run

STOP_BOUND = 30.0
"""Seconds, all of the world's own slowness included, in which every stop has its receipt."""

Act = Callable[["Person"], Awaitable[None]]


class Person:
    """Does one thing after the other, in no order; sometimes walks away from it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.world = run.world
        self.chance = run.world.chance

    async def act(self) -> None:
        await self._try(Person.open)
        await self._try(Person.send)
        for _ in range(self.chance.randrange(6, 30)):
            await asyncio.sleep(self.world.stage.spell() / 4)
            act = self.chance.choices(list(ACTS), list(ACTS.values()))[0]
            if self.chance.random() < 0.15:
                await self._walk_away(act)
            else:
                await self._try(act)

    async def _try(self, act: Act) -> None:
        name = act.__name__
        try:
            await act(self)
        except QuellError as error:
            self.world.say(f"{name}: {type(error).__name__}: {error}")

    async def _walk_away(self, act: Act) -> None:
        """Cancelling the asker changes nothing: what it asked for is judged like everything else."""
        asking = asyncio.ensure_future(self._try(act))
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.0001, 0.01, 1.0)))
        asking.cancel()
        try:
            await asking
        except asyncio.CancelledError:
            self.world.say(f"{act.__name__}: walked away")

    def reach(self) -> Literal["turn", "session"]:
        return self.chance.choice(("turn", "turn", "session"))

    def session(self) -> Session:
        if not self.run.sessions:
            raise QuellError("there is no session yet")
        return self.chance.choice(self.run.sessions[-6:])

    def kept(self, what: str, seq: int) -> None:
        """It was acknowledged: so it is on disk, whatever happens next."""
        if self.run.well and seq > self.world.disk.safe:
            self.world.accuse(f"{what} {seq} was acknowledged, and is not on disk")

    # -- what a person does

    async def open(self) -> None:
        session = await self.run.runtime.open(self.chance.choice(self.world.stage.agents), "/")
        self.run.sessions.append(session)
        self.world.say(f"opened {session.id}")
        if self.run.well and not any(row.session == session.id for row in self.world.disk.rows):
            self.world.accuse(f"{session.id} was acknowledged, and is not on disk")

    async def send(self) -> None:
        session = self.session()
        for number in range(self.chance.choice((1, 1, 2, 3))):
            sent = session.send(f"message {number}")
            self.world.say(f"sent {sent.message.seq} to {session.id}")
            self.kept("message", (await sent.accepted()).seq)
            match self.chance.randrange(4):
                case 0:
                    self.kept("the end of a turn", (await sent).seq)
                case 1:
                    async for event in sent:
                        self._see(event)

    def _see(self, event: Event) -> None:
        if not event.delta:
            self.kept(event.kind, event.seq)

    async def send_and_leave(self) -> None:
        session = self.session()
        async for _ in session.send("a question"):
            if self.chance.random() < 0.3:
                break

    async def stop(self) -> None:
        session, loop = self.session(), asyncio.get_running_loop()
        reach = self.reach()
        force, began = self.chance.random() < 0.2, loop.time()
        self.world.say(f"stop of {session.id}, reach {reach}{' by force' if force else ''}")
        before = self.world.disk.given
        if session.gone or (session.host.closing and not session.at_work):
            return  # there is nothing to stop, and nothing more is recorded
        receipt = await session.stop(reach=reach, force=force, reason=f"person {before}")
        self._took("a stop", began)
        self.world.say(f"stopped {session.id}: {receipt.verdict}")
        if (
            self.run.well
            and not any(
                row.kind == "stop.receipt" and row.session == session.id and row.seq > before
                for row in self.world.disk.rows
            )
            and session.id not in self.world.disk.forgotten
        ):
            self.world.accuse(f"the receipt of {session.id} was handed over, and is not on disk")

    async def stop_twice(self) -> None:
        session = self.session()
        if session.gone:
            return
        first = asyncio.ensure_future(session.stop(reach=self.reach()))
        await asyncio.sleep(self.chance.choice((0.0, 0.01, 1.0)))
        if self.chance.random() < 0.5:
            first.cancel()
        await session.stop(force=True)
        await asyncio.wait([first])
        if not first.cancelled():
            first.result()

    async def ambush(self) -> None:
        """Stop a session in the very moment in which one of its tools, or its model, is at work."""
        session, began, effects = self.session(), self.world.disk.given, len(self.world.stage.effects)
        session.send("an errand")
        for _ in range(200):
            await asyncio.sleep(self.chance.choice((0.0, 0.0003, 0.05)))
            if len(self.world.stage.effects) > effects or self.world.disk.given > began + 20:
                break
        await asyncio.sleep(self.chance.choice((0.0, 0.0001, 0.001, 0.01, 0.1)))
        host = self.run.runtime.host
        busy = [host.live[one.session] for one in self.world.stage.effects[-1:] if one.session in host.live]
        await self.chance.choice([session, *busy]).stop(reach=self.reach(), reason="ambush")

    def _took(self, what: str, began: float) -> None:
        took = asyncio.get_running_loop().time() - began
        if took > STOP_BOUND:
            self.world.accuse(f"{what} took {took:.1f} s")

    async def stop_all(self) -> None:
        began = asyncio.get_running_loop().time()
        self.world.say("stop all")
        await self.run.runtime.stop_all(force=self.chance.random() < 0.2)
        self._took("a stop of all", began)
        await asyncio.sleep(self.world.stage.spell() / 4)
        self.run.runtime.reopen()

    async def reopen(self) -> None:
        self.run.runtime.reopen()

    async def approve(self) -> None:
        asked = [one for one in self.run.runtime.host.journal.requests.values() if isinstance(one, ApprovalAsked)]
        if not asked:
            return
        one = self.chance.choice(asked)
        await asyncio.sleep(self.chance.choice((0.0, 0.0, 0.1, 6.0)))  # it may be too late by then
        session = self.run.runtime.host.live.get(one.session)
        if session is not None:
            session.approve(one.seq, self.chance.random() < 0.7, "says a person")

    async def release(self) -> None:
        self.session().release()

    async def discard(self) -> None:
        self.session().discard()

    async def rename(self) -> None:
        await self.session().rename("a new name")

    async def fork(self) -> None:
        self.run.sessions.append(await self.session().fork())

    async def close(self) -> None:
        session, began = self.session(), asyncio.get_running_loop().time()
        await session.close()
        self._took("a close", began)

    async def delete(self) -> None:
        session, began = self.session(), asyncio.get_running_loop().time()
        self.world.say(f"delete {session.id}")
        await session.delete()
        self._took("a delete", began)
        if self.run.well and session.id not in self.world.disk.forgotten:
            self.world.accuse(f"{session.id} was deleted, and is still there")

    async def resume(self) -> None:
        self.run.sessions.append(await self.run.runtime.resume(f"s{self.chance.randrange(1, self.world.sessions + 2)}"))

    async def read(self) -> None:
        session = self.session()
        await session.export(self.chance.choice(("jsonl", "markdown")))
        async for _ in session.follow():
            if self.chance.random() < 0.2:
                break

    async def load(self) -> None:
        await self.run.runtime.plugins.load(self.run.plugin())

    async def unload(self) -> None:
        names = [name for name in self.run.runtime.plugins.loaded if name != CORE]
        if names:
            await self.run.runtime.plugins.unload(self.chance.choice(names))
        elif self.chance.random() < 0.1:
            try:
                await self.run.runtime.plugins.unload(CORE)
            except PluginRefusedError:
                return
            self.world.accuse("what is bundled was removed")

    async def configure(self) -> None:
        self.run.runtime.configure(term=self.chance.choice((0.5, 5.0)))

    async def meddle(self) -> None:
        await meddle(self.world.stage)


ACTS: dict[Act, int] = {
    Person.open: 8,
    Person.send: 16,
    Person.send_and_leave: 4,
    Person.stop: 8,
    Person.ambush: 8,
    Person.stop_twice: 3,
    Person.stop_all: 2,
    Person.reopen: 1,
    Person.approve: 6,
    Person.release: 4,
    Person.discard: 1,
    Person.rename: 1,
    Person.fork: 2,
    Person.close: 2,
    Person.delete: 2,
    Person.resume: 3,
    Person.read: 2,
    Person.load: 2,
    Person.unload: 1,
    Person.configure: 1,
    Person.meddle: 4,
}
