"""A restart is a stop with its receipt, and then a new incarnation; nothing of the old one is left."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import quell
from quell.events import SessionClosed, StopReceipt, StopRequested, TurnEnded, TurnStarted
from quell.kernel.history import History
from quell.kernel.runtime import Runtime
from quell.ports import Caller, Text
from tests.supervise.loops import outcome, until

from .cast import STUBBORN, Gate, Stage, call, idle, live, steps


def test_a_restart_in_the_middle_of_a_turn_stops_it_and_gives_a_new_incarnation(stage: Stage) -> None:
    """H27: the receipt first, then the new one, with the history and a parked queue."""
    gate = stage.waiting()
    stage.model.will([call("wait")], [Text("here again")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, title="a title")
        session.send("one")
        waits = session.send("two")
        await gate.reached.wait()
        receipt, new = await rt.restart(session.id)
        assert receipt.confirmed
        assert receipt.reason == "restart"
        assert new is not session
        assert rt.host.live == {session.id: new}
        assert (new.id, new.title, new.turns, new.state) == (session.id, "a title", 1, "idle")
        assert [one.text for one in new.parked] == ["two"]
        assert new.epoch > max(one.epoch for one in stage.of(TurnStarted))
        assert await outcome(waits) == "NotAnsweredError"
        assert (await new.send("three")).end == "completed"
        new.release()
        await idle(new)

    stage.play(main)
    assert not stage.of(SessionClosed)
    assert [one.end for one in stage.of(TurnEnded)] == ["stopped", "completed", "completed"]
    said = [one.text for one in stage.model.asks[-1].messages if one.role == "user"]
    assert said == ["one", "three", "two"]


async def _stubborn(_: Mapping[str, Any], caller: Caller) -> str:
    await caller.spawn(STUBBORN, background=True)
    process = await caller.spawn(STUBBORN)
    await process.wait()
    return "ended"


def test_a_restart_leaves_no_process_task_or_entry_of_the_old_one(stage: Stage) -> None:
    """H09, H27: foreground, background and sub-agents are gone, and every map is back to its size."""
    stage.tool("stay", _stubborn)

    async def pass_on(_: Mapping[str, Any], caller: Caller) -> str:
        return await caller.delegate("actor", "stay")

    stage.tool("pass", pass_on)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for _ in range(2):
            stage.model.will([call("pass"), call("stay")], [call("stay")])
            session.send("go")
            assert await until(lambda: sum(len(one.commands) for one in rt.host.live.values()) == 4)
            pids = [one.pid for each in rt.host.live.values() for one in each.processes()]
            receipt, new = await rt.restart(session.id)
            assert receipt.confirmed
            assert set(pids) <= {one.pid for one in receipt.processes}
            assert not session.commands
            assert await until(lambda: len(rt.host.live) == 1)
            assert rt.host.live == {new.id: new}
            assert not any((session.halts, session.children, rt.host._restarting, rt.host._loading))
            session = new

    stage.play(main)


def test_whoever_holds_the_old_object_is_told_in_a_sentence(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        old = await stage.open(rt)
        assert (await old.restart(reason="a new plugin")).reason == "a new plugin"
        assert old.state == "closed"
        sentence = rf"session {old.id} was restarted; Runtime.resume\('{old.id}'\) gives its new incarnation"
        for attempt in (lambda: old.send("hello"), old.release, old.discard):
            with pytest.raises(quell.NoSessionError, match=sentence):
                attempt()
        for asked in (old.restart(), old.rename("x"), old.fork()):
            with pytest.raises(quell.NoSessionError, match=sentence):
                await asked
        assert (await old.close()).confirmed  # joins what has been: the new one is not closed by it
        assert (await old.stop()).confirmed
        new = await rt.resume(old.id)
        assert rt.host.live == {old.id: new}
        assert (await new.send("hello")).end == "completed"

    stage.play(main)
    assert [one.reason for one in stage.of(StopRequested)][:1] == ["a new plugin"]
    assert len(stage.of(SessionClosed)) == 0


def test_restarts_at_the_same_time_join_and_later_ones_follow(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        await gate.reached.wait()
        both = asyncio.gather(rt.restart(session.id), rt.restart(session.id))
        await steps(1)
        second = await session.restart()
        (first, one), (third, other) = await both
        assert first is second is third
        assert one is other
        _, last = await rt.restart(session.id)
        assert last is not one
        assert rt.host.live == {session.id: last}

    stage.play(main)
    assert len([one for one in stage.stops() if one.reason == "restart"]) == 2


@pytest.mark.parametrize("force", [False, True])
def test_a_restart_during_a_stop_joins_it_and_each_has_its_receipt(stage: Stage, force: bool) -> None:
    stage.tool("stay", _stubborn)
    stage.model.will([call("stay")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        assert await until(lambda: len(session.commands) == 2)
        stopping = asyncio.ensure_future(session.stop(force=force))
        await live(rt, StopRequested)
        receipt, new = await rt.restart(session.id)
        assert receipt.confirmed
        assert (await stopping).confirmed
        assert (await new.send("hello")).end == "completed"

    stage.play(main)
    assert len(stage.receipts()) == 2


def test_a_closed_session_is_restarted_and_one_that_is_closing_after_that(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.close()
        receipt, new = await rt.restart(session.id)
        assert receipt.confirmed
        closing = asyncio.ensure_future(new.close())
        await steps(1)
        _, newest = await rt.restart(session.id)
        await closing
        assert rt.host.live == {session.id: newest}
        assert (await newest.send("hello")).end == "completed"

    stage.play(main)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 10, 20, 40])
def test_a_restart_of_one_that_is_being_deleted_is_refused_and_neither_leaves_anything(
    stage: Stage, count: int
) -> None:
    """H27: whichever came first, the session is gone at the end."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        restarting = asyncio.ensure_future(rt.restart(session.id))
        await steps(count)
        assert (await rt.delete(session.id)).confirmed
        assert await outcome(restarting) in ("NoSessionError", "done")
        with pytest.raises(quell.NoSessionError):
            await rt.restart(session.id)
        assert not rt.host.live

    stage.play(main)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_a_restart_during_the_cold_start_of_a_session_has_one_incarnation(stage: Stage) -> None:
    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("hello")
        ids.append(session.id)

    async def second(rt: Runtime) -> None:
        resuming = asyncio.ensure_future(rt.resume(ids[0]))
        await steps(1)
        receipt, new = await rt.restart(ids[0])
        old = await resuming
        assert receipt.confirmed
        assert old.gone
        assert rt.host.live == {ids[0]: new}
        with pytest.raises(quell.NoSessionError, match="was restarted"):
            old.send("hello")
        assert (await new.send("hello")).end == "completed"

    ids: list[str] = []
    stage.play(first)
    stage.play(second)


def test_a_session_that_is_deleted_during_a_slow_cold_start_does_not_come_back(stage: Stage) -> None:
    """H27: the deletion waits for whoever reads it, who is refused."""
    gate = Gate()

    async def first(rt: Runtime) -> None:
        ids.append((await stage.open(rt)).id)

    async def second(rt: Runtime) -> None:
        archive = rt.host.archive
        read = archive.history

        async def slow(id_: str, upto: int | None = None) -> History:
            await gate()
            return await read(id_, upto)

        archive.history = slow  # type: ignore[method-assign]  # a log that takes its time
        resuming = asyncio.ensure_future(rt.resume(ids[0]))
        await gate.reached.wait()
        deleting = asyncio.ensure_future(rt.delete(ids[0]))
        await until(deleting.done, 0.3)  # it must not, as long as it is read
        gate.opened.set()
        assert await outcome(resuming) == "NoSessionError"
        assert (await deleting).confirmed
        assert not rt.host.live
        with pytest.raises(quell.NoSessionError, match="there is no session"):
            await rt.restart(ids[0])

    ids: list[str] = []
    stage.play(first)
    stage.play(second)
    assert [one.kind for one in stage.events() if one.session] == ["session.deleted"]


def test_cancelling_who_asked_for_a_restart_breaks_nothing_off(stage: Stage) -> None:
    stage.tool("stay", _stubborn)
    stage.model.will([call("stay")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        assert await until(lambda: len(session.commands) == 2)
        asked = asyncio.ensure_future(rt.restart(session.id))
        await live(rt, StopRequested)
        asked.cancel()
        assert await outcome(asked) == "cancelled"
        await live(rt, StopReceipt)
        assert await until(lambda: not rt.host._restarting)
        assert rt.host.live[session.id] is not session

    stage.play(main)


def test_a_session_whose_agent_could_not_come_back_is_not_stopped_by_a_restart(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        held = rt.host.agents.pop("actor")
        with pytest.raises(quell.UsageError, match="there is no agent 'actor'"):
            await rt.restart(session.id)
        rt.host.agents["actor"] = held
        gate.opened.set()
        assert (await sent).end == "completed"

    stage.play(main)


def test_a_restart_looks_its_agent_up_anew(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        rt.host.agents["actor"] = stage.agent(system="be brief")
        _, new = await rt.restart(session.id)
        await new.send("hello")

    stage.play(main)
    assert stage.model.asks[-1].messages[0].text == "be brief"


def test_a_restart_of_a_sub_agent_ends_its_part_and_the_call_that_wanted_it_is_told(stage: Stage) -> None:
    gate = stage.waiting()

    async def pass_on(_: Mapping[str, Any], caller: Caller) -> str:
        return await caller.delegate("actor", "wait")

    stage.tool("pass", pass_on)
    stage.model.will([call("pass")], [call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await gate.reached.wait()
        [child] = session.children
        receipt, new = await rt.restart(child)
        assert receipt.confirmed
        assert (await sent).end == "completed"
        assert rt.host.live == {session.id: session, child: new}
        assert not session.children

    stage.play(main)
    assert not stage.of(SessionClosed)


@pytest.mark.parametrize("count", [0, 2, 8, 25])
def test_the_end_of_the_runtime_during_a_restart_waits_for_it_and_leaves_nothing(stage: Stage, count: int) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main() -> None:
        async with stage.runtime() as rt:
            session = await stage.open(rt)
            session.send("go")
            await gate.reached.wait()
            asked = asyncio.ensure_future(rt.restart(session.id))
            await steps(count)
        assert await outcome(asked) in ("ScopeStoppedError", "StoreError", "done")

    stage.run(main)
