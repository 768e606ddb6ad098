"""Admission closed by hand: what runs goes on, what waits waits, and nothing new starts until it is reopened."""

import pytest

import quell
from quell.events import AdmissionClosed, TurnStarted
from quell.kernel.runtime import Runtime
from quell.ports import Text

from .cast import Stage, call, idle


def test_closing_admission_lets_the_turn_go_on_and_holds_what_waits_until_it_is_reopened(stage: Stage) -> None:
    gate = stage.waiting()
    stage.model.will([call("wait")], [Text("first")], [Text("second")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        first, second = session.send("one"), session.send("two")
        await gate.reached.wait()
        rt.close_admission("for the night")
        rt.close_admission("again, which says nothing new")
        assert not rt.admitting
        gate.opened.set()
        assert (await first).end == "completed"
        assert first.text == "first"
        assert session.state == "idle"
        assert [one.text for one in session.waiting] == ["two"]
        assert not session.parked
        rt.reopen()
        assert (await second).end == "completed"
        assert second.text == "second"

    stage.play(main)
    assert [one.reason for one in stage.of(AdmissionClosed)] == ["for the night"]
    assert stage.kinds().count("admission.reopened") == 1


def test_nothing_new_starts_while_admission_is_closed_and_the_refusal_says_why(stage: Stage) -> None:
    async def delegate(_: object, caller: quell.ports.Caller) -> str:
        rt_closes.pop()("for lunch")
        return await caller.delegate("actor", "do it")

    stage.tool("pass", delegate)
    rt_closes = []
    stage.model.will([call("pass")])

    async def main(rt: Runtime) -> None:
        rt_closes.append(rt.close_admission)
        session = await stage.open(rt)
        assert (await session.send("go")).end == "completed"
        for attempt in (lambda: session.send("more"), session.release):
            with pytest.raises(quell.AdmissionClosedError, match=r"admission is closed \(for lunch\); reopen it"):
                attempt()
        for asked in (stage.open(rt), rt.restart(session.id), session.fork()):
            with pytest.raises(quell.AdmissionClosedError, match="for lunch"):
                await asked
        assert not session.discard()
        receipt = await session.stop()
        assert receipt.confirmed

    stage.play(main)
    assert "admission is closed" in next(one for one in stage.events() if one.kind == "tool.ended").error  # type: ignore[attr-defined]


def test_admission_that_was_closed_by_hand_stays_closed_over_a_restart_of_the_runtime(stage: Stage) -> None:
    async def first(rt: Runtime) -> None:
        rt.close_admission("for good")

    async def second(rt: Runtime) -> None:
        with pytest.raises(quell.AdmissionClosedError, match="for good"):
            await stage.open(rt)
        rt.reopen()
        assert (await (await stage.open(rt)).send("hello")).end == "completed"

    stage.play(first)
    stage.play(second)


def test_messages_that_waited_behind_closed_admission_are_parked_by_a_stop_and_by_the_end_of_the_runtime(
    stage: Stage,
) -> None:
    """H19: neither run nor lost."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("one")
        session.send("two")
        await gate.reached.wait()
        rt.close_admission()
        gate.opened.set()
        await _rests(session)
        assert len(session.waiting) == 1

    async def second(rt: Runtime) -> None:
        rt.reopen()
        [info] = await rt.sessions()
        session = await rt.resume(info.id)
        assert [one.text for one in session.parked] == ["two"]
        session.release()
        await idle(session)

    stage.play(first)
    stage.play(second)
    assert len(stage.of(TurnStarted)) == 2


async def _rests(session: quell.Session) -> None:
    assert session.turn is not None
    await session.turn.over.wait()
