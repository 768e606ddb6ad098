"""The start after a crash: what was in flight is interrupted, what waited is parked, and nothing is done twice."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    ModelFailed,
    QueueParked,
    SessionDeleted,
    StopReceipt,
    ToolEnded,
    ToolRefused,
    ToolStarted,
    TurnEnded,
)
from quell.kernel.runtime import LOG, Runtime
from quell.ports import Ask, Chunk, Text
from tests.supervise.conftest import alive, until

from .cast import Gate, Held, Stage, call, idle, live, steps


def crash(stage: Stage) -> Path:
    """The log as a crash at this moment would leave it."""
    left = stage.folder / "left" / "state"
    left.mkdir(parents=True, exist_ok=True)
    for name in (LOG, f"{LOG}-wal"):
        if (stage.state / name).exists():
            shutil.copy(stage.state / name, left / name)
    return left


def again(stage: Stage, main: Any, left: Path) -> list[Event]:
    """Start on what the crash left; the log after that."""

    async def whole() -> None:
        async with stage.runtime(left) as rt:
            await main(rt)

    stage.run(whole)
    return stage.events(left)


def kinds(events: list[Event], session: str) -> list[str]:
    return [one.kind for one in events if one.session == session]


def of(events: list[Event], kind: Any) -> list[Any]:
    return [one for one in events if isinstance(one, kind)]


def test_a_tool_in_flight_is_interrupted_and_not_run_again(stage: Stage) -> None:
    """H23: the queue is parked, and nothing starts by itself."""
    gate = stage.waiting()
    stage.model.will([call("note", name="a"), call("wait")])
    ids: list[str] = []
    left: list[Path] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        ids.append(session.id)
        session.send("go")
        await gate.reached.wait()
        await session.send("queued").accepted()
        await live(rt, ToolEnded)
        left.append(crash(stage))

    async def second(rt: Runtime) -> None:
        assert not rt.host.journal.requests and not rt.host.live
        session = await rt.resume(ids[0])
        await steps(20)
        assert session.state == "idle" and [one.text for one in session.parked] == ["queued"]
        assert not stage.outside("a").exists()
        stage.model.answers.clear()
        assert (await session.send("next")).end == "completed"
        results = {one.call: one for one in stage.model.asks[-1].messages[2].results}
        assert results["call-wait"].failed and not results["call-note"].failed
        session.release()
        await idle(session)

    stage.play(first)
    stage.outside("a").unlink()
    gate.reached.clear()
    events = again(stage, second, left[0])
    assert not gate.reached.is_set()
    assert [one.end for one in of(events, TurnEnded)] == ["interrupted", "completed", "completed"]
    assert [one.error for one in of(events, ToolEnded)] == ["", "interrupted"]
    assert [one.reason for one in of(events, QueueParked)] == ["interrupted"]


def test_a_model_and_a_question_in_flight_get_their_ends(stage: Stage) -> None:
    """H23, H35."""
    gate = Gate()

    async def hang(_: Ask) -> AsyncIterator[Chunk]:
        yield Text("well")
        await gate()

    stage.agents = [stage.agent(), stage.agent("careful", approval={})]
    left: list[Path] = []

    async def first(rt: Runtime) -> None:
        stage.model.will([call("note", name="a")])
        careful = await stage.open(rt, "careful")
        careful.send("go")
        asked = await live(rt, ApprovalAsked)
        stage.model.will(hang)
        (await stage.open(rt)).send("go")
        await gate.reached.wait()
        left.append(crash(stage))
        careful.approve(asked.seq, True)

    async def second(rt: Runtime) -> None:
        await steps(20)

    stage.play(first)
    stage.outside("a").unlink(missing_ok=True)
    events = again(stage, second, left[0])
    assert not stage.outside("a").exists()
    assert [one.reason for one in of(events, ApprovalWithdrawn)] == ["interrupted"]
    assert [one.error for one in of(events, ModelFailed)] == ["interrupted"]
    assert [one.reason for one in of(events, ToolRefused)] == ["interrupted"]
    assert [one.end for one in of(events, TurnEnded)] == ["interrupted"] * 2


def test_a_stop_that_was_under_way_is_not_called_confirmed(stage: Stage) -> None:
    """H23, H17: and admission stays as it was."""
    gate = Gate()

    async def endure(_: Any, caller: Any) -> str:
        await gate.endure()
        return ""

    stage.tool("endure", endure)
    stage.model.will([call("endure")])
    left: list[Path] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        stopping = asyncio.ensure_future(rt.stop_all())
        await steps(2)
        await rt.host.journal.flushed()
        left.append(crash(stage))
        gate.opened.set()
        await stopping

    async def second(rt: Runtime) -> None:
        assert not rt.admitting
        with pytest.raises(quell.AdmissionClosedError):
            await stage.open(rt)

    stage.play(first)
    events = again(stage, second, left[0])
    assert [one.confirmed for one in of(events, StopReceipt)] == [False, False]
    assert [one.end for one in of(events, TurnEnded)] == ["interrupted"]


def test_sub_agents_are_interrupted_with_those_above_them(stage: Stage) -> None:
    """H23."""
    gate = stage.waiting()
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("agent", agent="second", text="go")], [call("wait")])
    left: list[Path] = []

    async def first(rt: Runtime) -> None:
        (await stage.open(rt)).send("go")
        await gate.reached.wait()
        left.append(crash(stage))

    async def second(rt: Runtime) -> None:
        assert [one.state for one in await rt.sessions()] == ["closed", "closed"]

    stage.play(first)
    events = again(stage, second, left[0])
    assert [one.end for one in of(events, TurnEnded)] == ["interrupted"] * 2


def test_a_deletion_that_a_crash_broke_off_is_finished(stage: Stage) -> None:
    """H27."""
    left: list[Path] = []
    kept: list[Held] = []

    class Slow(Held):
        async def forget(self, session: str, keep: Any = ()) -> int:
            if not left:
                left.append(crash(stage))
            return await super().forget(session, keep)

    def make(path: str) -> Any:
        kept.append(Slow(path))
        return kept[-1]

    stage.store = make

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("secret")
        await session.delete()

    async def second(rt: Runtime) -> None:
        assert await rt.sessions() == []

    stage.play(first)
    assert len([one for one in stage.events(left[0]) if one.session]) > 1
    events = again(stage, second, left[0])
    assert [one.kind for one in events if one.session] == ["session.deleted"]


def test_a_deletion_that_the_end_of_the_runtime_overtakes_is_finished(stage: Stage) -> None:
    """H27: at the latest by the next start, whatever came between."""
    ids: list[str] = []

    class Slow(Held):
        async def forget(self, session: str, keep: Any = ()) -> int:
            await asyncio.sleep(0.1)  # on a busy disk
            return await super().forget(session, keep)

    stage.store = Slow

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            ids.append(session.id)
            await session.send("secret")
            deleting = asyncio.ensure_future(rt.delete(session.id))
            await live(rt, SessionDeleted)
            deleting.cancel()
            await asyncio.wait([deleting])

    stage.run(main)
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]
    assert kinds(stage.events(), ids[0]) == ["session.deleted"]


def test_what_is_read_after_a_crash_is_what_was_acknowledged(stage: Stage) -> None:
    """H23: and no number is given twice."""
    left: list[Path] = []
    known: list[int] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        for n in range(5):
            ended = await session.send(f"message {n}")
            known.append(ended.seq)
        left.append(crash(stage))
        known.append(rt.host.journal.last)

    async def second(rt: Runtime) -> None:
        session = await stage.open(rt)
        ended = await session.send("go")
        assert ended.seq > max(known)

    stage.play(first)
    events = again(stage, second, left[0])
    assert set(known[:5]) <= {one.seq for one in events}


def test_a_second_crash_during_recovery_changes_nothing(stage: Stage) -> None:
    """H23: recovering twice ends each request once."""
    gate = stage.waiting()
    stage.model.will([call("wait")])
    left: list[Path] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        await session.send("queued").accepted()
        left.append(crash(stage))

    async def nothing(rt: Runtime) -> None: ...

    stage.play(first)
    half = stage.folder / "half" / "state"
    state, stage.state = stage.state, left[0]

    async def second(rt: Runtime) -> None:
        half.mkdir(parents=True)
        for path in left[0].glob(f"{LOG}*"):
            if not path.name.endswith("shm"):
                shutil.copy(path, half / path.name)

    stage.play(second)
    stage.state = state
    events = again(stage, nothing, half)
    assert len(of(events, TurnEnded)) == len(of(events, ToolEnded)) == len(of(events, QueueParked)) == 1


SCRIPT = """
import asyncio, sys
import quell

async def main():
    async with quell.Runtime(state_dir=sys.argv[1]) as rt:
        session = await rt.open(agent="scripted", cwd=sys.argv[2])
        sent = session.send("$ echo $$ > pid; echo ran >> ran; exec sleep 600")
        await session.send("$ echo again >> ran").accepted()
        print(session.id, flush=True)
        await sent

asyncio.run(main())
"""


def test_a_killed_runtime_leaves_no_process_and_its_turn_is_interrupted(stage: Stage) -> None:
    """H23: a real process, a real SIGKILL."""
    victim = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(stage.state), str(stage.cwd)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert victim.stdout is not None
        id_ = victim.stdout.readline().strip()
        assert until(
            lambda: stage.outside("ran").exists() and any(isinstance(one, ToolStarted) for one in stage.events())
        )
        assert until(lambda: any(one.kind == "process.spawned" for one in stage.events()))
        spawned: Any = next(one for one in stage.events() if one.kind == "process.spawned")
        assert alive(spawned.pid)
    finally:
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
        victim.stdout.close()  # type: ignore[union-attr]
    assert until(lambda: not alive(spawned.pid), 1.0)

    async def main(rt: Runtime) -> None:
        session = await rt.resume(id_)
        assert len(session.parked) == 1
        await steps(20)
        assert (await session.send("hello")).end == "completed"

    stage.play(main)
    assert stage.outside("ran").read_text() == "ran\n"
    assert [one.end for one in stage.of(TurnEnded)] == ["interrupted", "completed"]


def test_a_log_that_a_stranger_damaged_is_refused_and_left_as_it_is(stage: Stage) -> None:
    stage.state.mkdir()
    (stage.state / LOG).write_bytes(b"this is no log" * 1000)

    async def main() -> None:
        with pytest.raises(quell.StoreError):
            async with stage.runtime():
                pass

    stage.run(main)
    assert (stage.state / LOG).read_bytes() == b"this is no log" * 1000
    (stage.state / LOG).unlink()
