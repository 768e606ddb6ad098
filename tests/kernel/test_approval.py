"""Approvals: nothing that must be asked begins before a person said yes to exactly that."""

import asyncio
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.config import Agent, Policy
from quell.events import (
    ApprovalAnswered,
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    Extent,
    ProcessSpawned,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    ToolStarted,
)
from quell.kernel import approval, own
from quell.kernel.approval import digest, policy
from quell.kernel.bus import Bus
from quell.kernel.grants import FILE, Grants
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


# -- how far a yes goes


async def said(stage: Stage, rt: Runtime, session: quell.Session, extent: Extent | None, *names: str) -> list[str]:
    """Have these noted; what was asked is answered with a yes that goes so far, or with a no. What was asked."""
    asked: list[str] = []
    for name in names:
        stage.model.will([call("note", name=name)])
        sent, after = session.send("go"), rt.host.journal.last - 1
        async for event in rt.follow(after):
            if isinstance(event, ApprovalAsked) and event.session == session.id:
                asked.append(event.arguments["name"])
                session.approve(event.seq, extent is not None, extent=extent or "once")
            if event.kind == "turn.ended" and event.session == session.id:
                break
        assert (await sent).end == "completed"
    return asked


def test_a_yes_for_the_session_is_for_the_same_call_in_this_session_over_a_resume(stage: Stage) -> None:
    stage.approval = {}
    stage.agents = [stage.agent(), stage.agent("second")]
    names: list[str] = []

    async def first(rt: Runtime) -> None:
        session, other = await stage.open(rt), await stage.open(rt)
        names.append(session.id)
        assert await said(stage, rt, session, "session", "a", "a", "b", "a") == ["a", "b"]
        assert await said(stage, rt, other, "once", "a", "a") == ["a", "a"]
        fork = await session.fork()
        assert await said(stage, rt, fork, None, "a") == ["a"], "another session, whatever it began with"
        await session.restart()
        assert await said(stage, rt, await rt.resume(session.id), None, "a", "b", "c") == ["c"]

    async def second(rt: Runtime) -> None:
        session = await rt.resume(names[0])
        assert await said(stage, rt, session, None, "a", "b", "c") == ["c"]
        await session.use("second")
        assert await said(stage, rt, session, None, "a") == ["a"], "another agent was not meant"
        assert await said(stage, rt, session, "session", "d") == ["d"]
        await session.use("actor")
        assert await said(stage, rt, session, None, "a", "d") == ["d"]

    async def third(rt: Runtime) -> None:
        session = await rt.resume(names[0])
        assert await said(stage, rt, session, None, "a", "d") == ["d"]
        await session.use("second")
        assert await said(stage, rt, session, None, "a", "d") == ["a"]

    stage.play(first)
    stage.play(second)
    stage.play(third)
    assert not (stage.state / FILE).exists()


def test_a_yes_for_always_is_for_this_agent_in_this_folder_until_it_is_revoked(stage: Stage, tmp_path: Path) -> None:
    stage.approval = {}
    stage.agents = [
        stage.agent(),
        stage.agent("second"),
        stage.agent("never", approval={"note(name=a)": "deny"}),
    ]
    (tmp_path / "elsewhere").mkdir()
    names: list[str] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        names.append(session.id)
        assert await said(stage, rt, session, "always", "a", "a", "b") == ["a", "b"]
        never = await stage.open(rt, "never")
        assert await said(stage, rt, never, "always", "b") == ["b"]

    async def second(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert await said(stage, rt, session, None, "a", "b", "c") == ["c"]
        assert await said(stage, rt, await stage.open(rt, "second"), None, "a") == ["a"]
        assert await said(stage, rt, await rt.open("actor", tmp_path / "elsewhere"), None, "a") == ["a"]
        kept = await rt.granted()
        assert [(one.agent, one.tool, one.arguments["name"]) for one in kept] == [
            ("actor", "note", "a"),
            ("actor", "note", "b"),
            ("never", "note", "b"),
        ]
        assert {one.cwd for one in kept} == {str(stage.cwd)}
        other = Grants(str(stage.state))  # as another program would
        other.revoke(kept[1].digest[:8], 1.0)
        assert await said(stage, rt, session, None, "a", "b") == ["b"], "it acts on the next call"
        assert (await rt.revoke(kept[0].digest)).arguments == {"name": "a"}
        assert await said(stage, rt, session, None, "a") == ["a"]
        assert await said(stage, rt, await rt.resume(names[0]), None, "a") == ["a"], "also where it was said"
        with pytest.raises(quell.UsageError, match="none"):
            await rt.revoke(kept[0].digest)

    async def third(rt: Runtime) -> None:
        """Whatever was granted before, a deny is a deny."""
        assert len(await rt.granted()) == 1
        assert await said(stage, rt, await stage.open(rt, "never"), None, "b") == []

    stage.play(first)
    stage.play(second)
    started = len(stage.of(ToolStarted))
    stage.agents = [stage.agent("never", approval={"note": "deny"})]
    stage.play(third)
    assert len(stage.of(ToolStarted)) == started


def test_an_always_that_cannot_be_written_is_a_yes_for_once_and_the_person_is_told(stage: Stage) -> None:
    stage.approval = {}
    stage.state.mkdir()
    (stage.state / FILE).mkdir()

    async def main(rt: Runtime) -> None:
        assert await said(stage, rt, await stage.open(rt), "always", "a", "a") == ["a", "a"]

    stage.play(main)
    assert stage.outside("a").exists()
    told = [one for one in stage.of(ToolOutput) if one.channel == "notice"]
    assert len(told) == 2 and "allowed once, and not always" in told[0].text and FILE in told[0].text


def test_an_always_is_kept_though_a_stop_comes_right_after_it(stage: Stage) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        asked = await live(rt, ApprovalAsked)
        session.approve(asked.seq, True, extent="always")
        await session.stop()

    async def later(rt: Runtime) -> None:
        assert [one.arguments for one in await rt.granted()] == [{"name": "a"}]

    stage.play(main)
    stage.play(later)
    assert not stage.outside("a").exists() and not stage.of(ToolStarted)


@pytest.mark.parametrize(
    ("allow", "extent", "sentence"),
    [
        (True, "forever", "'once', 'session' or 'always'"),
        (True, None, "'once', 'session' or 'always'"),
        (True, ["always"], "'once', 'session' or 'always'"),
        (False, "session", "only a yes"),
        (False, "always", "only a yes"),
        ("yes", "always", "True or False"),
    ],
)
def test_an_answer_that_makes_no_sense_leaves_the_question_open(
    stage: Stage, allow: Any, extent: Any, sentence: str
) -> None:
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        asked = await live(rt, ApprovalAsked)
        with pytest.raises(quell.UsageError, match=sentence):
            session.approve(asked.seq, allow, extent=extent)
        session.approve(asked.seq, False)
        await sent
        assert not session.allowed and not session.keeping

    stage.play(main)
    assert not stage.outside("a").exists()


def test_what_is_masked_makes_no_two_calls_the_same(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A yes is for what would be done, also where its question cannot show all of it."""
    stage.approval = {}
    done: list[str] = []

    async def note(arguments: Mapping[str, Any], _: Caller) -> str:
        done.append(arguments["name"])
        return "noted"

    stage.tool("note", note)

    async def main(rt: Runtime) -> None:
        def conceals(*given: Any, **more: Any) -> Policy:
            """It becomes known as a secret when the wish is recorded, and the question is not."""
            rt.conceal("correct-horse-1")
            return policy(*given, **more)

        monkeypatch.setattr(approval, "policy", conceals)
        session = await stage.open(rt)
        assert await said(stage, rt, session, "session", "correct-horse-1") == ["***"]
        rt.conceal("correct-horse-2")
        assert await said(stage, rt, session, None, "correct-horse-2", "correct-horse-1", "***") == ["***"] * 3
        assert await said(stage, rt, session, "always", "correct-horse-1") == ["***"]

    stage.play(main)
    assert done == ["correct-horse-1", "***"]
    asked = stage.of(ApprovalAsked)
    assert asked[0].digest == digest("note", {"name": "correct-horse-1"})
    assert {one.digest for one in asked[1:]} == {digest("note", {"name": "***"})}
    assert "correct-horse" not in (stage.state / FILE).read_text()


# -- whatever raises on the way


@pytest.mark.parametrize("error", [RuntimeError("planted"), SystemExit(3)], ids=repr)
@pytest.mark.parametrize("where", ["policy", "digest", "waiter", "holds", "known"])
def test_whatever_a_checkpoint_raises_the_call_gets_its_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, where: str, error: BaseException
) -> None:
    """H35: nothing runs that was not allowed, what was asked is withdrawn, and the tool's plugin is not to blame."""
    stage.approval = {"note(x)": "allow"}  # so that it is judged in a thread

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        with monkeypatch.context() as patch:
            if where in ("policy", "digest"):
                patch.setattr(approval, where, broken)
            elif where == "waiter":
                patch.setattr(Bus, "waiter", broken)
            else:
                patch.setattr(Grants, where, broken)
            asked = await said(stage, rt, session, None, "a", "a", "a", "a") if where != "waiter" else []
            if where == "waiter":
                stage.model.will([call("note", name="a")])
                assert (await session.send("go")).end == "completed"
        assert asked == (["a"] * 4 if where in ("known", "holds") else [])
        assert "troupe" in rt.plugins.loaded and rt.plugins.loaded["troupe"].failures == 0
        assert not rt.host.journal.requests and not rt.bus._waiters

    stage.play(main)
    assert not stage.of(ToolStarted)
    refused = stage.of(ToolRefused)
    assert len(refused) == len(stage.of(ToolRequested)) and all(one.reason for one in refused)
    if where in ("policy", "digest", "waiter"):
        assert all("could not be decided" in one.reason for one in refused)
    ends = [one for one in stage.kinds() if one in ("approval.withdrawn", "tool.refused")]
    assert ends == (["approval.withdrawn", "tool.refused"] if where == "waiter" else ["tool.refused"] * 4)


def test_a_stop_need_not_wait_for_a_disk_that_hangs(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H18, H26: the look at it is on the receipt, and whatever it says then starts nothing."""
    stage.approval = {"note(name=a)": "allow"}
    stage.model.will([call("note", name="a")])
    begun, free = threading.Event(), threading.Event()

    def hangs(*given: Any, **more: Any) -> Policy:
        begun.set()
        free.wait(30)
        return "allow"

    monkeypatch.setattr(approval, "policy", hangs)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(begun.is_set)
        receipt = await session.stop()
        assert not receipt.confirmed and "approval of note" in receipt.to_json()
        assert (await sent).end == "stopped"
        free.set()
        assert await until(lambda: not [one for one in threading.enumerate() if one.name == "approval of note"])

    try:
        stage.play(main)
    finally:
        free.set()
    assert not stage.of(ToolStarted) and len(stage.of(ToolRefused)) == 1


def test_a_sub_agent_is_no_way_round_the_rules_of_whoever_asks_for_it(stage: Stage) -> None:
    """What its own agent may do without asking is asked, unless those above it may too; a yes is the sub-agent's."""
    stage.agents = [
        stage.agent(approval={"agent": "allow"}),
        stage.agent("middle", approval={"*": "allow"}),
        stage.agent("below", approval={"note": "allow"}),
        stage.agent("free", approval={"*": "allow"}),
    ]

    async def main(rt: Runtime) -> None:
        for top, expected in ("actor", 1), ("free", 0):
            stage.model.will(
                [call("agent", agent="middle", text="go")],
                [call("agent", agent="below", text="go")],
                [call("note", name=top)],
            )
            session = await stage.open(rt, top)
            sent = session.send("go")
            if expected:
                asked = await live(rt, ApprovalAsked)
                assert not stage.outside(top).exists()
                (await rt.resume(asked.session)).approve(asked.seq, True)
            await sent
            assert stage.outside(top).exists() and len(stage.of(ApprovalAsked)) == 1

    stage.play(main)


def test_all_that_an_agent_may_do_is_not_what_others_may_do_for_it(stage: Stage) -> None:
    """What it has no tool for is asked of a sub-agent, unless a rule names that tool; what is denied is denied."""
    stage.settings = quell.Settings(ask=0.3, term=0.3, approval=0.2)
    expected = {
        "bare": ({"*": "allow"}, "nobody answered within"),
        "meant": ({"*": "allow", "note": "allow"}, ""),
        "never": ({"*": "allow", "note(name=n*)": "deny"}, "the agent never, which asked for this one, may not use"),
    }
    stage.agents = [
        stage.agent("below", approval={"note": "allow"}),
        *(stage.agent(name, tools=("agent",), approval=rules) for name, (rules, _) in expected.items()),
    ]

    async def main(rt: Runtime) -> None:
        for name in expected:
            stage.model.will([call("agent", agent="below", text="go")], [call("note", name=name)])
            await (await stage.open(rt, name)).send("go")
            assert stage.outside(name).exists() == (name == "meant")

    stage.play(main)
    bare, never = (one.reason for one in stage.of(ToolRefused))
    assert bare.startswith(expected["bare"][1]) and never.startswith(expected["never"][1])


def test_calls_that_are_allowed_begin_in_their_order_however_long_that_takes_to_decide(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first has paths to be looked at, in a thread; the others have none."""
    slow = own.is_named

    def is_named(command: str, *more: Any) -> bool:
        time.sleep(0.1 if "/" in command else 0)
        return slow(command, *more)

    monkeypatch.setattr("quell.kernel.approval.is_named", is_named)
    commands = ["/bin/true first", "true second", "/bin/true third", "true fourth"]
    stage.model.will([call("shell", command=one) for one in commands])

    async def main(rt: Runtime) -> None:
        assert (await (await stage.open(rt)).send("go")).end == "completed"

    stage.play(main)
    assert [one.argv[-1] for one in stage.of(ProcessSpawned)] == commands
