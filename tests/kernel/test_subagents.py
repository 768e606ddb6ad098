"""Sub-agents: sessions below a call, with limits, that end with it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import quell
from quell.events import (
    ModelDelta,
    SessionClosed,
    SessionOpened,
    StopRequested,
    ToolEnded,
    ToolRefused,
    TurnEnded,
    Usage,
)
from quell.kernel.runtime import Runtime
from quell.ports import Ask, Chunk, Text
from tests.supervise.conftest import alive
from tests.supervise.loops import until

from .cast import AT_ONCE, PATIENT, Stage, call, live


def delegate(text: str = "go", agent: str = "second") -> list[Chunk]:
    return [call("agent", agent=agent, text=text)]


def two(stage: Stage) -> None:
    stage.agents = [stage.agent(), stage.agent("second")]


def test_a_sub_agent_does_its_work_and_its_answer_is_the_result(stage: Stage) -> None:
    two(stage)
    stage.model.will(delegate("count"), [Text("three")], [Text("it says three")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert (await sent).end == "completed" and sent.text == "it says three"
        assert await until(lambda: not session.children)
        assert set(rt.host.live) == {session.id}

    stage.play(main)
    parent, child = stage.of(SessionOpened)
    assert (child.parent, child.depth) == (parent.session, 1)
    assert [one.result for one in stage.of(ToolEnded)] == ["three"]
    assert [one.session for one in stage.of(SessionClosed)] == [child.session]


def test_a_sub_agent_that_fails_is_an_error_of_the_call(stage: Stage) -> None:
    async def fail(_: Ask) -> AsyncIterator[Chunk]:
        yield Text("well")
        raise ConnectionError("gone")

    two(stage)
    stage.model.will(delegate(), fail)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    (ended,) = stage.of(ToolEnded)
    assert "second" in ended.error and "gone" in ended.error


def test_an_agent_that_is_not_there_is_an_error_of_the_call(stage: Stage) -> None:
    two(stage)
    stage.model.will(delegate(agent="secnd"))

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert "did you mean second" in stage.of(ToolEnded)[0].error
    assert len(stage.of(SessionOpened)) == 1


def test_sub_agents_go_no_deeper_than_the_limit(stage: Stage) -> None:
    stage.limits = quell.Limits(depth=2)
    two(stage)
    stage.model.will(delegate(), delegate(), delegate())

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert [one.depth for one in stage.of(SessionOpened)] == [0, 1, 2]
    assert "2 deep" in stage.of(ToolEnded)[0].error


def test_no_sub_agent_goes_deeper_than_any_above_it_may(stage: Stage) -> None:
    deep = stage.agent("second", limits=quell.Limits(depth=9))
    stage.agents = [stage.agent(limits=quell.Limits(depth=1)), deep]
    stage.model.will(delegate(), delegate())

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert [one.depth for one in stage.of(SessionOpened)] == [0, 1]
    assert "1 deep" in stage.of(ToolEnded)[0].error


@pytest.mark.parametrize("limits", [{"tokens": 100}, {"cost": 1.0}])
def test_what_sub_agents_use_counts_for_whoever_waits_for_them(stage: Stage, limits: dict[str, Any]) -> None:
    stage.agents = [stage.agent(limits=quell.Limits(**limits)), stage.agent("second")]
    note = call("note", name="a")
    stage.model.will(
        [*delegate(), Usage(input=10, output=0, cost=0.1)],
        [note, Usage(input=50, output=50, cost=1.0)],
        [note, Usage(input=1, output=1)],
    )

    async def main(rt: Runtime) -> None:
        ended = await (await stage.open(rt)).send("go")
        assert ended.end == "limit" and ("110 of 100" in ended.reason or "$1.1000 of $1.0000" in ended.reason)
        assert ended.usage.input == 10  # its own

    stage.play(main)
    assert len(stage.model.asks) == 2
    (below, _) = stage.of(TurnEnded)
    assert below.end == "limit" and "which actor has with its sub-agents" in below.reason


def test_a_limit_of_cost_that_cannot_act_on_a_sub_agent_is_told(stage: Stage) -> None:
    stage.agents = [stage.agent(limits=quell.Limits(cost=0.5)), stage.agent("second")]
    stage.model.will([*delegate(), Usage(10, 5, 0.1)], [Text("here"), Usage(10, 5)], [Text("so"), Usage(10, 5, 0.1)])

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    told = [one.text for one in stage.of(ModelDelta) if one.channel == "notice"]
    assert told == ["what this model costs is not known: the limit of $0.5 of actor here has no effect"]


def test_a_session_has_no_more_sub_agents_at_a_time_than_the_limit(stage: Stage) -> None:
    gate = stage.waiting()
    stage.limits = quell.Limits(breadth=2)
    two(stage)
    stage.model.will([chunk for _ in range(3) for chunk in delegate()], [call("wait")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        error = await live(rt, ToolEnded)
        assert "2 sub-agents" in error.error
        assert len(session.children) == 2
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)


def test_a_depth_of_nothing_means_none_at_all(stage: Stage) -> None:
    stage.limits = quell.Limits(depth=0)
    two(stage)
    stage.model.will(delegate())

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert len(stage.of(SessionOpened)) == 1


def test_stopping_a_session_stops_its_sub_agents_however_deep(stage: Stage) -> None:
    """H18: each of them with a stop of its own in the log, caused by the one above."""
    stage.settings = PATIENT
    two(stage)
    stage.model.will(delegate(), delegate(), [call("shell", command="echo $$ > pid; exec sleep 600")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        path = stage.outside("pid")
        assert await until(lambda: path.exists() and path.read_text().endswith("\n"))
        spawned = next(one for one in await rt.host.journal.read() if one.kind == "process.spawned")
        async with asyncio.timeout(AT_ONCE):
            assert (await session.stop(reach="turn", reason="enough")).confirmed
            assert (await sent).end == "stopped"
        assert not alive(spawned.pid)  # type: ignore[attr-defined]
        assert await until(lambda: set(rt.host.live) == {session.id})
        assert (await session.send("next")).end == "completed"

    stage.play(main)
    assert [one.end for one in stage.of(TurnEnded)][:3] == ["stopped"] * 3
    causes = {one.seq for one in stage.of(StopRequested)}
    below = [one for one in stage.of(StopRequested) if one.source == "kernel" and one.reason == "enough"]
    assert len(below) == 2 and all(one.cause in causes for one in below)


def test_stopping_only_the_sub_agent_is_told_to_the_one_above(stage: Stage) -> None:
    gate = stage.waiting()
    two(stage)
    stage.model.will(delegate(), [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        (child,) = session.children.values()
        await child.stop(reach="turn", reason="not you")
        assert (await sent).end == "completed"

    stage.play(main)
    assert any("not you" in one.error for one in stage.of(ToolEnded))


def test_a_sub_agent_cannot_be_sent_to_once_its_call_is_over(stage: Stage) -> None:
    gate = stage.waiting()
    two(stage)
    stage.model.will(delegate(), [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        (child,) = session.children.values()
        queued = child.send("and then")
        gate.opened.set()
        assert (await sent).end == "completed"
        assert await until(lambda: child.state == "closed")
        try:
            assert (await queued).end == "stopped"
        except quell.NotAnsweredError:
            pass
        again = await rt.resume(child.id)
        assert (await again.send("on its own")).end == "completed"

    stage.play(main)
    assert not stage.of(ToolRefused)


def test_what_a_sub_agent_put_in_the_background_ends_with_it(stage: Stage) -> None:
    two(stage)
    stage.model.will(delegate(), [call("shell", command="echo $$ > pid; exec sleep 600", background=True)])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"
        spawned = next(one for one in await rt.host.journal.read() if one.kind == "process.spawned")
        assert await until(lambda: not alive(spawned.pid))  # type: ignore[attr-defined]

    stage.play(main)


def test_a_parent_that_is_closed_or_at_the_end_of_the_block_takes_its_sub_agents_along(stage: Stage) -> None:
    gate = stage.waiting()
    two(stage)
    stage.model.will(delegate(), [call("wait")], delegate(), [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        (child,) = session.children.values()
        assert (await session.close()).confirmed
        assert await until(lambda: child.gone)
        gate.reached.clear()
        (await stage.open(rt)).send("go")
        await gate.reached.wait()

    stage.play(main)
    assert [one.end for one in stage.of(TurnEnded)] == ["stopped"] * 4
