"""The fence: once a stop is recorded nothing of that turn starts an effect, however stubborn, late or sly it is."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

import pytest

import quell
from quell.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    ModelAnswered,
    ProcessSpawned,
    ToolEnded,
    ToolRefused,
    ToolRequested,
    ToolStarted,
)
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Caller, Chunk, Text, Thinker
from tests.supervise.conftest import alive
from tests.supervise.loops import outcome, until

from .cast import AT_ONCE, Gate, Stage, call, live, steps

How = Literal["stop", "from outside", "out of time"]
HOWS: tuple[How, ...] = ("stop", "from outside", "out of time")
WAYS = pytest.mark.parametrize("how", HOWS)


async def end(stage: Stage, session: quell.Session, how: How) -> None:
    """Stop the turn, in one of the ways in which a turn is stopped; returns when that is over."""
    sent = session.turn
    assert sent is not None
    if how == "stop":
        await session.stop(reach="turn")
    elif how == "from outside":
        path = f"sessions/{session.id}"
        ask = threading.Thread(target=lambda: quell.ask_stop(str(stage.state), scope=path, timeout=20))
        ask.start()
        assert await until(lambda: not ask.is_alive())
    await sent.over.wait()


def short(stage: Stage, how: How) -> None:
    if how == "out of time":
        stage.limits = quell.Limits(seconds=0.3)


@WAYS
def test_a_model_that_swallows_its_cancel_and_wants_a_tool_gets_none(stage: Stage, how: How) -> None:
    """H18: a tool call that arrives after the stop."""
    gate = Gate()

    async def stubborn(_: Ask) -> AsyncIterator[Chunk]:
        gate.reached.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
        yield Text("I go on.")
        yield call("note", name="late")

    short(stage, how)
    stage.model.will(stubborn)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        await end(stage, session, how)
        assert (await sent).end == ("limit" if how == "out of time" else "stopped")
        stage.model.answers.clear()
        assert (await session.send("next")).end == "completed"

    stage.play(main)
    assert not stage.outside("late").exists()
    assert not stage.of(ToolStarted)
    assert all(one.reason for one in stage.of(ToolRefused))
    assert len(stage.of(ToolRequested)) == len(stage.of(ToolRefused))


def test_a_model_that_answers_long_after_the_turn_ended_changes_nothing(stage: Stage) -> None:
    """H18: when it wakes up, the turn is over."""
    gate = Gate()

    async def stubborn(_: Ask) -> AsyncIterator[Chunk]:
        await gate.endure()
        yield Text("I go on.")
        yield call("note", name="late")

    stage.model.will(stubborn)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        receipt = await session.stop(reach="turn")
        assert not receipt.confirmed
        assert (await sent).end == "stopped"
        before = rt.host.journal.last
        gate.opened.set()
        await steps(20)
        assert rt.host.journal.last == before
        assert (await session.send("next")).end == "completed"

    stage.play(main)
    assert not stage.outside("late").exists()
    assert len(stage.of(ModelAnswered)) == 1


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
@WAYS
def test_a_tool_that_swallows_its_cancel_cannot_spawn_any_more(stage: Stage, how: How, background: bool) -> None:
    """H18: compared where processes are spawned."""
    gate = Gate()
    raised: list[BaseException] = []

    async def again(arguments: Mapping[str, Any], caller: Caller) -> str:
        gate.reached.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
        for _ in range(3):
            try:
                await caller.spawn(["sh", "-c", "touch late; sleep 600"], background=background)
            except quell.QuellError as error:
                raised.append(error)
        return "never"

    short(stage, how)
    stage.tool("again", again)
    stage.model.will([call("again")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        await end(stage, session, how)
        assert await until(lambda: len(raised) == 3)
        assert not session.jobs()

    stage.play(main)
    assert not stage.outside("late").exists()
    assert not stage.of(ProcessSpawned)
    assert len(stage.of(ToolEnded)) + len(stage.of(ToolRefused)) == 1


@pytest.mark.parametrize("background", [False, True], ids=["foreground", "background"])
def test_a_spawn_that_was_under_way_when_the_stop_came_leaves_nothing(stage: Stage, background: bool) -> None:
    """H18: also one that a task of the tool waits for, which is asked to end after the tool itself."""
    pids: list[int] = []

    async def spawn(_: Mapping[str, Any], caller: Caller) -> str:
        async def one() -> None:
            pids.append((await caller.spawn(["sleep", "600"], background=background)).pid)

        task = asyncio.ensure_future(one())
        reached.set()
        try:
            await asyncio.sleep(600)
        finally:
            await asyncio.wait([task])
        return ""

    reached = asyncio.Event()
    stage.tool("spawn", spawn)

    async def main(rt: Runtime) -> None:
        for count in range(8):
            reached.clear()
            session = await stage.open(rt)
            stage.model.answers.clear()
            stage.model.will([call("spawn")])
            session.send("go")
            await reached.wait()
            await steps(count)
            before = len(session.jobs())
            await session.stop(reach="turn")
            assert len(session.jobs()) <= before, count
            await session.close()

    stage.play(main)
    assert not any(alive(pid) for pid in pids)


@WAYS
def test_a_caller_that_is_used_after_its_turn_does_nothing(stage: Stage, how: How) -> None:
    """H18: a handler that wakes up later, with what a tool left it."""
    gate = stage.waiting()
    short(stage, how)
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("wait")])
    woken, outcomes = asyncio.Event(), []

    async def handler(_: Event) -> None:
        await woken.wait()
        (caller,) = stage.tools["wait"].callers
        outcomes.append(await outcome(caller.spawn(["touch", "late"])))
        outcomes.append(await outcome(caller.spawn(["touch", "late"], background=True)))
        outcomes.append(await outcome(caller.delegate("second", "go")))
        try:
            caller.output("late")
        except quell.QuellError as error:
            outcomes.append(type(error).__name__)
        try:
            caller.scope.task(asyncio.sleep(0))
        except quell.QuellError as error:
            outcomes.append(type(error).__name__)

    stage.parts.append(lambda ctx: ctx.on("tool.started", handler))

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        await end(stage, session, how)
        await session.send("next")
        woken.set()
        assert await until(lambda: len(outcomes) == 5)
        assert not session.jobs() and not session.children

    stage.play(main)
    assert outcomes == ["FencedError"] * 4 + ["ScopeStoppedError"]
    assert not stage.outside("late").exists()
    assert len(stage.of(ToolEnded)) == 1


def test_a_caller_that_is_used_after_its_call_though_the_turn_goes_on_starts_nothing(stage: Stage) -> None:
    """H18: what a call starts belongs to the call; after its end there is no owner."""
    gate = stage.waiting()

    async def quick(_: Mapping[str, Any], caller: Caller) -> str:
        return "quick"

    stage.tool("quick", quick)
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("quick")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        (caller,) = stage.tools["quick"].callers
        for attempt in (
            caller.spawn(["touch", "late"]),
            caller.spawn(["touch", "late"], background=True),
            caller.delegate("second", "go"),
        ):
            assert await outcome(attempt) in ("FencedError", "ScopeStoppedError")
        gate.opened.set()
        await sent

    stage.play(main)
    assert not stage.outside("late").exists()


def test_an_approval_answered_after_the_stop_is_refused_and_starts_nothing(stage: Stage) -> None:
    """H18: the question was withdrawn in the step in which the stop was recorded."""
    stage.approval = {}
    stage.model.will([call("note", name="late")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        stopping = asyncio.ensure_future(session.stop(reach="turn", reason="no more"))
        await steps(1)
        with pytest.raises(quell.UsageError, match="withdrawn"):
            session.approve(asked.seq, True)
        await stopping
        with pytest.raises(quell.UsageError, match="withdrawn"):
            session.approve(asked.seq, True)
        assert (await sent).end == "stopped"

    stage.play(main)
    assert not stage.outside("late").exists()
    (withdrawn,), (refused,) = stage.of(ApprovalWithdrawn), stage.of(ToolRefused)
    assert "no more" in withdrawn.reason and "no more" in refused.reason


def test_an_approval_answered_in_the_step_before_the_stop_starts_nothing(stage: Stage) -> None:
    """H18: it was allowed, and then it was stopped."""
    stage.approval = {}
    stage.model.will([call("note", name="late")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        session.approve(asked.seq, True)
        await session.stop(reach="turn")
        assert (await sent).end == "stopped"

    stage.play(main)
    assert not stage.outside("late").exists()
    assert len(stage.of(ToolRefused)) == 1


@pytest.mark.parametrize("count", range(0, 16, 3))
def test_an_approval_answered_around_the_stop_is_one_or_the_other(stage: Stage, count: int) -> None:
    """H18: whichever step the stop falls into, the log tells one story (it is checked after every test)."""
    stage.approval = {}
    stage.model.will([call("note", name="late")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        session.approve(asked.seq, True)
        await steps(count)
        await session.stop(reach="turn")
        await sent

    stage.play(main)
    assert stage.outside("late").exists() <= bool(stage.of(ToolStarted))


def test_a_strategy_that_goes_on_after_the_stop_cannot_ask_the_model(stage: Stage) -> None:
    """H18: a model request costs money: it is an effect."""
    asked: list[str] = []

    reached = asyncio.Event()

    class Stubborn:
        async def next(self, thinker: Thinker) -> Any:
            reached.set()
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
            asked.append(await outcome(thinker.ask(thinker.messages, [], speak=True)))
            return await thinker.ask(thinker.messages, [], speak=True)

    stage.parts.append(lambda ctx: ctx.strategy("stubborn", Stubborn()))
    stage.agents = [stage.agent(strategy="stubborn")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await reached.wait()
        assert (await session.stop(reach="turn")).confirmed
        assert (await sent).end == "stopped"

    stage.play(main)
    assert asked == ["FencedError"]
    assert not stage.model.asks


def test_a_queued_message_does_not_start_after_the_stop(stage: Stage) -> None:
    """H18, H19."""
    gate = stage.waiting()
    stage.model.will([call("wait")], [call("note", name="late")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        session.send("and this")
        await session.stop(reach="turn")
        await steps(20)
        assert session.turn is None and len(session.parked) == 1

    stage.play(main)
    assert not stage.outside("late").exists()


def test_calls_of_one_step_of_which_one_stops_the_turn_all_end_once(stage: Stage) -> None:
    """H18: those that had not begun are refused."""
    sessions: list[quell.Session] = []

    async def suicide(_: Mapping[str, Any], caller: Caller) -> str:
        await sessions[0].stop(reach="turn")
        return "never"

    stage.tool("suicide", suicide)
    stage.agents = [stage.agent(approval={"suicide": "allow"})]
    stage.model.will([call("suicide"), *(call("note", name=f"late {n}") for n in range(3))])

    async def main(rt: Runtime) -> None:
        sessions.append(await stage.open(rt))
        async with asyncio.timeout(AT_ONCE):
            assert (await sessions[0].send("go")).end == "stopped"

    stage.play(main)
    assert not list(stage.cwd.iterdir())
    assert len(stage.of(ToolRefused)) == 3 and len(stage.of(ApprovalWithdrawn)) == 3
    assert all("stop" in one.reason for one in stage.of(ToolRefused))


def test_a_tool_that_the_stop_finds_between_intent_and_effect_never_begins(stage: Stage) -> None:
    """H18: its intent is on its way to the disk when the stop comes."""
    entered: list[int] = []

    async def body(_: Mapping[str, Any], caller: Caller) -> str:
        entered.append(session_epoch())
        return ""

    def session_epoch() -> int:
        return sessions[0].epoch

    sessions: list[quell.Session] = []
    stage.tool("body", body)

    async def main(rt: Runtime) -> None:
        for count in range(30):
            session = await stage.open(rt)
            sessions[:] = [session]
            stage.model.answers.clear()
            stage.model.will([call("body")])
            session.send("go")
            await steps(count)
            done = session.begin_stop("turn", "now")
            fenced = session.epoch
            await done.wait()
            assert fenced not in entered
            await session.close()

    stage.play(main)


def test_a_sub_agent_of_a_stopped_turn_is_behind_the_same_fence(stage: Stage) -> None:
    """H18: what it would have done next is not done."""
    gate = Gate()

    async def stubborn(_: Ask) -> AsyncIterator[Chunk]:
        gate.reached.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
        yield call("note", name="late")

    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("agent", agent="second", text="go")], stubborn)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        await session.stop(reach="turn")
        assert (await sent).end == "stopped"
        assert await until(lambda: not session.children)

    stage.play(main)
    assert not stage.outside("late").exists()
