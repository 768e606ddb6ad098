"""What strangers hand in, and moments between two steps: nothing of it may break the log, a turn or a wait."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import quell
from quell.events import (
    ApprovalAsked,
    MessageDelta,
    ModelAnswered,
    SessionCompacted,
    ToolEnded,
    ToolRefused,
    ToolStarted,
    TurnEnded,
    Usage,
)
from quell.kernel.runtime import LOG, Runtime
from quell.ports import Ask, Caller, Chunk, Text
from quell.stores.sqlite import SqliteStore
from tests.supervise.conftest import alive
from tests.supervise.loops import until

from .cast import Gate, Stage, call, idle, live


@pytest.mark.parametrize("cost", [math.nan, math.inf])
def test_a_price_that_is_no_number_leaves_a_log_that_can_be_read(stage: Stage, cost: float) -> None:
    """H50: JSON has no NaN; a row with null for it would keep the runtime from ever starting again."""
    stage.model.will([Text("hello"), Usage(1, 2, cost)])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert len(stage.of(ModelAnswered)) == 1


def test_arguments_that_contain_themselves_are_recorded_in_words(stage: Stage) -> None:
    """H35: `emit` never fails, whatever a stranger hands over."""
    endless: dict[str, Any] = {"name": "a"}
    endless["again"] = endless
    stage.model.will([quell.events.ToolCall("call-note", "note", endless)])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert len(stage.of(ModelAnswered)) == 2


def test_a_thing_that_cannot_be_told_in_words_is_recorded_all_the_same(stage: Stage) -> None:
    class Mute:
        def __repr__(self) -> str:
            raise RuntimeError("no words")

    stage.model.will([call("note", name="a", other=Mute())])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)


def test_whoever_waits_for_a_message_in_the_queue_does_not_mind_that_others_are_discarded(stage: Stage) -> None:
    """H19: the parked message is dropped, the waiting one is answered."""
    gate = stage.waiting()
    stage.model.will([call("wait")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("first")
        await gate.reached.wait()
        session.send("parked")
        await session.stop(reach="turn")
        gate.reached.clear()
        session.send("second")
        await gate.reached.wait()
        last = asyncio.ensure_future(_end(session.send("last")))
        await live(rt, TurnEnded, session)
        await asyncio.sleep(0)
        session.discard()
        await rt.host.journal.flushed()
        gate.opened.set()
        assert (await last).end == "completed"

    stage.play(main)


async def _end(sent: Any) -> TurnEnded:
    return await sent  # type: ignore[no-any-return]


def test_the_events_of_a_message_end_with_its_turn_also_when_they_are_read_later(stage: Stage) -> None:
    """H36: live and from the log the same: nothing comes after the last."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        await session.stop(reach="turn")
        assert [one.kind async for one in sent][-1] == "turn.ended"

    stage.play(main)


def test_a_follower_that_was_closed_gives_nothing_more(stage: Stage) -> None:
    """H20: also if there is more in the log."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        tail = rt.follow()
        await tail.__anext__()
        tail.close()
        assert [one async for one in tail] == []

    stage.play(main)


def test_a_model_that_will_not_end_is_not_told_of_as_silent_after_its_turn(stage: Stage) -> None:
    """H41: a timer of ours that outlives the turn must not complain to the loop."""
    gate = Gate()
    stage.settings = quell.Settings(ask=0.1, term=0.1, silent=0.3)

    async def deaf(_: Ask) -> AsyncIterator[Chunk]:
        await gate.endure()
        yield Text("late")

    stage.model.will(deaf)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        await session.stop(reach="turn")
        await asyncio.sleep(0.4)  # not for luck: the time of the silence
        gate.opened.set()

    stage.play(main)


def test_a_summary_without_a_word_does_not_replace_the_history(stage: Stage) -> None:
    """A model that answers a request for a summary with nothing must not cost the conversation."""
    stage.limits = quell.Limits(history=10)
    stage.model.will([Text("I will remember the word PLUM. " * 5)], [])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("remember")
        await session.send("which word?")
        told = " ".join(one.text for one in stage.model.asks[-1].messages)
        assert "PLUM" in told or session.history.size > 10

    stage.play(main)
    assert all(one.summary for one in stage.of(SessionCompacted))


@pytest.mark.parametrize("error", [quell.StoreError("its own log"), quell.FencedError("its own fence")])
def test_a_tool_that_has_begun_is_never_called_refused(stage: Stage, error: quell.QuellError) -> None:
    """H18, H23: what it did before it raised has happened, and the model is told so."""

    async def work(_: Mapping[str, Any], caller: Caller) -> str:
        stage.outside("done").write_text("effect")
        raise error

    stage.tool("work", work)
    stage.model.will([call("work")])

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    assert stage.outside("done").exists() and len(stage.of(ToolStarted)) == 1
    assert stage.of(ToolRefused) == [] and len(stage.of(ToolEnded)) == 1


def test_a_model_that_never_waits_does_not_keep_the_loop(stage: Stage) -> None:
    """H30: a stop is heard while it streams."""

    async def flood(_: Ask) -> AsyncIterator[Chunk]:
        for _n in range(20_000):
            yield Text("x")

    stage.model.will(flood)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: session.turn is not None)
        await live(rt, quell.events.ModelRequested, session)
        await session.stop(reach="turn")
        assert (await sent).end == "stopped"

    stage.play(main)
    assert len(stage.of(MessageDelta)) < 20_000


def test_a_store_that_fails_to_close_does_not_keep_what_lives(stage: Stage) -> None:
    """H22: every later step of the end happens, whatever an earlier one raises."""

    class Sticky(SqliteStore):
        async def close(self) -> None:
            await super().close()
            raise OSError("the disk is gone")

    stage.store = Sticky
    left: list[Any] = []

    async def main() -> None:
        rt = stage.runtime()
        async with rt:
            left.append(await rt.host._above.spawn(["sleep", "600"]))
            left.append(rt)

    with pytest.raises(OSError, match="gone"):
        stage.run(main)
    assert not alive(left[0].pid)


def test_a_sub_agent_that_is_resumed_is_as_deep_as_it_was(stage: Stage) -> None:
    ids: list[str] = []

    async def ask_another(_: Mapping[str, Any], caller: Caller) -> str:
        return await caller.delegate("actor", "hello")

    stage.tool("another", ask_another)
    stage.model.will([call("another")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        ids.extend(one.id for one in await rt.sessions() if one.parent)
        await idle(session)
        assert await until(lambda: not session.children)
        assert (await rt.resume(ids[0])).depth == 1

    stage.play(main)


def test_jobs_can_be_started_again_after_somebody_stopped_them_from_outside(stage: Stage) -> None:
    async def job(_: Mapping[str, Any], caller: Caller) -> str:
        await caller.spawn(["sleep", "600"], background=True)
        return "begun"

    stage.tool("job", job)
    stage.model.will([call("job")], [Text("ok")], [call("job")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        await session.jobs_scope().stop()
        await session.send("two")
        assert len(session.jobs()) == 1

    stage.play(main)
    assert [one.error for one in stage.of(ToolEnded)] == ["", ""]


@pytest.mark.parametrize("cwd", [None, 7], ids=["none", "number"])
def test_a_folder_that_is_none_is_said_in_a_sentence(stage: Stage, cwd: Any) -> None:
    async def main(rt: Runtime) -> None:
        with pytest.raises(quell.QuellError):
            await rt.open("actor", cwd)

    stage.play(main)


@pytest.mark.parametrize("after", ["x", None], ids=["text", "none"])
def test_following_from_what_is_no_number_is_said_in_a_sentence(stage: Stage, after: Any) -> None:
    async def main(rt: Runtime) -> None:
        with pytest.raises(quell.UsageError):
            rt.follow(after)

    stage.play(main)


@pytest.mark.parametrize("wrong", [{"settings": {"asks": 1}}, {"agents": ["actor"]}], ids=["settings", "agents"])
def test_a_runtime_that_is_given_something_else_says_so_in_a_sentence(stage: Stage, wrong: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(quell.QuellError):
            async with quell.Runtime(state_dir=stage.state, **wrong):
                pass

    stage.run(main)


def test_nobody_else_can_read_the_log(stage: Stage) -> None:
    """The log has commands and their output in it."""
    modes = {}

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")
        modes.update({path.name: path.stat().st_mode & 0o077 for path in stage.state.iterdir()})

    stage.play(main)
    assert LOG in modes and not any(modes.values()), modes


def test_what_was_deleted_is_not_in_the_file_any_more(stage: Stage) -> None:
    """ "All that is left of it" is the event that says so."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("my word is XYZZYPLUGH " * 200)
        await session.delete()

    stage.play(main)
    assert b"XYZZYPLUGH" not in (stage.state / LOG).read_bytes()


def test_what_was_asked_for_is_what_is_done_though_somebody_changes_it(stage: Stage) -> None:
    """An approval is bound to the arguments that were shown."""
    stage.approval = {}
    got: list[Mapping[str, Any]] = []

    async def odd(arguments: Mapping[str, Any], caller: Caller) -> str:
        got.append(dict(arguments))
        return "x" * 1_500_000

    stage.tool("odd", odd)
    stage.model.will([call("odd", path="safe")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        async for event in session.send("go"):
            if isinstance(event, ApprovalAsked):
                event.arguments["path"] = "elsewhere"
                session.approve(event.seq, True)
        assert got == [{"path": "safe"}]

    stage.play(main)
    (ended,) = stage.of(ToolEnded)
    assert len(ended.result) < 1_100_000 and "characters left out" in ended.result


def test_an_end_of_the_runtime_that_is_begun_again_after_an_interrupt_is_told_of_once(stage: Stage) -> None:
    async def main() -> None:
        async with stage.runtime() as rt:
            again = [True]
            settled = rt.host.settled

            async def interrupted() -> None:
                if again.pop() if again else False:
                    raise KeyboardInterrupt
                await settled()

            rt.host.settled = interrupted  # type: ignore[method-assign]  # a second Ctrl+C, in this very step

    with pytest.raises(KeyboardInterrupt):
        stage.run(main)
    assert stage.kinds().count("runtime.stopping") == 1
