"""The simulations find what they are made for: each fault that is planted in the kernel, within a few seeds (H56)."""

import asyncio
import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from quell.events import Event, MessageUser, ToolEnded, ToolStarted, TurnEnded
from quell.kernel import session as sessions
from quell.kernel import turn as turns
from quell.kernel.caller import Call
from quell.kernel.halting import Halt
from quell.kernel.host import Host
from quell.kernel.journal import Journal
from quell.kernel.leftovers import Leftovers
from quell.kernel.sent import Sent
from quell.kernel.session import Session
from quell.kernel.turn import Turn
from quell.ports import Store

from .simulate import simulate

ENOUGH = 150
"""Seeds within which every one of them must be found."""

Plant = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Turn, "pass_fence", lambda self: None)
    patch.setattr(Call, "_pass_fence", lambda self: None)


def stops_without_an_epoch(patch: pytest.MonkeyPatch) -> None:
    begin = Session.begin_stop

    def stop(self: Session, *args: Any, **wishes: Any) -> Any:
        self.epoch -= 1
        return begin(self, *args, **wishes)

    patch.setattr(Session, "begin_stop", stop)


def queue_fires_after_a_stop(patch: pytest.MonkeyPatch) -> None:
    for user in (sessions, turns):
        patch.setattr(user, "park", lambda session, asked, reason: None)


def queue_is_dropped_by_a_stop(patch: pytest.MonkeyPatch) -> None:
    for user in (sessions, turns):
        patch.setattr(user, "park", lambda session, asked, reason: session.waiting.clear())


def tool_that_raises_has_no_end(patch: pytest.MonkeyPatch) -> None:
    emit = Journal.emit

    def faulty(self: Journal, event: Event) -> Event:
        return event if isinstance(event, ToolEnded) and event.error else emit(self, event)

    patch.setattr(Journal, "emit", faulty)
    patch.setattr(Journal, "end_all", lambda self, requests, reason, epoch=None: [])


def tool_that_raises_ends_twice(patch: pytest.MonkeyPatch) -> None:
    emit = Journal.emit

    def faulty(self: Journal, event: Event) -> Event:
        request = self.requests.get(event.request)
        told = emit(self, event)
        if isinstance(event, ToolEnded) and event.error and request is not None:
            self._enter(request)
            emit(self, msgspec.structs.replace(event))
        return told

    patch.setattr(Journal, "emit", faulty)


def open_does_not_ask_for_admission(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "admit", lambda self: None)
    patch.setattr(Host, "open", property(lambda self: not self.closing))


def effect_before_its_intent_is_on_disk(patch: pytest.MonkeyPatch) -> None:
    committed = Journal.committed

    async def hasty(self: Journal, event: Event) -> None:
        if not isinstance(event, ToolStarted):
            await committed(self, event)

    patch.setattr(Journal, "committed", hasty)


def message_acknowledged_too_early(patch: pytest.MonkeyPatch) -> None:
    async def accepted(self: Sent) -> MessageUser:
        return self.message

    patch.setattr(Sent, "accepted", accepted)


def followers_hear_before_the_disk(patch: pytest.MonkeyPatch) -> None:
    emit = Journal.emit

    def hasty(self: Journal, event: Event) -> Event:
        told = emit(self, event)
        if event.seq and not event.delta:
            self._hand_on(event)
        return told

    patch.setattr(Journal, "emit", hasty)


def interrupted_turn_is_run_again(patch: pytest.MonkeyPatch) -> None:
    load = Host._load

    async def again(self: Host, id_: str, agent: str = "", model: str = "") -> Session:
        session = await load(self, id_, agent, model)
        events = await self.journal.read(session=id_)
        ended = [one for one in events if isinstance(one, TurnEnded) and one.end == "interrupted"]
        causes = {one.seq: one.cause for one in events if one.kind == "turn.started"}
        lost = [
            one for one in events if isinstance(one, MessageUser) and ended and one.seq == causes[ended[-1].request]
        ]
        session.waiting.extend(lost)
        session.go_on()
        return session

    patch.setattr(Host, "_load", again)


def nothing_is_made_good_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leftovers, "apply", lambda self, event: None)


def numbers_are_used_twice_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    async def reopen(self: Journal) -> None:
        store: Store = self._store
        self._loop = asyncio.get_running_loop()
        await store.open(self._told)
        self._last = self._safe = max((row.seq for row in await store.read(limit=100_000)), default=0)

    patch.setattr(Journal, "open", reopen)


def receipt_before_the_turn_is_over(patch: pytest.MonkeyPatch) -> None:
    begin = Halt.__init__

    def hasty(self: Halt, session: Session, *args: Any) -> None:
        turn, session.turn = session.turn, None
        begin(self, session, *args)
        session.turn = turn

    patch.setattr(Halt, "__init__", hasty)


def stop_reports_what_it_did_not_do(patch: pytest.MonkeyPatch) -> None:
    begin = Halt.__init__

    def lazy(self: Halt, session: Session, asked: Any, scope: Any, below: Any, *args: Any) -> None:
        begin(self, session, asked, None if asked.reach == "session" else scope, below, *args)

    patch.setattr(Halt, "__init__", lazy)


def closed_sessions_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Host, "forget", lambda self, session: None)


PLANTED: list[tuple[Plant, str]] = [
    (no_fence, r"after the stop|starts an effect"),
    (stops_without_an_epoch, r"fences nothing|after the stop"),
    (queue_fires_after_a_stop, r"was answered though the stop \d+ found it waiting"),
    (queue_is_dropped_by_a_stop, r"message \d+ was neither answered nor parked"),
    (tool_that_raises_has_no_end, r"tool\.requested: it never ended"),
    (tool_that_raises_ends_twice, r"a second end of request"),
    (open_does_not_ask_for_admission, r"admission was closed at"),
    (effect_before_its_intent_is_on_disk, r"began before its intent \d+ was on disk"),
    (message_acknowledged_too_early, r"message \d+ was acknowledged, and is not on disk"),
    (followers_hear_before_the_disk, r"a follower saw .* which is not on disk"),
    (interrupted_turn_is_run_again, r"message \d+ was answered before"),
    (nothing_is_made_good_after_a_crash, r"it never ended|is open"),
    (numbers_are_used_twice_after_a_crash, r"was given the number"),
    (receipt_before_the_turn_is_over, r"confirmed while request"),
    (stop_reports_what_it_did_not_do, r"outlived the confirmed stop|a stop took"),
    (closed_sessions_are_kept, r"live sessions are left"),
]


@pytest.mark.parametrize(("plant", "sign"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant, sign: str) -> None:
    """H56: a check that cannot fail is a defect."""
    plant(monkeypatch)
    seen: list[str] = []
    for seed in range(ENOUGH):
        seen += [one for one in simulate(seed).offences if one not in seen]
        if any(re.search(sign, one) for one in seen):
            return
    pytest.fail(f"{ENOUGH} simulations did not find it; they found {seen[:10]}")
