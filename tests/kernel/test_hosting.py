"""A foreign agent that a session hosts: started once, kept between turns, ended with the session."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.events import (
    HarnessEnded,
    HarnessIdle,
    HarnessReady,
    HarnessStarting,
    MessageDelta,
    MessageDone,
    QueueParked,
    StopReceipt,
    TurnEnded,
    Usage,
)
from quell.kernel.runtime import Runtime
from quell.ports import Chunk, Text
from quell.supervise import Process, Scope
from tests.supervise.conftest import alive
from tests.supervise.loops import LOOPS, until
from tests.supervise.owned import MakeLoop

from .cast import Gate, Held, Stage, idle, live, steps

Talk = Callable[[str], AsyncIterator[Chunk]]


async def echo(text: str) -> AsyncIterator[Chunk]:
    yield Text("you said ")
    yield Text(text)


class Foreign:
    """A harness whose agents are a process each, and say what the test wants."""

    def __init__(self) -> None:
        self.talk: Talk = echo
        self.begin: Callable[[], Any] | None = None
        self.processes: list[Process] = []
        self.heard: list[str] = []
        self.closed = 0

    async def start(self, scope: Scope, cwd: str) -> "Foreign":
        self.processes.append(await scope.spawn(["sleep", "600"], cwd=cwd))
        if self.begin is not None:
            await self.begin()
        return self

    async def send(self, text: str) -> AsyncIterator[Chunk]:
        self.heard.append(text)
        try:
            async for chunk in self.talk(text):
                yield chunk
        finally:
            self.closed += 1


@pytest.fixture
def foreign(stage: Stage) -> Foreign:
    """The agent `guest` is it."""
    harness = Foreign()
    stage.parts.append(lambda ctx: ctx.harness("foreign", harness))
    stage.agents = [stage.agent(), quell.Agent(name="guest", harness="foreign", limits=stage.limits)]
    return harness


def ends(stage: Stage) -> list[str]:
    return [one.reason for one in stage.of(HarnessEnded)]


@pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)
def test_it_is_started_once_and_kept_between_turns(stage: Stage, foreign: Foreign, make: MakeLoop) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        first = session.send("one")
        seen = [event.kind async for event in first]
        assert seen == ["message.user", "turn.started", *["message.delta"] * 2, "message.done", "turn.ended"]
        assert first.text == "you said one"
        assert (await session.send("two")).end == "completed"

    stage.play(main, make)
    assert foreign.heard == ["one", "two"] and len(foreign.processes) == 1
    assert (len(stage.of(HarnessStarting)), len(stage.of(HarnessReady)), len(stage.of(HarnessIdle))) == (1, 1, 2)
    assert ends(stage) == ["end of block"]


def test_each_session_has_one_of_its_own(stage: Stage, foreign: Foreign) -> None:
    async def main(rt: Runtime) -> None:
        for _ in range(2):
            await (await stage.open(rt, "guest")).send("hello")

    stage.play(main)
    assert len(foreign.processes) == len(ends(stage)) == 2


def test_what_it_said_is_in_the_history_after_a_resume(stage: Stage, foreign: Foreign) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        await session.send("one")
        await session.close()
        again = await rt.resume(session.id)
        assert [one.text for one in again.history.messages("")] == ["one", "you said one"]
        assert (await again.send("two")).end == "completed"

    stage.play(main)
    assert len(foreign.processes) == 2 and ends(stage) == ["closed", "end of block"]


def test_a_start_that_takes_too_long_fails_the_turn_and_leaves_nothing(stage: Stage, foreign: Foreign) -> None:
    stage.settings = quell.Settings(ask=0.3, term=0.3, harness=0.2)
    foreign.begin = asyncio.Event().wait

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        ended = await session.send("one")
        assert ended.end == "failed" and "not within 0.2 s" in ended.reason
        assert not alive(foreign.processes[0].pid)
        foreign.begin = None
        assert (await session.send("two")).end == "completed"

    stage.play(main)
    assert len(ends(stage)) == 2 and "0.2 s" in ends(stage)[0]


def test_a_start_that_fails_says_why_and_the_next_turn_starts_another(stage: Stage, foreign: Foreign) -> None:
    async def fail() -> None:
        raise ValueError("no key")

    foreign.begin = fail

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        ended = await session.send("one")
        assert ended.end == "failed" and "no key" in ended.reason
        assert not alive(foreign.processes[0].pid)
        foreign.begin = None
        assert (await session.send("two")).end == "completed"

    stage.play(main)
    assert len(ends(stage)) == 2 and "no key" in ends(stage)[0]


def test_a_stop_of_the_turn_closes_its_stream_and_keeps_it(stage: Stage, foreign: Foreign) -> None:
    gate = Gate()

    async def wait(text: str) -> AsyncIterator[Chunk]:
        yield Text("hm")
        await gate()

    foreign.talk = wait

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        sent = session.send("one")
        await gate.reached.wait()
        assert (await session.stop(reach="turn")).confirmed
        assert (await sent).end == "stopped"
        assert foreign.closed == 1 and alive(foreign.processes[0].pid)
        foreign.talk = echo
        assert (await session.send("two")).end == "completed"
        assert len(foreign.processes) == 1

    stage.play(main)
    assert ends(stage) == ["end of block"]


def test_a_stop_of_the_session_ends_it_and_the_next_turn_starts_another(stage: Stage, foreign: Foreign) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        await session.send("one")
        assert (await session.stop(reason="enough")).confirmed
        assert not alive(foreign.processes[0].pid)
        assert (await session.send("two")).end == "completed"

    stage.play(main)
    assert len(foreign.processes) == 2 and ends(stage) == ["enough", "end of block"]
    ended, receipt = stage.of(HarnessEnded)[0], next(one for one in stage.of(StopReceipt) if one.session)
    assert ended.seq < receipt.seq


@pytest.mark.parametrize("reach", ["turn", "session"])
def test_a_stop_while_it_starts_does_not_spoil_the_session(stage: Stage, foreign: Foreign, reach: Any) -> None:
    """H12: half a start is ended, and the next turn starts another."""
    gate = Gate()
    foreign.begin = gate

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        sent = session.send("one")
        await gate.reached.wait()
        await session.stop(reach=reach)
        assert (await sent).end == "stopped"
        assert await until(lambda: not alive(foreign.processes[0].pid), 1.0)
        foreign.begin = None
        ended = await session.send("two")
        assert ended.end == "completed", ended.reason

    stage.play(main)
    assert len(ends(stage)) == 2


def test_a_stop_before_its_intent_is_on_disk_starts_nothing(stage: Stage, foreign: Foreign) -> None:
    """H18: the fence is passed after the disk has it; the next turn is not spoilt."""
    held: list[Held] = []

    def store(path: str) -> Held:
        held.append(Held(path))
        return held[0]

    stage.store = store

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        held[0].holding = True
        sent = session.send("one")
        assert await until(lambda: any(row.kind == "harness.starting" for row in held[0].appended))
        stopping = asyncio.ensure_future(session.stop(reach="turn"))
        await steps(3)
        held[0].let_go()
        await stopping
        assert (await sent).end == "stopped" and foreign.processes == []
        ended = await session.send("two")
        assert ended.end == "completed", ended.reason

    stage.play(main)


def test_a_further_turn_does_not_reach_it_before_the_turn_is_on_disk(stage: Stage, foreign: Foreign) -> None:
    """H18, H23: log first, for every turn of it."""
    held: list[Held] = []

    def store(path: str) -> Held:
        held.append(Held(path))
        return held[0]

    stage.store = store

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        await session.send("one")
        held[0].holding = True
        sent = session.send("two")
        await steps(20)
        heard = list(foreign.heard)
        held[0].let_go()
        assert (await sent).end == "completed"
        assert heard == ["one"]

    stage.play(main)


def test_a_stop_of_it_from_outside_gets_an_end_and_the_next_turn_starts_another(stage: Stage, foreign: Foreign) -> None:
    """H34: each start has its end, also of one whose place was taken."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        await session.send("one")
        assert session.guest is not None
        await session.guest.scope.stop(reason="by hand")
        assert (await session.send("two")).end == "completed"

    stage.play(main)
    assert len(foreign.processes) == len(ends(stage)) == 2


def test_a_stop_from_outside_in_the_middle_of_a_turn_ends_it_too(stage: Stage, foreign: Foreign) -> None:
    """H25, H34."""
    gate = Gate()

    async def wait(text: str) -> AsyncIterator[Chunk]:
        await gate()
        yield Text("late")

    foreign.talk = wait

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        sent = session.send("one")
        await gate.reached.wait()
        await session.ground().stop(reason="by hand")
        assert (await sent).end == "stopped"
        await idle(session)

    stage.play(main)
    assert len(ends(stage)) == 1


def test_one_that_died_is_replaced_at_the_next_turn(stage: Stage, foreign: Foreign) -> None:
    """A dead agent fails one turn, not all that come."""

    async def lost(text: str) -> AsyncIterator[Chunk]:
        if foreign.processes[-1].returncode is not None:
            raise BrokenPipeError("it is gone")
        yield Text("here")

    foreign.talk = lost

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        await session.send("one")
        await foreign.processes[0].stop()
        ended = await session.send("two")
        assert ended.end == "failed" and "it is gone" in ended.reason
        assert (await session.send("three")).end == "completed"

    stage.play(main)
    assert len(foreign.processes) == len(ends(stage)) == 2


def test_what_it_used_is_told_with_the_turn(stage: Stage, foreign: Foreign) -> None:
    async def dear(text: str) -> AsyncIterator[Chunk]:
        yield Usage(10, 20, 0.5)
        yield Text("done")

    foreign.talk = dear

    async def main(rt: Runtime) -> None:
        ended = await (await stage.open(rt, "guest")).send("one")
        assert ended.usage == Usage(10, 20, 0.5)

    stage.play(main)


def test_whoever_waits_is_told_that_it_is_silent(stage: Stage, foreign: Foreign) -> None:
    gate = Gate()
    stage.settings = quell.Settings(ask=0.3, term=0.3, silent=0.05)

    async def wait(text: str) -> AsyncIterator[Chunk]:
        await gate()
        yield Text("at last")

    foreign.talk = wait

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        sent = session.send("one")
        told = await live(rt, MessageDelta, session)
        assert "no word from foreign" in told.text
        gate.opened.set()
        await sent
        assert sent.text == "at last"

    stage.play(main)
    assert [one.text for one in stage.of(MessageDone)] == ["at last"]


def test_the_limit_of_time_ends_its_turn_and_keeps_it(stage: Stage, foreign: Foreign) -> None:
    gate = Gate()
    stage.agents[1] = quell.Agent(name="guest", harness="foreign", limits=quell.Limits(seconds=0.2))

    async def wait(text: str) -> AsyncIterator[Chunk]:
        await gate()
        yield Text("late")

    foreign.talk = wait

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        assert (await session.send("one")).end == "limit"
        foreign.talk = echo
        assert (await session.send("two")).end == "completed"

    stage.play(main)
    assert len(foreign.processes) == 1


def test_a_crash_leaves_an_end_for_it_at_the_next_start(stage: Stage, foreign: Foreign, tmp_path: Path) -> None:
    """H23: the log of one that died in a turn is made good."""
    gate = Gate()

    async def wait(text: str) -> AsyncIterator[Chunk]:
        await gate()
        yield Text("late")

    foreign.talk = wait
    copy = tmp_path / "crashed"

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "guest")
        session.send("one")
        session.send("waits")
        await gate.reached.wait()
        await rt.host.journal.flushed()
        copy.mkdir()
        for path in stage.state.glob("log.sqlite*"):
            if not path.name.endswith("-owner"):
                (copy / path.name).write_bytes(path.read_bytes())

    async def again() -> None:
        async with stage.runtime(copy):
            pass

    stage.play(main)
    stage.run(again)
    told = [one for one in stage.events(copy) if isinstance(one, HarnessEnded | TurnEnded | QueueParked)]
    assert [(one.kind, one.reason) for one in told] == [
        ("harness.ended", "interrupted"),
        ("turn.ended", "interrupted"),
        ("queue.parked", "interrupted"),
    ]
