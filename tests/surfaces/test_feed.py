"""The feed: every event reaches the board and whoever wants it, once, in order, encoded once; nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quell.errors import StoreError
from quell.events import AdmissionClosed, Event, MessageDelta, PluginEvent, encode
from quell.kernel.runtime import Runtime
from quell.ports import PluginContext, Text
from quell.surfaces.http import feed as feeds
from quell.surfaces.http.board import Board
from quell.surfaces.http.feed import Feed, Pump, pump
from quell.surfaces.http.outbox import ENTRIES, Outbox, Wish
from tests.kernel.cast import Held, Stage
from tests.supervise.loops import run_on, until

from .audience import BOUND, Log, delta, said

T = TypeVar("T")


def on_a_loop(main: Callable[[], Any]) -> None:
    run_on(asyncio.new_event_loop, main)


def taken(outbox: Outbox) -> list[int]:
    found: list[int] = []
    while (bundle := outbox.next()) is not None:
        found += [one["seq"] for one in json.loads(bundle.encode())["events"]]
    return found


def test_each_client_gets_what_it_wants_in_the_one_form_that_all_share() -> None:
    async def main() -> None:
        feed = Feed(Board())
        everything, one, two = Outbox(Wish()), Outbox(Wish(), ["s1"]), Outbox(Wish(), ["s1", "s2", "s1"])
        nothing = Outbox(Wish(events=False))
        for outbox in (everything, one, two, nothing):
            assert feed.attach(outbox) == 0
        events: list[Event] = [said(1), said(2, session="s2"), AdmissionClosed(seq=3), said(4, session="s3"), said(5)]
        batch = [(event, encode(event)) for event in events]
        feed.take(batch)
        first = everything._waiting[0]._entries[1].body
        assert first is batch[0][1] and one._waiting[0]._entries[1].body is first
        assert [taken(outbox) for outbox in (everything, one, two, nothing)] == [[1, 2, 3, 4, 5], [1, 5], [1, 2, 5], []]
        assert feed.last == feed.board.seq == 5 and not feed.board.admission().open

    on_a_loop(main)


def test_what_was_handed_on_is_not_handed_on_again() -> None:
    async def main() -> None:
        feed, outbox = Feed(Board()), Outbox(Wish())
        feed.take([(said(2), b"2")])
        assert feed.attach(outbox) == 2
        feed.take([(said(1), encode(said(1))), (said(2), encode(said(2))), (said(3), encode(said(3)))])
        assert taken(outbox) == [3]

    on_a_loop(main)


def test_a_feed_goes_on_from_what_its_board_was_built_with() -> None:
    board = Board()
    feed = Feed(board)
    board.seq = 17
    assert feed.last == feed.attach(Outbox(Wish())) == 17


def test_a_client_that_left_is_not_kept() -> None:
    async def main() -> None:
        log = Log()
        feed, outbox = log.feed, Outbox(Wish(board=True), ["s1", "s2"])
        feed.attach(outbox)
        log.say(delta(0, "x"))
        for _ in range(2):
            feed.detach(outbox)
        assert not any((feed._outboxes, feed._of_all, feed._of_session, feed._of_board, feed._paced))
        feed.detach(Outbox(Wish(), ["s1"]))

    on_a_loop(main)


def test_a_board_that_fails_over_an_event_costs_no_client_that_event(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Board):
        def apply(self, event: Event) -> None:
            super().apply(event)
            if event.seq == 2:
                raise KeyError("a card")

    async def main() -> None:
        feed, outbox = Feed(Wrong()), Outbox(Wish())
        feed.attach(outbox)
        feed.take([(said(seq), encode(said(seq))) for seq in (1, 2, 3)])
        assert taken(outbox) == [1, 2, 3]

    on_a_loop(main)
    assert [one.message for one in caplog.records] == ["the board could not take message.user 2"]


def test_snapshots_and_cards_are_encoded_once_for_all_who_ask_at_the_same_time() -> None:
    async def main() -> None:
        log = Log()
        log.open("s1", "s2")
        feed = log.feed
        assert feed.cards(1) is feed.cards(1) and feed._snapshot[1] == b""
        assert json.loads(feed.snapshot(7))["seq"] == 7
        kept = feed._snapshot
        feed.snapshot(9)
        assert feed._snapshot is kept
        log.say(said(0))
        assert len(json.loads(feed.snapshot(3))["sessions"][0]["queue"]) == 1
        assert [one["id"] for one in json.loads(feed.snapshot(3, ["s2", "gone"]))["sessions"]] == ["s2"]
        assert [one["id"] for one in json.loads(feed.cards(2) or b"")["cards"]] == ["s1"]
        assert feed.cards(3) is None

    on_a_loop(main)


def test_nothing_is_woken_while_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "CARDS_PACE", 0.01)

    async def main() -> None:
        log = Log()
        outbox = Outbox(Wish(board=True))
        log.feed.attach(outbox)
        log.open("s1")
        log.say(delta(0, "x"))
        assert await until(lambda: log.feed._pace is None and log.feed._cards_timer is None)
        log.feed.detach(outbox)
        log.say(delta(0, "x"), said(0))
        assert log.feed._pace is None and log.feed._cards_timer is None

    on_a_loop(main)


# -- from the kernel's loop to the front's


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    stage = Stage(tmp_path)
    stage.parts.append(lambda ctx: talk.append(ctx))
    talk: list[PluginContext] = []
    stage.talk = talk  # type: ignore[attr-defined]
    return stage


def emit(stage: Stage, count: int, session: str = "") -> None:
    """Durable events, as many as wanted."""
    for number in range(count):
        stage.talk[-1].emit("tick", number, session=session)  # type: ignore[attr-defined]


class Front:
    """A loop in a thread, with a feed and one client of it that keeps all it is given."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.feed = Feed(Board())
        self.heard: list[Event] = []
        self.sizes: list[int] = []
        self.forms: list[bytes] = []
        self.ends: list[str] = []
        self.heard_before_the_end = 0
        take, end = self.feed.take, self.feed.end

        def noted(batch: Any) -> None:
            self.sizes.append(len(batch))
            self.heard += [event for event, _ in batch]
            self.forms += [body for _, body in batch]
            take(batch)

        def ended(reason: str) -> None:
            if not self.ends:
                self.heard_before_the_end = len(self.heard)
            self.ends.append(reason)
            end(reason)

        self.feed.take, self.feed.end = noted, ended  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def __enter__(self) -> Front:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def block(self, seconds: float) -> None:
        self.loop.call_soon_threadsafe(time.sleep, seconds)


@pytest.fixture
def front() -> Iterator[Front]:
    with Front() as front:
        yield front


def ticks(front: Front) -> list[int]:
    return [one.data for one in front.heard if isinstance(one, PluginEvent)]


def test_all_that_happens_reaches_the_front_in_order_encoded_as_it_is_in_the_log(stage: Stage, front: Front) -> None:
    """H36: what was before, and what comes."""

    async def main(rt: Runtime) -> None:
        emit(stage, 2500)
        pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        for _ in range(20):
            emit(stage, 100)
            await asyncio.sleep(0)
        assert await until(lambda: len(ticks(front)) == 4500)
        await rt.host.journal.flushed()

    stage.play(main)
    assert await_end(front) == "the server stops"
    logged = stage.events()
    assert [one.seq for one in front.heard] == [one.seq for one in logged]
    assert front.forms == [encode(one) for one in logged]
    assert front.heard[-1].kind == "runtime.stopped"
    assert max(front.sizes) <= feeds.SLICE


def test_the_end_comes_after_all_that_came_before_it(stage: Stage, front: Front) -> None:
    async def main(rt: Runtime) -> None:
        task = pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        await asyncio.sleep(0)
        front.block(0.3)
        emit(stage, feeds.SLICE * 3)
        await rt.host.journal.flushed()
        await asyncio.sleep(0.05)
        task.cancel()

    stage.play(main)
    await_end(front)
    assert front.heard_before_the_end > feeds.SLICE * 3


def await_end(front: Front) -> str:
    until = time.monotonic() + BOUND
    while not front.ends:
        assert time.monotonic() < until
        time.sleep(0.005)
    return front.ends[0]


def test_a_front_that_is_blocked_holds_nobody_up_and_misses_nothing(
    stage: Stage, front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """H39: what it cannot take is bounded, and is read from the log when it can."""
    monkeypatch.setattr(feeds, "AHEAD", 200)

    async def main(rt: Runtime) -> None:
        rt.bus.limit = 500
        pumps: list[Pump] = []
        make = Pump.__init__

        def noted(self: Pump, *given: Any) -> None:
            make(self, *given)
            pumps.append(self)

        monkeypatch.setattr(Pump, "__init__", noted)
        pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        front.block(0.7)
        began, worst = time.monotonic(), 0.0
        for _ in range(50):
            before = time.monotonic()
            emit(stage, 100)
            await asyncio.sleep(0)
            worst = max(worst, time.monotonic() - before)
            assert len(pumps[0]._pending) <= 200
        assert worst < 0.5 and time.monotonic() - began < 5
        assert await until(lambda: len(ticks(front)) == 5000)

    with caplog.at_level(logging.CRITICAL, "quell"):  # that the bus cut the pump off is no mistake here
        stage.play(main)
    await_end(front)
    assert ticks(front) == list(range(100)) * 50
    assert [one.seq for one in front.heard] == [one.seq for one in stage.events()]


def test_a_healthy_client_is_not_cut_off_by_a_burst(stage: Stage, front: Front) -> None:
    """H39: it gets its turn between two slices."""
    outbox, seen = Outbox(Wish()), list[int]()

    async def send() -> None:
        front.feed.attach(outbox)
        while not front.feed.ended:
            seen.extend(taken(outbox))
            assert not outbox.over
            await outbox.wait()
        seen.extend(taken(outbox))

    async def main(rt: Runtime) -> None:
        sending = asyncio.run_coroutine_threadsafe(send(), front.loop)
        pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        front.block(0.3)
        emit(stage, ENTRIES * 2)
        await rt.host.journal.flushed()
        assert await until(lambda: len(ticks(front)) == ENTRIES * 2)
        waited.append(sending)

    waited: list[Any] = []
    stage.play(main)
    waited[0].result(BOUND)
    assert seen == [one.seq for one in stage.events()]


@pytest.mark.parametrize("busy", [False, True])
def test_when_the_log_breaks_clients_are_told_why(
    stage: Stage, front: Front, caplog: pytest.LogCaptureFixture, busy: bool
) -> None:
    held: list[Held] = []

    def store(path: str) -> Held:
        held.append(Held(path))
        return held[-1]

    async def main(rt: Runtime) -> None:
        task = pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        emit(stage, 10)
        await rt.host.journal.flushed()
        assert busy or await until(lambda: len(ticks(front)) == 10)
        held[0].break_down(StoreError("the disk is full"))
        await task

    stage.store = store
    with caplog.at_level(logging.CRITICAL, "quell"):
        stage.play(main)
    assert await_end(front) == "the log cannot be written: the disk is full"
    assert busy or ticks(front) == list(range(10))


def test_a_feed_that_is_stopped_says_so_and_one_whose_front_is_gone_ends(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        with Front() as front:
            task = pump(rt, rt.scope("front"), front.loop, front.feed, 0)
            assert await until(lambda: bool(front.heard))
            task.cancel()
            assert await until(lambda: bool(front.ends)) and front.ends == ["the server stops"]
            with contextlib.suppress(asyncio.CancelledError):
                await task
            task = pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        emit(stage, 1)
        async with asyncio.timeout(BOUND):
            await task

    stage.play(main)


def test_a_fault_of_the_feed_is_told_and_logged(
    stage: Stage, front: Front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(_: Event) -> bytes:
        raise LookupError("no form")

    monkeypatch.setattr(feeds, "encode", wrong)

    async def main(rt: Runtime) -> None:
        await pump(rt, rt.scope("front"), front.loop, front.feed, 0)

    stage.play(main)
    assert await_end(front) == "the feed failed: LookupError: no form"
    assert [one.message for one in caplog.records] == ["the feed failed"]


def test_deltas_are_fed_before_they_are_on_disk(stage: Stage, front: Front) -> None:
    """And read from the log by whoever comes late: the store has what it was given."""
    stage.model.will([*map(Text, "abc")])

    async def main(rt: Runtime) -> None:
        pump(rt, rt.scope("front"), front.loop, front.feed, 0)
        session = await stage.open(rt)
        await session.send("hello")
        assert await until(lambda: any(isinstance(one, MessageDelta) for one in front.heard))
        last = front.heard[-1].seq
        rows = await rt.host.journal.rows(0, last, None)
        assert [row.seq for row in rows] == [one.seq for one in front.heard if one.seq <= last]

    stage.play(main)
    await_end(front)
