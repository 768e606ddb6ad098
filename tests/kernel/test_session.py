"""A session: one turn at a time, a queue, forks, resumes, exports, deletion."""

import asyncio
import gc
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.events import (
    Event,
    MessageUser,
    SessionDeleted,
    SessionForked,
    SessionOpened,
    TurnEnded,
    TurnStarted,
)
from quell.kernel.runtime import Runtime
from quell.ports import Caller, Text
from tests.supervise.loops import outcome, until

from .cast import AT_ONCE, PATIENT, Gate, Stage, call, idle, live, steps


def texts(stage: Stage, number: int = -1) -> list[str]:
    """What a model was told by people and by itself, in one request."""
    return [one.text for one in stage.model.asks[number].messages]


def test_messages_sent_while_it_is_busy_are_answered_in_order_one_turn_each(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")], [Text("first")], [Text("second")], [Text("third")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sents = [session.send(f"message {n}") for n in range(3)]
        await gate.reached.wait()
        assert [one.text for one in session.waiting] == ["message 1", "message 2"]
        assert session.state == "running"
        gate.opened.set()
        for sent in sents:
            await sent
        assert [one.text for one in sents] == ["first", "second", "third"]
        causes = [(one.turn, one.cause) for one in await rt.host.journal.read() if isinstance(one, TurnStarted)]
        assert causes == [(n + 1, one.message.seq) for n, one in enumerate(sents)]

    stage.play(main)


def test_who_has_seen_the_last_event_finds_the_session_ready_for_the_next_message(stage: Stage) -> None:
    """Else a stop right after the next `send` parks it, instead of ending its turn."""
    stage.model.will(*[[Text("answer")]] * 20)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for n in range(20):
            async for _ in session.send(f"message {n}"):
                pass
            assert session.state == "idle"

    stage.play(main)


def test_letting_go_of_the_events_cancels_nothing(stage: Stage) -> None:
    """H20: a client that closes its tab has not pressed Stop."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)

        sent = session.send("go")

        async def client() -> None:
            async for _ in sent:
                pass

        task = asyncio.ensure_future(client())
        await gate.reached.wait()
        task.cancel()
        assert await outcome(task) == "cancelled"
        for events in (sent, session.follow()):
            async for _ in events:
                break
        gc.collect()
        await steps(5)
        gate.opened.set()
        ended = await live(rt, TurnEnded)
        assert ended.end == "completed"

    stage.play(main)


def test_a_cancelled_await_of_a_message_cancels_nothing(stage: Stage) -> None:
    """H20."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        task = asyncio.ensure_future(sent._end())
        await gate.reached.wait()
        task.cancel()
        assert await outcome(task) == "cancelled"
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)


def test_an_accepted_message_is_on_disk(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("keep me")
        message = await sent.accepted()
        assert message in stage.events()
        await sent

    stage.play(main)


def test_a_session_is_on_disk_when_it_is_handed_over(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, title="mine")
        opened = next(one for one in stage.events() if isinstance(one, SessionOpened))
        assert (opened.session, opened.title, opened.agent) == (session.id, "mine", "actor")

    stage.play(main)


@pytest.mark.parametrize("count", range(4))
def test_a_session_whose_asker_was_cancelled_is_closed_again(stage: Stage, count: int) -> None:
    async def main(rt: Runtime) -> None:
        task = asyncio.ensure_future(stage.open(rt))
        await steps(count)
        task.cancel()
        how = await outcome(task)
        if how == "cancelled":
            assert await until(lambda: not rt.host.live)

    stage.play(main)


@pytest.mark.parametrize("what", [None, 7, b"x"], ids=str)
def test_what_is_no_text_is_refused_before_it_reaches_the_log(stage: Stage, what: Any) -> None:
    """H35, H64: a row that cannot be read would keep the runtime from ever starting again."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        with pytest.raises(quell.UsageError):
            session.send(what)
        for coroutine in (session.rename(what), stage.open(rt, title=what), session.stop(reason=what)):
            with pytest.raises(quell.UsageError):
                await coroutine
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]


def test_half_a_character_from_a_terminal_is_taken_or_refused_and_breaks_nothing(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        try:
            await session.send("\udcff")
        except quell.QuellError:
            pass
        assert (await session.send("go")).end == "completed"

    stage.play(main)


def test_a_session_needs_a_folder_an_agent_and_a_runtime_that_runs(stage: Stage) -> None:
    async def main() -> None:
        rt = stage.runtime()
        with pytest.raises(quell.ScopeStoppedError):
            await stage.open(rt)
        async with rt:
            with pytest.raises(quell.UsageError, match="not a folder"):
                await rt.open("actor", stage.folder / "nowhere")
            with pytest.raises(quell.UsageError, match="did you mean actor"):
                await rt.open("actors", stage.cwd)
            session = await stage.open(rt)
        with pytest.raises(quell.ScopeStoppedError):
            await stage.open(rt)
        with pytest.raises(quell.QuellError):
            session.send("too late")

    stage.run(main)


# -- forks


def test_a_fork_has_the_history_and_goes_its_own_way(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt, title="origin")
        await origin.send("one")
        fork = await origin.fork()
        await fork.send("two")
        assert texts(stage) == ["one", "done", "two"]
        await origin.send("three")
        assert texts(stage) == ["one", "done", "three"]
        assert fork.title == "origin"

    stage.play(main)


def test_a_fork_of_a_running_session_has_what_was_before_the_turn(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([Text("first")], [call("wait")])

    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("one")
        sent = origin.send("two")
        await gate.reached.wait()
        fork = await origin.fork()
        await fork.send("other")
        assert texts(stage) == ["one", "first", "other"]
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)


def test_a_fork_of_a_fork_has_both_histories_also_after_a_restart(stage: Stage) -> None:
    ids: list[str] = []

    async def first(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("one")
        fork = await origin.fork()
        await fork.send("two")
        await origin.send("not seen")
        again = await fork.fork()
        await again.send("three")
        assert texts(stage) == ["one", "done", "two", "done", "three"]
        ids.append(again.id)

    async def second(rt: Runtime) -> None:
        again = await rt.resume(ids[0])
        await again.send("four")
        assert texts(stage) == ["one", "done", "two", "done", "three", "done", "four"]

    stage.play(first)
    stage.play(second)


def test_a_fork_reaches_to_the_event_that_was_named(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        first = await origin.send("one")
        await origin.send("two")
        fork = await origin.fork(first.seq)
        await fork.send("other")
        assert texts(stage) == ["one", "done", "other"]

    stage.play(main)


@pytest.mark.parametrize("upto", [-1, 10**9, "3", None.__class__], ids=str)
def test_a_fork_of_what_has_not_happened_is_refused(stage: Stage, upto: Any) -> None:
    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("one")
        with pytest.raises(quell.UsageError):
            await origin.fork(upto)
        assert len(await rt.sessions()) == 1

    stage.play(main)


# -- resuming, renaming, listing, exporting


def test_a_session_is_resumed_after_a_restart_as_it_was_left(stage: Stage) -> None:
    ids: list[str] = []

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt, title="before")
        await session.send("one")
        await session.rename("after")
        ids.append(session.id)

    async def second(rt: Runtime) -> None:
        both = await asyncio.gather(rt.resume(ids[0]), rt.resume(ids[0]))
        session = both[0]
        assert both[1] is session and await rt.resume(ids[0]) is session
        assert (session.title, session.turns, session.state) == ("after", 1, "idle")
        await session.send("two")
        assert texts(stage) == ["one", "done", "two"]
        assert [(one.id, one.title, one.state) for one in await rt.sessions()] == [(session.id, "after", "idle")]
        with pytest.raises(quell.NoSessionError):
            await rt.resume("nobody")

    stage.play(first)
    stage.play(second)
    assert [one.turn for one in stage.of(TurnStarted)] == [1, 2]


def test_a_closed_session_takes_nothing_and_can_be_resumed(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        assert (await session.close()).confirmed
        assert session.state == "closed"
        with pytest.raises(quell.NoSessionError, match="resume"):
            session.send("two")
        again = await rt.resume(session.id)
        await again.send("two")
        assert texts(stage) == ["one", "done", "two"]

    stage.play(main)


def test_a_session_that_is_being_closed_is_resumed_when_that_is_done(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        closing = asyncio.ensure_future(session.close())
        await steps(1)
        again = await rt.resume(session.id)
        assert (await again.send("two")).end == "completed"
        await closing

    stage.play(main)


def test_an_export_tells_the_whole_session_in_both_forms(stage: Stage) -> None:
    stage.model.will([call("note", name="a")], [Text("It is noted.")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, title="Notes")
        await session.send("please note")
        lines = [json.loads(line) for line in (await session.export("jsonl")).splitlines()]
        assert [one["kind"] for one in lines if "delta" not in one["kind"]] == [
            one.kind for one in stage.events() if one.session == session.id and "delta" not in one.kind
        ]
        page = await session.export("markdown")
        assert all(words in page for words in ("Notes", "please note", "It is noted.", "noted"))
        with pytest.raises(quell.UsageError, match="markdown"):
            await session.export("pdf")  # type: ignore[arg-type]

    stage.play(main)


def test_an_export_of_a_fork_tells_what_it_began_with(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("the beginning")
        fork = await origin.fork()
        await fork.send("the rest")
        assert "the beginning" in await fork.export("markdown")

    stage.play(main)


# -- deleting


def test_who_names_an_agent_does_not_fail_with_whoever_names_none(stage: Stage) -> None:
    """While both ask for a session whose agent is gone."""
    stage.agents = [stage.agent(), stage.agent("old")]

    async def first(rt: Runtime) -> None:
        names.append((await stage.open(rt, "old")).id)

    async def second(rt: Runtime) -> None:
        ways = rt.resume(names[0]), rt.resume(names[0], agent="actor"), rt.resume(names[0], model="actor")
        plain, named, other = await asyncio.gather(*ways, return_exceptions=True)
        assert isinstance(plain, quell.UsageError) and "'old'" in str(plain)
        assert isinstance(named, quell.Session) and named.agent.name == "actor" and named is other

    names: list[str] = []
    stage.play(first)
    stage.agents = [stage.agent()]
    stage.play(second)


def test_deleting_a_live_session_stops_it_first_and_leaves_only_the_word_that_it_is_gone(stage: Stage) -> None:
    """H27."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        other = await stage.open(rt)
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        session.send("queued")
        seen = asyncio.ensure_future(until_deleted(rt))
        await steps(2)
        assert (await rt.delete(session.id)).confirmed
        assert (await sent).end == "stopped"
        assert [one.id for one in await rt.sessions()] == [other.id]
        kinds = await seen
        assert kinds.index("turn.ended") < kinds.index("stop.receipt") < kinds.index("session.deleted")
        with pytest.raises(quell.NoSessionError):
            await rt.resume(session.id)
        with pytest.raises(quell.NoSessionError):
            await rt.delete(session.id)

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session and one.kind != "session.opened"] == ["session.deleted"]


async def until_deleted(rt: Runtime) -> list[str]:
    """The kinds of all that happens from now on until a session is deleted."""
    kinds = []
    async for event in rt.follow(rt.host.journal.last):
        kinds.append(event.kind)
        if isinstance(event, SessionDeleted):
            break
    return kinds


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13, 21])
def test_deleting_a_session_while_it_starts_leaves_nothing_running(stage: Stage, count: int) -> None:
    """H27: at whatever moment of its first turn."""
    stage.model.will([call("shell", command="exec sleep 600")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await steps(count)
        assert (await session.delete()).confirmed
        assert (await sent).end == "stopped"

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_deleting_a_session_deletes_its_sub_agents_however_deep(stage: Stage) -> None:
    stage.agents = [stage.agent(), stage.agent("second"), stage.agent("third")]
    stage.model.will(
        [call("agent", agent="second", text="go on")],
        [call("agent", agent="third", text="go on")],
    )

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert len(await rt.sessions()) == 3
        await session.delete()
        assert await rt.sessions() == []

    stage.play(main)
    assert {one.kind for one in stage.events() if one.session} == {"session.deleted"}


def test_deleting_a_session_whose_sub_agent_works_stops_both_first(stage: Stage) -> None:
    """H27."""
    gate = stage.waiting()
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("agent", agent="second", text="go on")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        assert (await session.delete()).confirmed
        assert await rt.sessions() == []
        assert not rt.host.live

    stage.play(main)
    assert {one.kind for one in stage.events() if one.session} == {"session.deleted"}


def test_a_session_on_which_a_fork_stands_is_not_deleted(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("one")
        fork = await origin.fork()
        with pytest.raises(quell.UsageError, match=fork.id):
            await origin.delete()
        assert (await origin.send("two")).end == "completed"
        await fork.delete()
        await origin.delete()
        assert await rt.sessions() == []

    stage.play(main)
    assert len(stage.of(SessionForked)) == 0


def test_a_session_is_deleted_once_however_many_ask(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        await asyncio.gather(*(rt.delete(session.id) for _ in range(3)), return_exceptions=True)
        assert await rt.sessions() == []

    stage.play(main)
    assert len(stage.of(SessionDeleted)) == 1


@pytest.mark.parametrize("count", range(0, 24, 3))
def test_a_fork_and_a_deletion_at_the_same_time_agree(stage: Stage, count: int) -> None:
    """H27: one of them is refused, so that no fork stands on nothing."""

    async def main(rt: Runtime) -> None:
        origin = await stage.open(rt)
        await origin.send("one")
        deleting = asyncio.ensure_future(origin.delete())
        await steps(count)
        forking = asyncio.ensure_future(origin.fork())
        how = (await outcome(deleting), await outcome(forking))
        assert how in (("done", "NoSessionError"), ("UsageError", "done"))

    stage.play(main)


@pytest.mark.parametrize("count", range(0, 24, 3))
def test_a_session_that_is_resumed_while_it_is_deleted_is_not_there(stage: Stage, count: int) -> None:
    """H27: whoever gets it before that is stopped with it."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        await session.close()
        deleting = asyncio.ensure_future(rt.delete(session.id))
        await steps(count)
        resuming = asyncio.ensure_future(rt.resume(session.id))
        await deleting
        assert await outcome(resuming) in ("done", "NoSessionError")
        if not resuming.cancelled() and resuming.exception() is None:
            with pytest.raises(quell.NoSessionError):
                resuming.result().send("x")
        assert not rt.host.live

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_deleting_a_session_stops_a_sub_agent_of_it_that_was_resumed(stage: Stage) -> None:
    """H27."""
    gate = stage.waiting()
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("agent", agent="second", text="go on")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert await until(lambda: len(rt.host.live) == 1)
        (below,) = [one.id for one in await rt.sessions() if one.parent]
        child = await rt.resume(below)
        stage.model.will([call("wait")])
        sent = child.send("work")
        await gate.reached.wait()
        await session.delete()
        async with asyncio.timeout(AT_ONCE):
            assert (await sent).end == "stopped"
        assert not rt.host.live and await rt.sessions() == []

    stage.play(main)
    assert {one.kind for one in stage.events() if one.session} == {"session.deleted"}


def test_a_session_whose_sub_agent_was_forked_is_not_deleted(stage: Stage) -> None:
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will([call("agent", agent="second", text="go on")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        assert await until(lambda: len(rt.host.live) == 1)
        (below,) = [one.id for one in await rt.sessions() if one.parent]
        fork = await (await rt.resume(below)).fork()
        with pytest.raises(quell.UsageError, match=fork.id):
            await session.delete()

    stage.play(main)


def test_nothing_is_kept_in_memory_of_a_session_that_is_closed(stage: Stage) -> None:
    """H09."""
    stage.agents = [stage.agent(), stage.agent("second")]
    stage.model.will(
        [
            call("agent", agent="second", text="x"),
            call("shell", command="true"),
            call("shell", command="sleep 600", background=True),
        ]
    )

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("go")
        async for _ in session.follow():
            break
        await session.close()
        gc.collect()
        await steps(5)
        host, journal, bus = rt.host, rt.host.journal, rt.bus
        assert not any((host.live, host._loading, journal.requests, journal._by_seq, journal._waiting, journal._begun))
        assert not any((bus._particular, bus._waiters, session._sent, session.commands, session.children))
        assert host._ground is not None and not host._ground.nested()

    stage.play(main)


def test_a_deleted_session_takes_nothing_any_more(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        await session.delete()
        for wrong in (lambda: session.send("x"), session.release, session.discard):
            with pytest.raises(quell.NoSessionError):
                wrong()
        with pytest.raises(quell.NoSessionError):
            await session.rename("x")
        with pytest.raises(quell.NoSessionError):
            await session.fork()
        assert (await session.stop()).confirmed

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_a_cancelled_asker_changes_nothing_about_a_deletion(stage: Stage) -> None:
    gate = Gate()

    async def endure(_: Mapping[str, Any], caller: Caller) -> str:
        await gate.endure()
        return ""

    stage.settings = PATIENT
    stage.tool("endure", endure)
    stage.model.will([call("endure")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        task = asyncio.ensure_future(rt.delete(session.id))
        assert await until(lambda: session.state == "stopping")
        task.cancel()
        assert await outcome(task) == "cancelled"
        gate.opened.set()
        await live(rt, SessionDeleted)

    stage.play(main)
    assert {one.kind for one in stage.events() if one.session} == {"session.deleted"}


# -- following


def test_whoever_follows_gets_every_event_once_from_wherever_it_begins(stage: Stage) -> None:
    """H20: a client owns nothing, and comes back with its cursor."""

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        seen: list[Event] = []
        async for event in session.follow():
            seen.append(event)
            if isinstance(event, TurnEnded):
                break
        session.send("two")
        async for event in session.follow(seen[-1].seq):
            seen.append(event)
            if isinstance(event, TurnEnded):
                break
        await idle(session)
        numbers = [one.seq for one in seen]
        assert numbers == sorted(set(numbers))
        assert numbers == [one.seq for one in await rt.host.journal.read(session=session.id) if one.seq <= numbers[-1]]

    stage.play(main)


def test_work_goes_on_after_a_stop_with_the_history_of_what_was_stopped(stage: Stage) -> None:
    stage.settings = PATIENT
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        await session.stop(reach="turn")
        async with asyncio.timeout(AT_ONCE):
            await session.send("two")
        (result,) = stage.model.asks[1].messages[2].results
        assert result.failed and "stopped" in result.text

    stage.play(main)


def test_the_working_directory_is_the_sessions(stage: Stage, tmp_path: Path) -> None:
    seen: list[str] = []

    async def look(_: Mapping[str, Any], caller: Caller) -> str:
        seen.append(caller.cwd)
        return ""

    stage.tool("look", look)
    stage.model.will([call("look"), call("shell", command="pwd > here")])

    async def main(rt: Runtime) -> None:
        session = await rt.open("actor", tmp_path / "cwd")
        await session.send("go")

    stage.play(main)
    assert seen == [str(stage.cwd)]
    assert stage.outside("here").read_text().strip() == str(stage.cwd)
    assert [one.text for one in stage.of(MessageUser)] == ["go"]
