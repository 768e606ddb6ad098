"""Parked messages, each by its number: some are released, some discarded, and the rest wait on."""

import pytest

import quell
from quell.events import QueueDiscarded, QueueReleased
from quell.kernel.runtime import Runtime
from quell.ports import Text

from .cast import Gate, Stage, call, idle


async def _parked(rt: Runtime, stage: Stage, gate: Gate, count: int) -> tuple[quell.Session, list[int]]:
    """A session with so many parked messages."""
    stage.model.will([call("wait")])
    session = await stage.open(rt)
    session.send("first")
    await gate.reached.wait()
    for n in range(count):
        session.send(f"message {n}")
    await session.stop(reach="turn")
    return session, [one.seq for one in session.parked]


def test_some_parked_messages_are_released_and_the_others_stay(stage: Stage) -> None:
    gate = stage.waiting()

    async def main(rt: Runtime) -> None:
        session, numbers = await _parked(rt, stage, gate, 4)
        stage.model.will([Text("a")], [Text("b")])
        assert session.release([numbers[2], numbers[0]]) == [numbers[0], numbers[2]]
        await idle(session)
        assert [one.seq for one in session.parked] == [numbers[1], numbers[3]]
        assert session.release(()) == []
        assert session.discard([numbers[3]]) == [numbers[3]]
        assert session.release() == [numbers[1]]
        await idle(session)

    stage.play(main)
    assert [len(one.messages) for one in stage.of(QueueReleased)] == [2, 1]
    assert [len(one.messages) for one in stage.of(QueueDiscarded)] == [1]
    said = [one.text for one in stage.model.asks[-1].messages if one.role == "user"]
    assert said == ["first", "message 0", "message 2", "message 1"]


def test_messages_released_one_by_one_run_in_the_order_in_which_they_were_sent(stage: Stage) -> None:
    gate = stage.waiting()

    async def main(rt: Runtime) -> None:
        session, numbers = await _parked(rt, stage, gate, 3)
        busy = session.send("busy")
        for number in (numbers[1], numbers[2], numbers[0]):
            session.release([number])
        assert [one.seq for one in session.waiting] == numbers
        await busy
        await idle(session)

    stage.play(main)
    said = [one.text for one in stage.model.asks[-1].messages if one.role == "user"]
    assert said == ["first", "busy", "message 0", "message 1", "message 2"]


@pytest.mark.parametrize("what", ["release", "discard"])
def test_a_message_that_is_not_parked_is_named_and_nothing_happens(stage: Stage, what: str) -> None:
    gate = stage.waiting()

    async def main(rt: Runtime) -> None:
        session, numbers = await _parked(rt, stage, gate, 2)
        with pytest.raises(quell.UsageError, match=rf"message 999 .* is not parked; there are {numbers[0]}, "):
            getattr(session, what)([numbers[0], 999])
        assert [one.seq for one in session.parked] == numbers
        with pytest.raises(quell.UsageError, match="message 'x'"):
            getattr(session, what)(["x"])
        session.discard()
        with pytest.raises(quell.UsageError, match="is not parked; there is none"):
            getattr(session, what)([numbers[0]])

    stage.play(main)
