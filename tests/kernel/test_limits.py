"""Limits of a turn, each with its own end; and long histories, which get a summary and are never rewritten."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import quell
from quell.events import ModelDelta, ModelRequested, SessionCompacted, TurnEnded, Usage
from quell.kernel.compaction import LONG, SUMMARISE
from quell.kernel.history import SUMMARY
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Chunk, Text
from tests.supervise.conftest import alive
from tests.supervise.loops import until

from .cast import Stage, call


async def ended(stage: Stage, rt: Runtime) -> TurnEnded:
    return await (await stage.open(rt)).send("go")


@pytest.mark.parametrize(
    ("limits", "word", "steps"),
    [
        ({"steps": 3}, "steps: 3", 3),
        ({"tokens": 25}, "tokens: 30 of 25", 2),
        ({"cost": 0.5}, "cost: $0.6000 of $0.5000", 3),
    ],
    ids=["steps", "tokens", "cost"],
)
def test_a_limit_ends_the_turn_and_says_which(stage: Stage, limits: dict[str, Any], word: str, steps: int) -> None:
    stage.limits = quell.Limits(**limits)
    answer: list[Chunk] = [call("note", name="a"), Usage(10, 5, 0.2)]
    stage.model.will(*[answer] * 10)

    async def main(rt: Runtime) -> None:
        end = await ended(stage, rt)
        assert (end.end, end.reason, end.steps) == ("limit", word, steps)
        assert (end.usage.input, end.usage.output) == (10 * steps, 5 * steps)
        stage.model.answers.clear()
        assert (await ended(stage, rt)).end == "completed"

    stage.play(main)
    assert len(stage.model.asks) == steps + 1


def test_a_limit_of_cost_that_cannot_act_is_told_once(stage: Stage) -> None:
    stage.limits = quell.Limits(cost=0.5)
    stage.model.will([call("note", name="a"), Usage(10, 5)], [Text("so"), Usage(10, 5)])

    async def main(rt: Runtime) -> None:
        assert (await ended(stage, rt)).end == "completed"

    stage.play(main)
    told = [one.text for one in stage.of(ModelDelta) if one.channel == "notice"]
    assert told == ["what this model costs is not known: the limit of $0.5 has no effect"]


def test_an_answer_within_the_last_step_is_an_answer(stage: Stage) -> None:
    stage.limits = quell.Limits(steps=2, tokens=15)
    stage.model.will([call("note", name="a"), Usage(5, 5)], [Text("so"), Usage(50, 50)])

    async def main(rt: Runtime) -> None:
        assert (await ended(stage, rt)).end == "completed"

    stage.play(main)


def test_a_turn_that_takes_too_long_is_ended_with_what_it_runs(stage: Stage) -> None:
    stage.limits = quell.Limits(seconds=0.4)
    stage.model.will([call("shell", command="exec sleep 600")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        queued = session.send("next")
        end = await sent
        assert (end.end, end.reason) == ("limit", "time: 0.4 s")
        spawned = next(one for one in await rt.host.journal.read() if one.kind == "process.spawned")
        assert not alive(spawned.pid)  # type: ignore[attr-defined]
        assert (await queued).end == "completed"

    stage.play(main)


def test_a_time_limit_counts_from_the_start_of_each_turn(stage: Stage) -> None:
    stage.limits = quell.Limits(seconds=0.5)

    async def slow(_: Ask) -> AsyncIterator[Chunk]:
        await asyncio.sleep(0.2)
        yield Text("well")

    stage.model.will(slow, slow, slow, slow)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sents = [session.send("go") for _ in range(4)]
        assert [(await one).end for one in sents] == ["completed"] * 4

    stage.play(main)


def test_no_limit_is_no_limit(stage: Stage) -> None:
    stage.limits = quell.Limits(steps=0, tokens=0, seconds=0, cost=0, history=0)
    answer: list[Chunk] = [call("note", name="a"), Usage(10**9, 10**9, 1e9)]
    stage.model.will(*[answer] * 60)

    async def main(rt: Runtime) -> None:
        end = await ended(stage, rt)
        assert (end.end, end.steps) == ("completed", 61)

    stage.play(main)


# -- compaction


def test_a_long_history_gets_a_summary_and_the_next_request_uses_it(stage: Stage) -> None:
    stage.limits = quell.Limits(history=100)
    stage.model.will([Text("short")], [Text("in short: we spoke")], [Text("answer")])
    ids: list[str] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        ids.append(session.id)
        await session.send("word " * 80)
        before = [one.seq for one in await rt.host.journal.read(session=session.id)]
        sent = session.send("word " * 40)
        assert (await sent).end == "completed" and sent.text == "answer"
        compact, answer = stage.model.asks[1:]
        assert compact.messages[-1].text.endswith(SUMMARISE) and "word word" in compact.messages[-1].text
        assert len(compact.messages) == 1 and not compact.tools
        assert [one.text[:60] for one in answer.messages] == [SUMMARY + "in short: we spoke", "word " * 12]
        after = [one.seq for one in await rt.host.journal.read(session=session.id)]
        assert after[: len(before)] == before
        stage.model.will([Text("and again")])
        await session.send("short")
        assert len(stage.model.asks[-1].messages) == 4

    async def again(rt: Runtime) -> None:
        session = await rt.resume(ids[0])
        await session.send("still")
        assert stage.model.asks[-1].messages[0].text == SUMMARY + "in short: we spoke"
        assert len(stage.model.asks[-1].messages) == 6

    stage.play(main)
    stage.play(again)
    (compacted,) = stage.of(SessionCompacted)
    assert compacted.summary == "in short: we spoke" and compacted.upto < compacted.seq
    assert [one.text for one in stage.of(ModelDelta) if one.channel == "notice"] == [LONG]
    assert [one.purpose for one in stage.of(ModelRequested)] == ["answer", "compact", "answer", "answer", "answer"]


def test_a_fork_of_what_came_before_a_summary_has_the_words_themselves(stage: Stage) -> None:
    stage.limits = quell.Limits(history=100)
    stage.model.will([Text("short")], [Text("the summary")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        first = await session.send("word " * 80)
        await session.send("word " * 40)
        fork = await session.fork(first.seq)
        assert [one.text[:9] for one in fork.history.messages("")] == ["word word", "short"]

    stage.play(main)


def test_a_summary_that_fails_loses_nothing_and_the_turn_goes_on(stage: Stage) -> None:
    async def fail(_: Ask) -> AsyncIterator[Chunk]:
        yield Text("well")
        raise ConnectionError("gone")

    stage.limits = quell.Limits(history=100)
    stage.model.will([Text("short")], fail)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("word " * 80)
        assert (await session.send("next")).end == "completed"
        assert session.history.messages("")[0].text == "word " * 80

    stage.play(main)
    assert not stage.of(SessionCompacted)


def test_a_stop_while_it_summarises_leaves_the_history_as_it_was(stage: Stage) -> None:
    async def hang(_: Ask) -> AsyncIterator[Chunk]:
        await asyncio.sleep(600)
        yield Text("never")

    stage.limits = quell.Limits(history=100)
    stage.model.will([Text("short")], hang)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("word " * 80)
        sent = session.send("next")
        assert await until(lambda: len(stage.model.asks) == 2)
        assert (await session.stop(reach="turn")).confirmed
        assert (await sent).end == "stopped"
        stage.model.will([Text("the summary")])
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    assert len(stage.of(SessionCompacted)) == 1


def test_a_message_that_is_long_by_itself_is_not_summarised(stage: Stage) -> None:
    """Nothing came before it, so that a summary would cost and shorten nothing."""
    stage.limits = quell.Limits(history=100)

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("word " * 200)).end == "completed"

    stage.play(main)
    assert len(stage.model.asks) == 1
