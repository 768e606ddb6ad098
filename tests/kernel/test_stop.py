"""Stop means stop: of a turn, of a session, of everything, from inside, from outside, and while it starts."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import quell
from quell.events import (
    ConfigChanged,
    Event,
    QueueParked,
    ToolEnded,
    TurnEnded,
    TurnStarted,
)
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Caller, Chunk, PluginContext, Text
from tests.supervise.conftest import alive
from tests.supervise.loops import LOOPS, outcome, until
from tests.supervise.owned import MakeLoop

from .cast import AT_ONCE, PATIENT, STUBBORN, Gate, Stage, Troupe, call, idle, live, steps

ON_EVERY_LOOP = pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)


def command(stage: Stage, argv: list[str], name: str = "command", *, background: bool = False) -> list[int]:
    """A tool that runs this command; its pids."""
    pids: list[int] = []

    async def body(_: Mapping[str, Any], caller: Caller) -> str:
        process = await caller.spawn(argv, background=background)
        pids.append(process.pid)
        if not background:
            await process.wait()
        return "ran"

    stage.tool(name, body)
    return pids


async def hang(_: Ask) -> AsyncIterator[Chunk]:
    yield Text("well")
    await asyncio.sleep(600)


# -- a turn


@ON_EVERY_LOOP
def test_a_stop_ends_the_turn_and_what_it_ran_and_the_receipt_is_stored(stage: Stage, make: MakeLoop) -> None:
    pids = command(stage, ["sleep", "600"])
    stage.model.will([call("command")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        receipt = await session.stop(reach="turn", reason="enough")
        assert receipt.confirmed and not alive(pids[0])
        ended = await sent
        assert (ended.end, ended.reason) == ("stopped", "enough")
        (stored,) = stage.receipts()
        assert stored.confirmed and stored.receipt["reason"] == "enough"
        assert [one["argv"] for one in stored.receipt["processes"]] == [["sleep", "600"]]

    stage.play(main, make)
    kinds = stage.kinds(without=["process.ended"])
    start = kinds.index("stop.requested")
    assert kinds[start : start + 4] == ["stop.requested", "tool.ended", "turn.ended", "stop.receipt"]


def test_a_stop_while_the_model_answers_fails_the_request(stage: Stage) -> None:
    stage.model.will(hang)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(stage.model.asks))
        assert (await session.stop(reach="turn")).confirmed
        assert (await sent).end == "stopped"

    stage.play(main)
    assert stage.kinds().count("model.failed") == 1


@pytest.mark.parametrize("reach", ["turn", "session"])
def test_a_stop_parks_the_queue_and_the_next_message_is_answered_at_once(stage: Stage, reach: Any) -> None:
    """H19, H27: what waited is neither fired nor lost, and stands in nobody's way."""
    stage.settings = PATIENT
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        parked = [session.send("two"), session.send("three")]
        async with asyncio.timeout(AT_ONCE):
            stopping = asyncio.ensure_future(session.stop(reach=reach))
            await steps(1)
            early = session.send("while it stops")
            await stopping
            for sent in parked:
                with pytest.raises(quell.NotAnsweredError):
                    await sent
            assert (await early).end == "completed"
            assert (await session.send("after")).end == "completed"
        assert [one.text for one in session.parked] == ["two", "three"]
        assert not session.waiting and session.state == "idle"

    stage.play(main)
    (event,) = stage.of(QueueParked)
    assert len(event.messages) == 2
    assert [ask.messages[-1].text for ask in stage.model.asks] == ["one", "while it stops", "after"]


def test_released_messages_run_in_their_order_before_later_ones(stage: Stage) -> None:
    """H19."""
    gate, second = stage.waiting(), stage.waiting("again")
    stage.model.will([call("wait")], [call("again")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        parked = [session.send("two"), session.send("three")]
        await session.stop(reach="turn")
        session.send("four")
        await second.reached.wait()
        later = session.send("five")
        assert session.release() == [one.message.seq for one in parked]
        assert session.release() == []
        second.opened.set()
        assert [(await one).end for one in parked] == ["completed", "completed"]
        await later

    stage.play(main)
    said = [ask.messages[-1].text for ask in stage.model.asks if ask.messages[-1].role == "user"]
    assert said == ["one", "four", "two", "three", "five"]


def test_the_events_of_a_released_message_can_be_followed_to_its_end(stage: Stage) -> None:
    """H19: it was parked once, and is answered now."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        sent = session.send("two")
        await session.stop(reach="turn")
        session.release()
        seen = [event async for event in sent]
        assert isinstance(seen[-1], TurnEnded)

    stage.play(main)


def test_discarded_messages_never_run(stage: Stage) -> None:
    """H19."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        sent = session.send("two")
        await session.stop(reach="turn")
        assert session.discard() == [sent.message.seq]
        assert session.discard() == session.release() == []
        with pytest.raises(quell.NotAnsweredError):
            await sent
        await session.send("three")

    stage.play(main)
    assert [ask.messages[-1].text for ask in stage.model.asks] == ["one", "three"]


def test_parked_messages_wait_over_a_restart(stage: Stage) -> None:
    """H19."""
    gate = stage.waiting()
    stage.model.will([call("wait")])
    ids: list[str] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        ids.append(session.id)
        session.send("one")
        await gate.reached.wait()
        session.send("two")

    async def second(rt: Runtime) -> None:
        session = await rt.resume(ids[0])
        assert [one.text for one in session.parked] == ["two"]
        assert session.state == "idle"
        session.release()
        await idle(session)
        assert stage.model.asks[-1].messages[-1].text == "two"

    stage.play(first)
    stage.play(second)


def test_at_every_moment_a_stop_parks_and_ends_and_the_next_message_is_answered(stage: Stage) -> None:
    """H18, H19, H27: between any two steps of a turn with a model, a tool and a command."""
    pids = command(stage, ["sleep", "600"])

    async def main(rt: Runtime) -> None:
        for count in range(0, 60, 2):
            session = await stage.open(rt)
            stage.model.answers.clear()
            stage.model.will([Text("well"), call("command")])
            sent, queued = session.send("go"), session.send("queued")
            await steps(count)
            receipt = await session.stop(reach="turn")
            assert receipt.confirmed, count
            assert (await sent).end == "stopped", count
            assert [one.seq for one in session.parked] == [queued.message.seq], count
            assert not any(alive(pid) for pid in pids), count
            stage.model.answers.clear()
            assert (await session.send("next")).end == "completed", count
            await session.close()

    stage.play(main)


# -- reach


def test_a_stop_of_the_turn_lets_background_jobs_live_and_one_of_the_session_ends_them(stage: Stage) -> None:
    jobs = command(stage, ["sleep", "600"], "job", background=True)
    gate = stage.waiting()
    stage.model.will([call("job")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        assert (await session.stop(reach="turn")).confirmed
        assert alive(jobs[0]) and len(session.jobs()) == 1
        assert (await session.send("next")).end == "completed"
        assert alive(jobs[0])
        assert (await session.stop()).confirmed
        assert not alive(jobs[0]) and not session.jobs()
        assert (await session.send("and on")).end == "completed"

    stage.play(main)


def test_a_stop_of_a_session_that_does_nothing_is_confirmed_and_recorded(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.stop(reach="turn")).confirmed
        assert (await session.stop()).confirmed
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert len(stage.receipts()) == 2


def test_a_session_is_not_stopped_with_the_reach_of_all(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        with pytest.raises(quell.UsageError, match="stop_all"):
            await session.stop(reach="all")

    stage.play(main)


@pytest.mark.parametrize("grace", [-1, float("nan"), "soon"], ids=str)
def test_a_grace_that_makes_no_sense_is_refused_before_anything_is_begun(stage: Stage, grace: Any) -> None:
    """H35: a stop that is recorded and never ends would hold the session for good."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        with pytest.raises(quell.UsageError):
            await session.stop(reach="turn", grace=grace)
        with pytest.raises(quell.UsageError):
            await rt.stop_all(grace=grace)
        assert session.state == "running" and rt.admitting
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)
    assert not stage.stops()


# -- who asks


def test_asking_twice_joins_and_force_cuts_it_short(stage: Stage) -> None:
    stage.settings = PATIENT
    pids = command(stage, STUBBORN)
    stage.model.will([call("command")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        first = asyncio.ensure_future(session.stop(reach="turn"))
        await steps(3)
        async with asyncio.timeout(AT_ONCE):
            second = await session.stop(reach="turn", force=True)
            assert second.confirmed and (await first).confirmed
            assert (await sent).end == "stopped"
        assert not alive(pids[0])

    stage.play(main)
    assert len(stage.receipts()) == 2


def test_cancelling_whoever_asks_changes_nothing(stage: Stage) -> None:
    pids = command(stage, STUBBORN)
    stage.model.will([call("command")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        askers = [asyncio.ensure_future(session.stop(reach="turn")) for _ in range(3)]
        await steps(2)
        for asker in askers:
            asker.cancel()
        assert [await outcome(one) for one in askers] == ["cancelled"] * 3
        assert (await sent).end == "stopped"
        assert not alive(pids[0])
        await idle(session)

    stage.play(main)
    assert [one.confirmed for one in stage.receipts()] == [True] * 3


@pytest.mark.parametrize("reach", ["turn", "session"])
def test_a_tool_may_stop_its_own_turn(stage: Stage, reach: Any) -> None:
    sessions: list[quell.Session] = []

    async def suicide(_: Mapping[str, Any], caller: Caller) -> str:
        await sessions[0].stop(reach=reach)
        return "never"

    stage.settings = PATIENT
    stage.tool("suicide", suicide)
    stage.model.will([call("suicide")])

    async def main(rt: Runtime) -> None:
        sessions.append(await stage.open(rt))
        async with asyncio.timeout(AT_ONCE):
            assert (await sessions[0].send("go")).end == "stopped"
            await idle(sessions[0])
            assert (await sessions[0].send("next")).end == "completed"

    stage.play(main)
    assert [one.confirmed for one in stage.receipts()] == [True]


@pytest.mark.parametrize("what", ["close", "delete", "stop all", "close runtime"])
def test_a_tool_may_close_delete_or_stop_what_it_runs_in(stage: Stage, what: str) -> None:
    gate = asyncio.Event()

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            acts.update({"close": session.close, "delete": session.delete, "stop all": rt.stop_all})
            acts["close runtime"] = rt.close
            async with asyncio.timeout(AT_ONCE):
                assert (await session.send("go")).end == "stopped"

    acts: dict[str, Any] = {}

    async def suicide(_: Mapping[str, Any], caller: Caller) -> str:
        gate.set()
        await acts[what]()
        return "never"

    stage.settings = PATIENT
    stage.tool("suicide", suicide)
    stage.model.will([call("suicide")])
    stage.run(main)


def test_a_handler_may_stop_the_turn_that_it_hears_of(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])
    sessions: list[quell.Session] = []

    async def handler(_: Event) -> None:
        await sessions[0].stop(reach="turn", reason="the handler says so")

    stage.parts.append(lambda ctx: ctx.on("tool.started", handler))

    async def main(rt: Runtime) -> None:
        sessions.append(await stage.open(rt))
        ended = await sessions[0].send("go")
        assert (ended.end, ended.reason) == ("stopped", "the handler says so")

    stage.play(main)
    assert not gate.opened.is_set()


# -- everything


def test_stop_all_closes_admission_first_and_it_stays_closed_over_a_restart(stage: Stage) -> None:
    """H21: nothing begins between the stop and the last process's end, nor later, until somebody reopens."""
    gate = stage.waiting()
    stage.model.will([call("wait")])
    ids: list[str] = []

    async def first(rt: Runtime) -> None:
        session, other = await stage.open(rt), await stage.open(rt)
        ids.append(session.id)
        sent = session.send("go")
        await gate.reached.wait()
        session.send("queued")
        stopping = asyncio.ensure_future(rt.stop_all(reason="enough"))
        await steps(1)
        assert not rt.admitting
        for one in (session, other):
            with pytest.raises(quell.AdmissionClosedError):
                one.send("x")
        with pytest.raises(quell.AdmissionClosedError):
            session.release()
        for coroutine in (stage.open(rt), other.fork(), rt.resume("any")):
            with pytest.raises(quell.AdmissionClosedError):
                await coroutine
        assert (await stopping).confirmed
        assert (await sent).end == "stopped"

    async def second(rt: Runtime) -> None:
        assert not rt.admitting
        with pytest.raises(quell.AdmissionClosedError):
            await stage.open(rt)
        rt.reopen()
        rt.reopen()
        assert rt.host.admitting
        session = await rt.resume(ids[0])
        assert [one.text for one in session.parked] == ["queued"]
        assert (await session.send("go")).end == "completed"

    async def third(rt: Runtime) -> None:
        assert rt.admitting

    for one in (first, second, third):
        stage.play(one)
    kinds = stage.kinds(without=["message.user"])
    start = kinds.index("admission.closed")
    assert kinds[start + 1] == "stop.requested"
    assert kinds.count("admission.reopened") == 1
    assert [one.reach for one in stage.stops()] == ["all", "session"]


def test_work_that_is_begun_while_everything_is_stopped_is_refused_at_every_moment(stage: Stage) -> None:
    """H21: a session that is opened at the same time is either stopped too or refused."""

    async def main(rt: Runtime) -> None:
        for count in range(6):
            rt.reopen()
            stage.model.answers.clear()
            stage.model.will(hang)

            async def work() -> str:
                session = await stage.open(rt)
                return (await session.send("go")).end

            task = asyncio.ensure_future(work())
            await steps(count * 2)
            assert (await rt.stop_all()).confirmed
            try:
                assert await task == "stopped", count
            except quell.AdmissionClosedError:
                pass
            assert all(one.turn is None for one in rt.host.live.values())

    stage.play(main)


def test_sessions_stop_at_the_same_time(stage: Stage) -> None:
    """H24: eight that ignore SIGTERM take as long as one."""
    stage.settings = quell.Settings(ask=0.5, term=0.5)
    pids = command(stage, STUBBORN)
    stage.model.will(*[[call("command")]] * 8)

    async def main(rt: Runtime) -> None:
        for _ in range(8):
            (await stage.open(rt)).send("go")
        assert await until(lambda: len(pids) == 8)
        began = time.monotonic()
        assert (await rt.stop_all()).confirmed
        assert time.monotonic() - began < 0.5 + 1.5
        assert not any(alive(pid) for pid in pids)

    stage.play(main)


def test_the_end_of_the_block_stops_sessions_at_the_same_time(stage: Stage) -> None:
    """H24."""
    stage.settings = quell.Settings(ask=0.5, term=0.5)
    pids = command(stage, STUBBORN)
    stage.model.will(*[[call("command")]] * 8)
    began: list[float] = []

    async def main(rt: Runtime) -> None:
        for _ in range(8):
            (await stage.open(rt)).send("go")
        assert await until(lambda: len(pids) == 8)
        began.append(time.monotonic())

    stage.play(main)
    assert time.monotonic() - began[0] < 0.5 + 2.0
    assert not any(alive(pid) for pid in pids)


def test_stop_all_asked_twice_with_force_ends_at_once(stage: Stage) -> None:
    stage.settings = PATIENT
    pids = command(stage, STUBBORN)
    stage.model.will([call("command")])

    async def main(rt: Runtime) -> None:
        (await stage.open(rt)).send("go")
        assert await until(lambda: bool(pids))
        first = asyncio.ensure_future(rt.stop_all())
        await steps(3)
        async with asyncio.timeout(AT_ONCE):
            assert (await rt.stop_all(force=True)).confirmed
            assert (await first).confirmed

    stage.play(main)


# -- settings


def test_a_changed_setting_acts_on_the_next_stop(stage: Stage) -> None:
    stage.settings = PATIENT
    pids = command(stage, STUBBORN)
    stage.model.will([call("command")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        assert await until(lambda: bool(pids))
        assert rt.configure(term=0.2).term == rt.settings.term == 0.2
        async with asyncio.timeout(AT_ONCE):
            assert (await session.stop()).confirmed
        with pytest.raises(quell.UsageError, match="term"):
            rt.configure(terms=1)
        for wrong in (-1, "1", True, None, float("nan")):
            with pytest.raises(quell.UsageError):
                rt.configure(term=wrong)  # type: ignore[arg-type]

    stage.play(main)
    assert [one.changed for one in stage.of(ConfigChanged)] == [{"term": 0.2}]


def test_every_setting_acts_on_its_next_use(stage: Stage) -> None:
    """H53: a setting that is taken and ignored is a lie."""
    gate = stage.waiting()
    stage.model.will([call("wait")], [call("note", name="a")])
    stage.agents = [stage.agent(approval={"wait": "allow"})]

    async def forever(_: Any) -> None:
        await asyncio.sleep(600)

    stage.parts.append(lambda ctx: ctx.on("session.renamed", forever))

    async def main(rt: Runtime) -> None:
        rt.configure(silent=0.05, approval=0.05, plugin=0.05, handler=0.05)
        async with asyncio.timeout(AT_ONCE):
            with pytest.raises(quell.PluginRefusedError, match=r"0\.05"):
                await rt.plugins.load(Troupe(forever, "slow"))
            session = await stage.open(rt)
            await session.rename("x")
            sent = session.send("go")
            await gate.reached.wait()
            assert await until(lambda: "plugin.error" in stage.kinds() and "tool.output" in stage.kinds())
            gate.opened.set()
            assert (await sent).end == "completed"

    stage.play(main)
    assert "approval.withdrawn" in stage.kinds()


# -- from outside


def ask_in_a_thread(
    stage: Stage, found: list[quell.Receipt], when: threading.Event | None = None, **wishes: Any
) -> threading.Thread:
    def ask() -> None:
        assert when is None or when.wait(AT_ONCE)
        found.append(quell.ask_stop(str(stage.state), timeout=20, **wishes))

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def test_the_control_socket_stops_one_session_and_that_is_recorded(stage: Stage) -> None:
    """H20: a stop from any client is a stop: fenced, parked, with its receipt in the log."""
    pids, jobs = command(stage, ["sleep", "600"]), command(stage, ["sleep", "600"], "job", background=True)
    stage.model.will([call("job")], [call("command")])
    found: list[quell.Receipt] = []

    async def main(rt: Runtime) -> None:
        session, other = await stage.open(rt), await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        session.send("queued")
        thread = ask_in_a_thread(stage, found, scope=f"sessions/{session.id}", reason="by hand")
        ended = await sent
        assert (ended.end, ended.reason) == ("stopped", "by hand")
        assert await until(lambda: bool(found))
        thread.join()
        assert found[0].confirmed and not alive(pids[0]) and not alive(jobs[0])
        assert [one.text for one in session.parked] == ["queued"]
        assert (await session.send("next")).end == "completed"
        assert (await other.send("next")).end == "completed"

    stage.play(main)
    assert [one.confirmed for one in stage.receipts()] == [True]


def test_the_control_socket_stops_an_idle_session_with_jobs_and_that_is_recorded(stage: Stage) -> None:
    """H20."""
    jobs = command(stage, ["sleep", "600"], "job", background=True)
    stage.model.will([call("job")])
    found: list[quell.Receipt] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        thread = ask_in_a_thread(stage, found, scope=f"sessions/{session.id}", reason="by hand")
        assert await until(lambda: bool(found))
        thread.join()
        assert found[0].confirmed and not alive(jobs[0])
        assert (await session.send("next")).end == "completed"

    stage.play(main)
    assert [one.reason for one in stage.stops()] == ["by hand"]


@pytest.mark.parametrize("whole", [True, False], ids=["everything", "one session"])
def test_a_stop_from_outside_does_not_need_the_loop(stage: Stage, whole: bool) -> None:
    """H25: a handler blocks the loop; the trees are gone all the same, and the log tells of it when the loop turns."""
    pids = command(stage, ["sleep", "600"])
    stage.model.will([call("command")])
    found: list[quell.Receipt] = []
    seen: list[bool] = []
    blocked = threading.Event()

    async def block(_: Event) -> None:
        blocked.set()
        end = time.monotonic() + AT_ONCE * 2
        while not found and time.monotonic() < end:
            time.sleep(0.01)  # noqa: ASYNC251  that is the hazard
        seen.append(alive(pids[0]))

    stage.parts.append(lambda ctx: ctx.on("x.", block))
    emit: list[Any] = []
    stage.parts.append(lambda ctx: emit.append(ctx.emit))

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            sent = session.send("go")
            assert await until(lambda: bool(pids))
            emit[0]("block")
            scope = "" if whole else f"sessions/{session.id}"
            thread = ask_in_a_thread(stage, found, blocked, scope=scope, reason="by hand")
            assert (await sent).end == "stopped"
            thread.join()
            if not whole:
                assert (await session.send("next")).end == "completed"
        assert seen == [False]

    stage.run(main)
    assert stage.receipts()
    assert next(one.end for one in stage.of(TurnEnded)) == "stopped"
    if whole:
        assert stage.kinds()[-1] == "runtime.stopped"


def test_the_control_socket_stops_the_whole_runtime(stage: Stage) -> None:
    pids = command(stage, ["sleep", "600"])
    stage.model.will([call("command")])
    found: list[quell.Receipt] = []

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            sent = session.send("go")
            assert await until(lambda: bool(pids))
            thread = ask_in_a_thread(stage, found, reason="by hand")
            assert (await sent).end == "stopped"
            thread.join()
            with pytest.raises(quell.QuellError):
                session.send("x")
        assert found[0].confirmed and not alive(pids[0])

    stage.run(main)
    assert stage.kinds()[-1] == "runtime.stopped"


def test_the_control_socket_stops_all_sessions_and_the_runtime_goes_on(stage: Stage) -> None:
    """H20."""
    gate = stage.waiting()
    stage.model.will([call("wait")])
    found: list[quell.Receipt] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        thread = ask_in_a_thread(stage, found, scope="sessions", reason="by hand")
        assert (await sent).end == "stopped"
        assert await until(lambda: bool(found))
        thread.join()
        for one in (session, await stage.open(rt)):
            assert (await one.send("next")).end == "completed"

    stage.play(main)


# -- the end of the runtime


def test_whoever_reads_gets_the_last_events_when_the_runtime_ends(stage: Stage) -> None:
    """H20."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def read(events: Any) -> str:
        kinds = [one.kind async for one in events]
        return str(kinds[-1])

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            followed = (session.send("go"), session.send("queued"), rt.follow())
            readers = [asyncio.ensure_future(read(one)) for one in followed]
            await gate.reached.wait()
        assert await asyncio.gather(*readers) == ["turn.ended", "queue.parked", "runtime.stopped"]

    stage.run(main)


def test_a_block_that_raises_ends_the_runtime_and_is_raised(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main() -> None:
        async with stage.runtime() as rt:
            (await stage.open(rt)).send("go")
            await gate.reached.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stage.run(main)
    assert stage.kinds()[-1] == "runtime.stopped"


@pytest.mark.parametrize("order", ["the first ends first", "the last ends first"])
def test_two_runtimes_on_one_loop_do_not_disturb_each_other(stage: Stage, order: str) -> None:
    async def main() -> None:
        runtimes = [stage.runtime(), stage.runtime(stage.folder / "other")]
        sessions = [await stage.open(await one.__aenter__()) for one in runtimes]
        assert [(await one.send("go")).end for one in sessions] == ["completed"] * 2
        if order == "the last ends first":
            runtimes.reverse()
            sessions.reverse()
        assert (await runtimes[0].close()).confirmed
        stage.model.will([call("shell", command="true")])
        assert (await sessions[1].send("go")).end == "completed"
        assert (await runtimes[1].close()).confirmed

    stage.run(main)


# -- while it starts


def stops_while_starting(stage: Stage, reached: Any) -> None:
    """Close the runtime at this point of its start, and start another on the same folder."""

    async def main() -> None:
        rt = stage.runtime()
        starting = asyncio.ensure_future(rt.__aenter__())
        assert await until(reached)
        async with asyncio.timeout(AT_ONCE):
            assert (await rt.close()).confirmed
            assert await outcome(starting) == "ScopeStoppedError"

    stage.run(main)


def test_a_runtime_that_is_closed_while_a_plugin_hangs_in_its_setup_leaves_nothing(stage: Stage) -> None:
    """H22, H05: nobody waits for the plugin."""
    stage.settings = quell.Settings(ask=0.3, term=0.3, plugin=600)
    reached: list[int] = []

    async def setup(ctx: PluginContext) -> None:
        process = await ctx.scope.spawn(["sleep", "600"])
        reached.append(process.pid)
        await asyncio.sleep(600)

    stage.plugins.append(Troupe(setup, "hanging"))
    stops_while_starting(stage, lambda: bool(reached))
    assert not alive(reached[0])
    stage.plugins.clear()
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("count", [0, 1, 4, 16, 32])
@pytest.mark.parametrize("how", ["cancel", "cancel twice", "close"])
def test_a_runtime_that_is_stopped_at_any_point_of_its_start_leaves_nothing(stage: Stage, count: int, how: str) -> None:
    """H22: and its folder is free for the next."""

    async def main() -> None:
        rt = stage.runtime()
        starting = asyncio.ensure_future(rt.__aenter__())
        await steps(count)
        await asyncio.sleep(count / 500)
        if how == "close":
            assert (await rt.close()).confirmed
        else:
            starting.cancel()
            if how == "cancel twice":
                await steps(1)
                starting.cancel()
        ended = await outcome(starting)
        assert ended in ("cancelled", "ScopeStoppedError", "done")
        if ended == "done":
            assert (await rt.close()).confirmed
        async with stage.runtime() as again:
            assert (await (await stage.open(again)).send("go")).end == "completed"

    stage.run(main)


def test_a_runtime_whose_folder_is_taken_refuses_and_leaves_the_other_alone(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        with pytest.raises(quell.StateInUseError):
            async with stage.runtime():
                pass
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)


def test_closing_twice_joins_and_force_cuts_it_short(stage: Stage) -> None:
    stage.settings = PATIENT
    pids = command(stage, STUBBORN)
    stage.model.will([call("command")])

    async def main() -> None:
        async with stage.runtime() as rt:
            (await stage.open(rt)).send("go")
            assert await until(lambda: bool(pids))
            first = asyncio.ensure_future(rt.close())
            await steps(3)
            async with asyncio.timeout(AT_ONCE):
                assert (await rt.close(force=True)).confirmed
                assert (await first).confirmed
        assert not alive(pids[0])

    stage.run(main)


def test_a_stop_after_the_runtime_has_ended_says_so_in_a_sentence(stage: Stage) -> None:
    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
        assert await outcome(session.stop()) in ("done", "StoreError", "ScopeStoppedError", "NoSessionError")

    stage.run(main)


def test_a_tool_that_swallows_its_cancel_holds_the_stop_no_longer_than_the_ladder(stage: Stage) -> None:
    """H18: it is named, the turn ends, and the next message is answered."""
    gate = Gate()

    async def endure(_: Mapping[str, Any], caller: Caller) -> str:
        await gate.endure()
        return "late"

    stage.tool("endure", endure)
    stage.model.will([call("endure")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        async with asyncio.timeout(AT_ONCE):
            receipt = await session.stop(reach="turn")
            assert not receipt.confirmed and "endure" in receipt.sentence()
            assert (await sent).end == "stopped"
            assert (await session.send("next")).end == "completed"
        gate.opened.set()
        await live(rt, TurnStarted)
        await steps(3)

    stage.play(main)
    assert len(stage.of(ToolEnded)) == 1
