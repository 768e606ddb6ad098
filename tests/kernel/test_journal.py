"""Log first: what is not on disk has not happened; and when the disk fails, everything stops and says so."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

import quell
from quell.events import Event, RuntimeErrored, ToolStarted, TurnEnded, TurnStarted
from quell.kernel.journal import Journal
from quell.kernel.runtime import Runtime
from quell.ports import Caller, Store, Text
from tests.supervise.conftest import alive
from tests.supervise.loops import outcome, until

from .cast import AT_ONCE, Held, Stage, call, live, steps


@pytest.fixture
def held(stage: Stage) -> list[Held]:
    """The stores of the runtimes that the stage starts."""
    made: list[Held] = []

    def make(path: str) -> Store:
        made.append(Held(path))
        return made[-1]

    stage.store = make
    return made


# -- log first


def test_a_tool_is_not_entered_before_its_intent_is_on_disk(stage: Stage, held: list[Held]) -> None:
    """H23: whatever began is known to the next start."""
    on_disk: list[bool] = []

    async def body(_: Mapping[str, Any], caller: Caller) -> str:
        on_disk.append(bool(stage.of(ToolStarted)))
        return ""

    stage.tool("body", body)
    stage.model.will([call("body")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)

        def hold(row_kind: str) -> bool:
            return any(row.kind == row_kind for row in held[0].appended)

        sent = session.send("go")
        while not hold("tool.requested"):  # noqa: ASYNC110  the very next step counts
            await asyncio.sleep(0)
        held[0].holding = True
        assert await until(lambda: hold("tool.started"))
        assert await until(lambda: bool(stage.of(ToolStarted)))
        await steps(20)
        assert on_disk == []
        held[0].let_go()
        assert (await sent).end == "completed"

    stage.play(main)
    assert on_disk == [True]


def test_a_model_is_not_asked_before_its_request_is_on_disk(stage: Stage, held: list[Held]) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        held[0].holding = True
        sent = session.send("go")
        assert await until(lambda: any(row.kind == "model.requested" for row in held[0].appended))
        await steps(20)
        assert not stage.model.asks
        held[0].let_go()
        assert (await sent).end == "completed"

    stage.play(main)


def test_nothing_is_heard_or_acknowledged_before_it_is_on_disk(stage: Stage, held: list[Held]) -> None:
    heard: list[str] = []

    async def handler(event: Event) -> None:
        heard.append(event.kind)

    stage.parts.append(lambda ctx: ctx.on(["message.", "turn.", "session."], handler))

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        assert await until(lambda: heard == ["session.opened"])
        held[0].holding = True
        sent = session.send("go")
        accepted = asyncio.ensure_future(sent.accepted())
        opening = asyncio.ensure_future(stage.open(rt))
        renaming = asyncio.ensure_future(session.rename("x"))
        await asyncio.sleep(0.05)
        assert heard == ["session.opened"]
        assert not accepted.done() and not opening.done() and not renaming.done()
        held[0].let_go()
        await asyncio.gather(accepted, opening, renaming)
        assert (await sent).end == "completed"

    stage.play(main)


def test_a_stop_ends_what_runs_though_the_disk_keeps_it_waiting(stage: Stage, held: list[Held]) -> None:
    """H39: processes do not wait for the log; only the receipt does."""
    pids: list[int] = []

    async def body(_: Mapping[str, Any], caller: Caller) -> str:
        process = await caller.spawn(["sleep", "600"])
        pids.append(process.pid)
        await process.wait()
        return ""

    stage.tool("body", body)
    stage.model.will([call("body")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        held[0].holding = True
        stopping = asyncio.ensure_future(session.stop(reach="turn"))
        assert await until(lambda: not alive(pids[0]))
        assert not stopping.done()
        held[0].let_go()
        assert (await stopping).confirmed
        assert (await sent).end == "stopped"

    stage.play(main)


# -- the disk fails


def test_when_the_log_breaks_everything_stops_and_nothing_new_is_let_in(stage: Stage, held: list[Held]) -> None:
    """H35: whoever waits gets its end, and the next start makes good what the log does not tell."""
    pids: list[int] = []

    async def body(_: Mapping[str, Any], caller: Caller) -> str:
        process = await caller.spawn(["sleep", "600"])
        pids.append(process.pid)
        await process.wait()
        return ""

    stage.tool("body", body)
    stage.model.will([call("body")])
    errors: list[Event] = []

    async def handler(event: Event) -> None:
        errors.append(event)

    stage.parts.append(lambda ctx: ctx.on("runtime.error", handler))
    ids: list[str] = []

    async def first(rt: Runtime) -> None:
        session, other = await stage.open(rt), await stage.open(rt)
        ids.append(session.id)
        sent = session.send("go")
        assert await until(lambda: bool(pids))
        queued = session.send("queued")
        await queued.accepted()
        held[0].break_down(quell.StoreError("the disk is full"))
        async with asyncio.timeout(AT_ONCE):
            assert (await sent).end == "stopped"
            assert await outcome(queued._end()) in ("NotAnsweredError", "StoreError")
        assert await until(lambda: not alive(pids[0]))
        assert not rt.admitting and "disk is full" in str(rt.failed)
        for one in (other, session):
            with pytest.raises(quell.StoreError, match="disk is full"):
                one.send("x")
        for coroutine in (stage.open(rt), other.rename("x"), other.fork()):
            with pytest.raises(quell.StoreError, match="disk is full"):
                await coroutine
        assert await until(lambda: bool(errors))
        assert isinstance(errors[0], RuntimeErrored) and "disk is full" in errors[0].error
        assert (await session.stop()).confirmed

    async def second(rt: Runtime) -> None:
        assert rt.admitting
        session = await rt.resume(ids[0])
        assert [one.text for one in session.parked] == ["queued"]
        stage.model.answers.clear()
        assert (await session.send("go")).end == "completed"

    stage.play(first)
    stage.play(second)
    assert [one.end for one in stage.of(TurnEnded)] == ["interrupted", "completed"]


def test_whoever_reads_the_events_of_a_turn_is_told_when_the_log_breaks(stage: Stage, held: list[Held]) -> None:
    """H35: it does not wait for ever for events that cannot come."""
    gate = stage.waiting()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)

        async def read(events: Any) -> None:
            async for _ in events:
                pass

        readers = [asyncio.ensure_future(read(one)) for one in (session.send("go"), session.follow(), rt.follow())]
        queued = asyncio.ensure_future(read(session.send("queued")))
        await gate.reached.wait()
        held[0].break_down(quell.StoreError("the disk is full"))
        _, waiting = await asyncio.wait([*readers, queued], timeout=2)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*readers, queued, return_exceptions=True)
        assert not waiting, f"{len(waiting)} of 4 wait for ever"

    stage.play(main)
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 5, 8, 13, 21, 34])
def test_at_whatever_moment_the_log_breaks_everything_ends(stage: Stage, held: list[Held], count: int) -> None:
    """H35."""
    stage.model.will([Text("well"), call("note", name="a"), call("shell", command="exec sleep 600")])

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await steps(count)
        held[0].break_down(quell.StoreError("the disk is full"))
        async with asyncio.timeout(AT_ONCE):
            assert (await sent).end in ("stopped", "failed")
        assert session.turn is None

    stage.play(first)
    stage.model.answers.clear()
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]
    assert len(stage.of(TurnEnded)) == len(stage.of(TurnStarted))


@pytest.mark.parametrize("what", ["deny", "ask"])
def test_a_question_or_a_stop_that_waits_when_the_log_breaks_ends(stage: Stage, held: list[Held], what: str) -> None:
    """H35."""
    stage.approval = {}
    stage.model.will([call("note", name="a")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        await live(rt, ToolStarted if what == "allow" else TurnStarted)
        assert await until(lambda: "approval.asked" in stage.kinds())
        if what == "ask":
            held[0].holding = True
            stopping = asyncio.ensure_future(session.stop(reach="turn"))
            await steps(3)
            held[0].break_down(quell.StoreError("the disk is full"))
            assert (await stopping).confirmed
        else:
            held[0].break_down(quell.StoreError("the disk is full"))
        async with asyncio.timeout(AT_ONCE):
            assert (await sent).end == "stopped"

    stage.play(main)
    stage.play(lambda rt: rt.sessions())  # type: ignore[arg-type, return-value]
    assert not stage.outside("a").exists()


# -- the journal itself


class Noted:
    """A store that takes everything and says nothing until it is told to."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, bool]] = []

    async def open(self, told: Any) -> int:
        self.told = told
        return 100

    def append(self, row: Any, durable: bool) -> None:
        self.rows.append((row.seq, durable))


def test_events_are_numbered_recorded_and_published_in_one_order(stage: Stage) -> None:
    from quell.events import MessageDelta, MessageUser
    from quell.kernel.footing import WallClock

    async def main() -> None:
        store = Noted()
        out: list[int] = []
        failed: list[quell.StoreError] = []
        journal = Journal(store, WallClock(), lambda event: out.append(event.seq), failed.append)  # type: ignore[arg-type]
        await journal.open()
        started = journal.emit(TurnStarted(session="s", turn=1))
        journal.emit(MessageDelta(request=started.seq, text="a"))
        journal.emit(MessageUser(session="s"))
        assert [seq for seq, _ in store.rows] == [101, 102, 103]
        assert [durable for _, durable in store.rows] == [True, False, True]
        assert out == []
        store.told(101)
        assert out == [101, 102]
        store.told(103)
        assert out == [101, 102, 103]
        journal.emit(MessageDelta(request=started.seq, text="b"))
        assert out == [101, 102, 103, 104]
        journal.emit(TurnEnded(request=started.seq, end="completed"))
        late = journal.emit(TurnEnded(request=started.seq, end="failed"))
        assert late.seq == 0 and journal.emit(MessageDelta(request=started.seq)).seq == 0
        assert not journal.requests
        store.told(OSError("no"))
        assert out == [101, 102, 103, 104] and len(failed) == 1
        with pytest.raises(quell.StoreError, match="no"):
            await journal.flushed()

    stage.run(main)


def test_an_end_that_cannot_be_written_does_not_count_as_one(stage: Stage) -> None:
    """H35: the request is still open, and gets an end that can."""
    from quell.events import ToolEnded, ToolRequested
    from quell.kernel.footing import WallClock

    async def main() -> None:
        journal = Journal(Noted(), WallClock(), lambda _: None, lambda _: None)  # type: ignore[arg-type]
        await journal.open()
        request = journal.emit(ToolRequested(session="s", turn=1, tool="t"))
        for bad in ("\udcff", None, 3):
            try:
                ended = journal.emit(ToolEnded(request=request.seq, result=bad))  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001  it may refuse, but then it must be open
                assert request.seq in journal.requests
            else:
                assert ended.seq and request.seq not in journal.requests
                return
        before = dict(journal.requests)
        try:
            journal.emit(ToolRequested(session="s", arguments={"a": object()}))
        except Exception:  # noqa: BLE001  as above
            assert journal.requests == before

    stage.run(main)
