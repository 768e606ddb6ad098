"""Many sessions: all are stopped in the time that one takes, and of those that are closed nothing stays in memory."""

import asyncio
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quell
from quell.events import SessionClosed, SessionDeleted, StopReceipt, StopRequested, TurnEnded
from quell.kernel.runtime import LOG, Runtime
from quell.testing import census
from quell.testing.checking import check_log
from tests.matrix.safety import Result, Safe
from tests.supervise.holdings import memory
from tests.supervise.loops import until
from tests.supervise.test_many import SECONDS, sleepers

from .cast import Stage, live
from .weighing import baseline, more

SESSIONS, BUSY = 1000, 100
GRACE = 0.5
ROOM = 3.0
"""Seconds beyond the grace, for a hundred namespaces to be ended and a log to be written on a busy machine."""
POLITE = f"$ exec sleep {SECONDS}"
DEAF = f"$ trap '' TERM; exec sleep {SECONDS}"

QUICK, ALL = 500, 10_000
"""One-shot sessions."""
AT_A_TIME = 10
PER_SESSION = 100
"""Bytes of memory for each session that are no leak: pages are counted, not objects."""
SLACK = 2 << 20


def in_a_namespace(job: Callable[[], Result]) -> Result:
    if os.geteuid() != 0:
        pytest.skip("a PID namespace around so many processes needs root")
    said = Safe(job).result()
    assert "broken" not in said, said["broken"]
    return said


# -- at once


def test_stop_all_with_a_hundred_turns_in_flight_takes_one_grace(tmp_path: Path) -> None:
    """H12, H21, H24: half of the trees are deaf to SIGTERM; every request has its end, and nothing is left."""
    said = in_a_namespace(lambda: counted(tmp_path))
    print(said)
    assert said["confirmed"] and said["left"] == 0 and said["leaks"] == [] and said["more"] == []
    assert GRACE <= said["seconds"] <= GRACE + ROOM


def counted(folder: Path) -> Result:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    before = census(["task", "thread", "fd", "socket", "descendant", "cgroup", "namespace"])
    said = asyncio.run(stop_all(folder))
    check_log(folder / "state" / LOG)
    return said | {"leaks": [str(one) for one in before.leaks(settle=2.0)]}


async def stop_all(folder: Path) -> Result:
    settings = quell.Settings(ask=0.5, term=GRACE)
    async with quell.Runtime(state_dir=folder / "state", settings=settings) as rt:
        session = await rt.open(cwd=folder)  # by then every kind of event has had its route
        await session.send("$ echo hello")
        session.send(DEAF)
        session.send("This waits.")
        assert await until(lambda: sleepers() == 1)
        await rt.stop_all(force=True)
        rt.reopen()
        await session.close()
        del session
        held = await baseline(rt)
        sessions = await asyncio.gather(*(rt.open(cwd=folder) for _ in range(SESSIONS)))
        turns = [one.send(DEAF if number % 2 else POLITE) for number, one in enumerate(sessions[:BUSY])]
        for one in sessions[:BUSY]:
            one.send("This waits.")
        assert await until(lambda: sleepers() == BUSY, 30), f"{sleepers()} of {BUSY} sleep"
        began = time.monotonic()
        receipt = await rt.stop_all()
        seconds = time.monotonic() - began
        confirmed, left = receipt.confirmed, sleepers()
        del receipt
        assert {(await one).end for one in turns} == {"stopped"}
        assert all(len(one.parked) == 1 for one in sessions[:BUSY])
        with pytest.raises(quell.AdmissionClosedError):
            await rt.open(cwd=folder)
        rt.reopen()
        await asyncio.gather(*(one.close() for one in sessions))
        del sessions, turns, one
        return {"seconds": seconds, "confirmed": confirmed, "left": left, "more": await more(rt, held)}


# -- one after another


async def one_shot(rt: Runtime, folder: Path) -> None:
    session = await rt.open(cwd=folder)
    assert (await session.send("Hello.")).end == "completed"
    await session.close()


async def one_shots(folder: Path, count: int) -> Result:
    async with quell.Runtime(state_dir=folder / "state") as rt:

        async def some(number: int) -> None:
            for _ in range(number):
                await one_shot(rt, folder)

        async def many(number: int) -> None:
            await asyncio.gather(*(some(number // AT_A_TIME) for _ in range(AT_A_TIME)))

        await many(max(50, count // 10))  # by then every path was taken, and every pool is as large as it gets
        held, flat, began = await baseline(rt), memory()["this process"], time.monotonic()
        await many(count)
        seconds = time.monotonic() - began
        found, grew = await more(rt, held), memory()["this process"] - flat
    check_log(folder / "state" / LOG)
    return {"more": found, "bytes": grew / count, "grew": grew, "milliseconds": seconds * 1000 / count}


def test_of_one_shot_sessions_nothing_stays_in_any_map(tmp_path: Path) -> None:
    """H09: everything that can be reached from the runtime has its size of before."""
    said = in_a_namespace(lambda: asyncio.run(one_shots(tmp_path, QUICK)))
    print(said)
    assert said["more"] == []


@pytest.mark.soak
def test_of_ten_thousand_one_shot_sessions_no_memory_is_kept(tmp_path: Path) -> None:
    """H09: and memory is flat."""
    said = in_a_namespace(lambda: asyncio.run(one_shots(tmp_path, ALL)))
    print(said)
    assert said["more"] == []
    assert said["grew"] <= SLACK + PER_SESSION * ALL


def test_a_map_that_grows_would_be_seen(tmp_path: Path) -> None:
    """H56: the look at all maps is seen to fail."""

    async def main() -> list[str]:
        async with quell.Runtime(state_dir=tmp_path / "state") as rt:
            held = await baseline(rt)
            session = await rt.open(cwd=tmp_path)
            found = [line for line in await more(rt, held, 0.1) if "Host.live:" in line]
            await session.close()
            return found

    assert in_a_namespace(lambda: {"found": asyncio.run(main())})["found"] == [
        "in Host.live: 0 before, 1 now",
        "reached in Host.live: 0 before, 1 now",
    ]


# -- restarts


@pytest.mark.parametrize("steps", [0, 1, 5, 20, 100])
def test_a_session_that_is_deleted_is_stopped_first(stage: Stage, steps: int) -> None:
    """H27: at any point of its cold start, and later."""
    seen: list[quell.Event] = []

    async def main(rt: Runtime) -> None:
        session = await rt.open("scripted", stage.cwd)
        sent = session.send(DEAF)
        after = sent.message.seq
        for _ in range(steps):
            await asyncio.sleep(0)
        receipt = await session.delete()
        assert receipt.confirmed
        async for event in rt.follow(after):  # what the log has no longer; the bus handed it on
            seen.append(event)
            if isinstance(event, SessionDeleted):
                break
        assert session.id not in [one.id for one in await rt.sessions()]
        assert not rt.host.live
        with pytest.raises(quell.NoSessionError):
            await rt.resume(session.id)

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_what_a_deleted_session_did_last_is_told_in_order(stage: Stage) -> None:
    """H27: stopped, with its receipt, then closed, then deleted."""
    seen: list[quell.Event] = []

    async def main(rt: Runtime) -> None:
        client, deleting = rt.follow(rt.host.journal.last), asyncio.Future[quell.Receipt]()
        session = await rt.open("scripted", stage.cwd)
        session.send(DEAF)
        async for event in client:
            seen.append(event)
            if event.kind == "process.spawned":
                deleting = asyncio.ensure_future(session.delete())
            if isinstance(event, SessionDeleted):
                break
        assert (await deleting).confirmed

    stage.play(main)
    wanted = (StopRequested, TurnEnded, StopReceipt, SessionClosed, SessionDeleted)
    assert [type(one) for one in seen if isinstance(one, wanted)] == list(wanted)


@pytest.mark.parametrize("reach", ["turn", "session"])
@pytest.mark.parametrize("force", [False, True])
def test_after_a_stop_at_any_point_the_next_message_is_answered_at_once(stage: Stage, reach: str, force: bool) -> None:
    """H27: even one that is sent while the stop is under way."""

    async def main(rt: Runtime) -> None:
        rt.configure(ask=5.0, term=5.0)
        session = await rt.open("scripted", stage.cwd)
        for steps in [*range(0, 40, 3), 60, 100, 200]:
            session.send(POLITE)
            for _ in range(steps):
                await asyncio.sleep(0)
            stop = asyncio.ensure_future(session.stop(reach=reach, force=force))  # type: ignore[arg-type]  # one of two
            await asyncio.sleep(0)
            began = time.monotonic()
            sent = session.send("Hello.")
            assert (await sent).end == "completed" and sent.text == "You said: Hello."
            assert time.monotonic() - began < 3.0
            assert (await stop).confirmed

    stage.play(main)


def test_after_a_stop_of_the_turn_a_job_goes_on_and_the_next_message_is_answered(stage: Stage) -> None:
    """H27: what was put in the background on purpose is no part of the turn."""

    async def main(rt: Runtime) -> None:
        session = await rt.open("scripted", stage.cwd)
        await session.send("$ sleep 600 &")
        sent = session.send(DEAF)
        await live(rt, type(sent.message), session)
        assert await until(lambda: session.turn is not None)
        receipt = await session.stop(reach="turn", grace=0.1)
        assert receipt.confirmed and len(session.jobs()) == 1
        assert (await session.send("Hello.")).end == "completed"
        assert (await session.stop()).confirmed and session.jobs() == ()

    stage.play(main)
