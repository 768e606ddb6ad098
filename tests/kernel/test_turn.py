"""A turn: its events in order, and how it ends whatever the model or a tool does."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

import quell
from quell.events import (
    MessageDone,
    ModelDelta,
    ModelFailed,
    ToolCall,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    TurnEnded,
)
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Caller, Chunk, Message, Notice, PluginContext, Reasoning, Text, Whose
from tests.supervise.conftest import alive
from tests.supervise.loops import LOOPS
from tests.supervise.owned import MakeLoop

from .cast import AT_ONCE, Gate, Stage, call, live, steps

ON_EVERY_LOOP = pytest.mark.parametrize("make", LOOPS.values(), ids=LOOPS)


@ON_EVERY_LOOP
def test_the_example_works_as_it_is_written(stage: Stage, make: MakeLoop) -> None:
    async def main() -> None:
        async with quell.Runtime(state_dir=stage.state) as rt:
            session = await rt.open(agent="scripted", cwd=stage.cwd)
            events = [event async for event in session.send("$ echo hello")]
            receipt = await session.stop()
        assert receipt.confirmed
        assert [one.text.strip() for one in events if isinstance(one, ToolOutput)] == ["hello"]

    stage.run(main, make)


def test_the_events_of_a_turn_come_in_order(stage: Stage) -> None:
    stage.model.will([Text("I look. "), call("note", name="a")], [Text("All "), Text("done.")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        seen = [event async for event in sent]
        assert [one.kind for one in seen] == [
            "message.user",
            "turn.started",
            "model.requested",
            "message.delta",
            "model.answered",
            "tool.requested",
            "tool.started",
            "tool.ended",
            "model.requested",
            "message.delta",
            "message.delta",
            "model.answered",
            "message.done",
            "turn.ended",
        ]
        assert [one.seq for one in seen] == sorted(one.seq for one in seen)
        ended = seen[-1]
        assert isinstance(ended, TurnEnded) and (ended.end, ended.steps) == ("completed", 2)
        assert sent.text == "All done."
        assert await sent == ended

    stage.play(main)


def test_a_model_is_told_what_its_tools_did(stage: Stage) -> None:
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert [one.role for one in stage.model.asks[1].messages] == ["user", "assistant", "tool"]
        assert stage.model.asks[1].messages[2].results[0].text == "noted"

    stage.play(main)


def test_reasoning_and_notices_are_shown_and_are_no_part_of_the_answer(stage: Stage) -> None:
    stage.model.will([Reasoning("hm"), Notice("again"), Text("yes")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await sent
        assert sent.text == "yes"

    stage.play(main)
    assert [(one.channel, one.text) for one in stage.of(ModelDelta)] == [("reasoning", "hm"), ("notice", "again")]


def test_calls_of_one_step_run_at_the_same_time(stage: Stage) -> None:
    barrier = asyncio.Barrier(3)

    async def meet(_: Mapping[str, Any], caller: Caller) -> str:
        async with asyncio.timeout(AT_ONCE):
            await barrier.wait()
        return "met"

    stage.tool("meet", meet)
    stage.model.will([ToolCall(f"call-{n}", "meet") for n in range(3)])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert [one.result for one in stage.of(ToolEnded)] == ["met"] * 3


def test_an_unknown_tool_is_refused_and_the_model_goes_on(stage: Stage) -> None:
    stage.model.will([call("nonsense")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    (refused,) = stage.of(ToolRefused)
    assert "nonsense" in refused.reason and "note" in refused.reason


def test_a_tool_that_the_agent_has_not_is_refused_though_it_is_there(stage: Stage) -> None:
    stage.agents = [stage.agent(tools=("shell",))]
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")

    stage.play(main)
    assert len(stage.of(ToolRefused)) == 1
    assert not stage.outside("a").exists()


def test_wrong_arguments_are_a_result_that_says_what_is_wrong(stage: Stage) -> None:
    stage.model.will([call("shell", line="true")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    (ended,) = stage.of(ToolEnded)
    assert "command" in ended.error


class Odd(Exception):
    def __str__(self) -> str:
        raise ValueError("it has no words")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        asyncio.CancelledError(),
        StopAsyncIteration(),
        TimeoutError(),
        quell.FencedError("x"),
        quell.StoreError("x"),
        Odd(),
        FileNotFoundError(2, "none", "\udcff"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_whatever_a_tool_raises_its_call_ends_once_and_the_turn_goes_on(stage: Stage, error: BaseException) -> None:
    """H35: also an exit, a cancel from inside, and our own errors raised by a stranger."""

    async def fail(_: Mapping[str, Any], caller: Caller) -> str:
        raise error

    stage.tool("fail", fail)
    stage.model.will([call("fail")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    words = [one.error for one in stage.of(ToolEnded)] + [one.reason for one in stage.of(ToolRefused)]
    assert len(words) == 1 and words[0]


@pytest.mark.parametrize("result", [None, 7, b"bytes", "\udcff", {"a": 1}], ids=repr)
def test_a_result_that_is_no_text_gets_its_call_an_end_and_the_log_stays_readable(stage: Stage, result: Any) -> None:
    """H35, H64: what a stranger returns is not always what it promised."""

    async def odd(_: Mapping[str, Any], caller: Caller) -> str:
        return result  # type: ignore[no-any-return]  # as strangers do

    stage.tool("odd", odd)
    stage.model.will([call("odd")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"
        assert len(await session.export()) > 0

    stage.play(main)
    assert len(stage.of(ToolEnded)) == 1


@pytest.mark.parametrize(
    "chunk",
    [
        Text("\udcff"),
        Text(None),  # type: ignore[arg-type]
        ToolCall("1", "note", {"name": "\udcff"}),
        ToolCall("1", "note", ["name"]),  # type: ignore[arg-type]
        ToolCall("1", "note", None),  # type: ignore[arg-type]
        ToolCall(None, "note", {"name": "a"}),  # type: ignore[arg-type]
        ToolCall("1", "note", {"name": object()}),
        Reasoning("\udcff"),
        quell.Agent(name="no chunk at all"),
    ],
    ids=repr,
)
def test_whatever_a_model_streams_its_request_ends_and_the_log_stays_readable(stage: Stage, chunk: Any) -> None:
    """H35, H64: models write half a character, and arguments that are no object."""
    stage.model.will([chunk])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    assert stage.kinds().count("turn.ended") == 2


@pytest.mark.parametrize(
    "error",
    [ConnectionError("gone"), SystemExit(3), asyncio.CancelledError(), Odd()],
    ids=lambda one: type(one).__name__,
)
def test_whatever_a_model_raises_fails_its_request_and_the_turn_alone(stage: Stage, error: BaseException) -> None:
    """H35: an exit in a plugin is not the end of the runtime."""

    async def fail(_: Ask) -> AsyncIterator[Chunk]:
        yield Text("well")
        raise error

    stage.model.will(fail)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "failed"
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    (failed,) = stage.of(ModelFailed)
    assert failed.error


class Bare:
    """An iterator that cannot be closed."""

    def __init__(self) -> None:
        self.left = [Text("so "), Text("be it")]

    def __aiter__(self) -> "Bare":
        return self

    async def __anext__(self) -> Chunk:
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop(0)


def test_a_model_whose_iterator_cannot_be_closed_answers_all_the_same(stage: Stage) -> None:
    class Plain:
        def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
            return Bare()

    stage.parts.append(lambda ctx: ctx.model("plain", Plain))
    stage.agents = [stage.agent("plain", model="plain")]

    async def main(rt: Runtime) -> None:
        sent = (await stage.open(rt, "plain")).send("go")
        assert (await sent).end == "completed" and sent.text == "so be it"

    stage.play(main)


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)], ids=lambda one: type(one).__name__)
def test_whatever_a_strategy_raises_fails_the_turn_alone(stage: Stage, error: BaseException) -> None:
    """H35."""

    class Bad:
        async def next(self, thinker: object) -> Any:
            raise error

    stage.parts.append(lambda ctx: ctx.strategy("bad", Bad()))
    stage.agents = [stage.agent(strategy="bad")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        ended = await session.send("go")
        assert ended.end == "failed" and type(error).__name__ in ended.reason

    stage.play(main)


def test_a_model_that_cannot_be_made_fails_the_turn_with_its_words(stage: Stage) -> None:
    def make() -> Any:
        raise ImportError("no such library")

    stage.parts.append(lambda ctx: ctx.model("absent", make))
    stage.agents = [stage.agent("lost", model="absent")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "lost")
        ended = await session.send("go")
        assert ended.end == "failed" and "no such library" in ended.reason

    stage.play(main)


def test_what_a_call_started_ends_with_it(stage: Stage) -> None:
    found: list[int] = []

    async def leave(_: Mapping[str, Any], caller: Caller) -> str:
        process = await caller.spawn(["sleep", "600"])
        found.append(process.pid)
        caller.scope.task(asyncio.sleep(600))
        return "left"

    stage.tool("leave", leave)
    stage.model.will([call("leave")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert not alive(found[0])

    stage.play(main)


def test_a_tool_that_says_nothing_for_long_is_noticed(stage: Stage) -> None:
    gate = stage.waiting()
    stage.settings = quell.Settings(ask=0.3, term=0.3, silent=0.05)
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        noticed = await live(rt, ToolOutput)
        assert noticed.channel == "notice" and "wait" in noticed.text
        gate.opened.set()
        await sent

    stage.play(main)


def test_a_tool_in_a_thread_that_will_not_end_is_named_and_the_receipt_is_unconfirmed(stage: Stage) -> None:
    """H26: a thread cannot be cancelled, so nobody may say that it was."""
    free, entered = threading.Event(), threading.Event()

    def block() -> str:
        """Blocks."""
        entered.set()
        free.wait(AT_ONCE * 2)
        return "late"

    stage.parts.append(lambda ctx: ctx.tool(block))
    stage.agents = [stage.agent(tools=("block",))]
    stage.model.will([call("block")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await asyncio.get_running_loop().run_in_executor(None, entered.wait, AT_ONCE)
        receipt = await session.stop(reach="turn")
        assert not receipt.confirmed
        assert "block" in receipt.sentence()
        assert (await sent).end == "stopped"
        free.set()

    stage.play(main)
    (ended,) = stage.of(ToolEnded)
    assert ended.error.startswith("stopped") and not ended.result


def test_a_result_that_comes_after_the_turn_ended_changes_nothing(stage: Stage) -> None:
    """H18: it is not recorded, and the loop does not complain."""
    gate, over = Gate(), asyncio.Event()

    async def endure(_: Mapping[str, Any], caller: Caller) -> str:
        await gate.endure()
        try:
            caller.output("late")
        finally:
            over.set()
        return "late"

    stage.tool("endure", endure)
    stage.model.will([call("endure")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        receipt = await session.stop(reach="turn")
        assert not receipt.confirmed
        await sent
        before = rt.host.journal.last
        gate.opened.set()
        await over.wait()
        await steps(5)
        assert rt.host.journal.last == before

    stage.play(main)


def test_memories_are_recalled_recorded_and_told_to_the_model(stage: Stage) -> None:
    class Planted:
        async def store(self, whose: Whose, text: str) -> None: ...

        async def recall(self, whose: Whose, query: str, limit: int) -> list[str]:
            return [f"{query} was here before"]

    stage.parts.append(lambda ctx: ctx.memory("planted", Planted()))
    stage.agents = [stage.agent(memory="planted", system="Be kind.")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("somebody")

    stage.play(main)
    assert stage.model.asks[0].messages[0] == Message("system", "Be kind.\nYou remember:\nsomebody was here before")
    assert stage.kinds().count("memory.recalled") == 1


def test_an_empty_answer_is_an_answer(stage: Stage) -> None:
    stage.model.will([])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert [one.text for one in stage.of(MessageDone)] == [""]


def test_a_tool_that_went_with_its_plugin_is_told_to_the_model(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")], [call("brought")])

    async def brought() -> str:
        """Is brought by a plugin."""
        return "here"

    class Bringer:
        name = "bringer"

        def setup(self, ctx: PluginContext) -> None:
            ctx.tool(brought)

    stage.plugins.append(Bringer())
    stage.agents = [stage.agent(tools=("wait", "brought"))]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        await rt.plugins.unload("bringer")
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)
    assert "brought" in stage.of(ToolEnded)[-1].error


def test_a_tool_that_blocks_the_loop_for_a_moment_delays_and_breaks_nothing(stage: Stage) -> None:
    async def block(_: Mapping[str, Any], caller: Caller) -> str:
        time.sleep(0.2)  # noqa: ASYNC251  that is the fault
        return "slept"

    stage.tool("block", block)
    stage.model.will([call("block")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
