"""Approvals: nothing that must be asked begins before a person said yes to exactly that."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import quell
from quell.config import Agent, Policy
from quell.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    ToolRefused,
    ToolStarted,
)
from quell.kernel.approval import digest, policy
from quell.kernel.runtime import Runtime
from quell.ports import Caller, PluginContext
from tests.supervise.loops import outcome, until

from .cast import AT_ONCE, Stage, Troupe, call, live


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, "ask"),
        ({"*": "allow"}, "allow"),
        ({"note": "deny", "*": "allow"}, "deny"),
        ({"note": "allow"}, "allow"),
        ({"other": "allow"}, "ask"),
        ({"note": "ask", "*": "deny"}, "ask"),
    ],
)
def test_the_rule_of_a_tool_is_its_own_then_that_of_all_then_ask(rules: dict[str, Policy], expected: str) -> None:
    assert policy(Agent(name="x", approval=rules), "note") == expected


def test_a_digest_is_bound_to_the_tool_and_all_of_its_arguments() -> None:
    assert digest("note", {"a": 1, "b": [1, {"c": 2, "d": 3}]}) == digest("note", {"b": [1, {"d": 3, "c": 2}], "a": 1})
    others = [digest("note", {"a": 1}), digest("note", {"a": "1"}), digest("not", {"a": 1}), digest("note", {})]
    assert len(set(others)) == 4


def test_a_tool_that_is_asked_for_waits_for_the_yes(stage: Stage) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        assert (asked.tool, asked.arguments) == ("note", {"name": "a"})
        assert asked.digest == digest("note", {"name": "a"})
        assert not stage.outside("a").exists()
        session.approve(asked.seq, True, "go ahead")
        assert (await sent).end == "completed"

    stage.play(main)
    assert stage.outside("a").exists()
    kinds = stage.kinds()
    assert kinds.index("approval.answered") < kinds.index("tool.started")


def test_a_no_is_told_to_the_model_with_its_reason(stage: Stage) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        session.approve(asked.seq, False, "not today")
        assert (await sent).end == "completed"
        (result,) = stage.model.asks[1].messages[-1].results
        assert result.failed and "not today" in result.text

    stage.play(main)
    assert not stage.outside("a").exists()
    assert [one.reason for one in stage.of(ToolRefused)] == ["not today"]


def test_a_tool_that_is_denied_is_refused_and_nobody_is_asked(stage: Stage) -> None:
    stage.approval = {"note": "deny"}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert not stage.of(ApprovalAsked) and len(stage.of(ToolRefused)) == 1


def test_no_answer_in_time_is_a_no(stage: Stage) -> None:
    stage.approval = {}
    stage.settings = quell.Settings(ask=0.3, term=0.3, approval=0.1)
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        assert (await sent).end == "completed"
        with pytest.raises(quell.UsageError, match=f"approval {asked.seq}"):
            session.approve(asked.seq, True)

    stage.play(main)
    assert not stage.outside("a").exists()
    assert "0.1 s" in stage.of(ApprovalWithdrawn)[0].reason
    assert len(stage.of(ToolRefused)) == 1


def test_an_answer_to_nothing_or_to_another_session_is_an_error_that_says_so(stage: Stage) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session, other = await stage.open(rt), await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        for who, number in ((session, 0), (session, asked.cause), (session, 10**6), (other, asked.seq)):
            with pytest.raises(quell.UsageError, match="no open approval"):
                who.approve(number, True)
        session.approve(asked.seq, True)
        with pytest.raises(quell.UsageError, match="answered"):
            session.approve(asked.seq, False)
        await sent

    stage.play(main)
    assert [one.allow for one in stage.of(ApprovalAnswered)] == [True]


@pytest.mark.parametrize("word", ["no", "false", 0, None], ids=repr)
def test_what_is_neither_yes_nor_no_is_not_a_yes(stage: Stage, word: Any) -> None:
    """H35: and the log stays readable."""
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        try:
            session.approve(asked.seq, word)
        except quell.UsageError:
            session.approve(asked.seq, False)
        assert (await sent).end == "completed"

    stage.play(main)
    assert not stage.outside("a").exists()
    assert len(stage.of(ApprovalAnswered)) == 1


def test_several_questions_of_one_step_are_answered_one_by_one(stage: Stage) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a"), call("note", name="b")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        first = await live(rt, ApprovalAsked)
        second = await live(rt, ApprovalAsked, after=first.seq)
        session.approve(second.seq, first.arguments["name"] != "a")
        session.approve(first.seq, first.arguments["name"] == "a")
        await sent

    stage.play(main)
    assert sorted(one.name for one in stage.cwd.iterdir()) == ["a"]


def test_a_handler_may_answer_what_it_hears(stage: Stage) -> None:
    """H31: the answer reaches its waiter through no queue."""
    stage.approval = {}
    sessions: list[quell.Session] = []

    async def handler(event: Event) -> None:
        sessions[0].approve(event.seq, True)

    stage.parts.append(lambda ctx: ctx.on("approval.asked", handler))
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        sessions.append(await stage.open(rt))
        async with asyncio.timeout(AT_ONCE):
            assert (await sessions[0].send("go")).end == "completed"

    stage.play(main)
    assert stage.outside("a").exists()


def test_an_approval_that_is_needed_inside_a_tool_call_does_not_lock(stage: Stage) -> None:
    """H31: a tool waits for a sub-agent, whose tool waits for a person; and a handler of the same events waits too."""
    stage.agents = [stage.agent(), stage.agent("second", approval={})]
    stage.model.will([call("agent", agent="second", text="note it")], [call("note", name="a")])
    heard: list[str] = []

    async def handler(event: Event) -> None:
        heard.append(event.session)
        await live(runtimes[0], ToolStarted, after=event.seq)

    runtimes: list[Runtime] = []
    stage.parts.append(lambda ctx: ctx.on("approval.asked", handler))

    async def main(rt: Runtime) -> None:
        runtimes.append(rt)
        session = await stage.open(rt)
        async with asyncio.timeout(AT_ONCE):
            sent = session.send("go")
            asked = await live(rt, ApprovalAsked)
            child = await rt.resume(asked.session)
            assert child is not session
            child.approve(asked.seq, True)
            assert (await sent).end == "completed"

    stage.play(main)
    assert stage.outside("a").exists() and len(heard) == 1


@pytest.mark.parametrize("where", ["approval.asked", "tool.requested", "tool.started", "tool.ended"])
def test_a_checkpoint_that_raises_still_gives_the_call_its_end(stage: Stage, where: str) -> None:
    """H35: a handler that fails three times in a row loses its plugin; the turn goes on."""

    async def handler(_: Event) -> None:
        raise RuntimeError("unexpected")

    def setup(ctx: PluginContext) -> None:
        ctx.on(where, handler)

    stage.approval = {}
    stage.plugins.append(Troupe(setup, "checkpoint"))

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for _ in range(4):
            stage.model.will([call("note", name="a")])
            after = rt.host.journal.last
            sent = session.send("go")
            asked = await live(rt, ApprovalAsked, after=after)
            session.approve(asked.seq, True)
            assert (await sent).end == "completed"
        assert await until(lambda: "checkpoint" not in rt.plugins.loaded)

    stage.play(main)


def test_the_question_is_gone_when_whoever_waits_for_it_is(stage: Stage) -> None:
    """H35: also the bus forgets the waiter."""
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await live(rt, ApprovalAsked)
        await session.close()
        assert not rt.host.journal.requests
        assert not rt.bus._waiters

    stage.play(main)
    assert len(stage.of(ApprovalWithdrawn)) == len(stage.of(ToolRefused)) == 1


def test_a_tool_that_asks_its_own_session_something_does_not_lock(stage: Stage) -> None:
    """H31: a message to its own session waits behind the turn, and is answered after it."""
    sessions: list[quell.Session] = []
    later: list[Any] = []

    async def talk(_: Mapping[str, Any], caller: Caller) -> str:
        later.append(sessions[0].send("after this"))
        return "said"

    stage.tool("talk", talk)
    stage.model.will([call("talk")])

    async def main(rt: Runtime) -> None:
        sessions.append(await stage.open(rt))
        async with asyncio.timeout(AT_ONCE):
            await sessions[0].send("go")
            assert await outcome(later[0]._end()) == "done"

    stage.play(main)
