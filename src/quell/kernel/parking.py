"""Messages that wait in a session, and those that a stop has parked: neither fired nor lost (H19)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..events import MessageUser, QueueDiscarded, QueueParked, QueueReleased, StopRequested

if TYPE_CHECKING:
    from .session import Session


def park(session: Session, asked: StopRequested, reason: str) -> None:
    """By a stop: what waits does so until a person says what is to become of it."""
    if session.waiting:
        numbers = [one.seq for one in session.waiting]
        session.emit(
            QueueParked(session=session.id, epoch=session.epoch, cause=asked.seq, messages=numbers, reason=reason)
        )
        session.parked.extend(session.waiting)
        session.waiting.clear()


def release(session: Session, messages: Iterable[int] | None) -> list[int]:
    """In their order, before any that came later."""
    chosen, rest = _among_parked(session, messages)
    numbers = [one.seq for one in chosen]
    if numbers:
        session.emit(QueueReleased(session=session.id, epoch=session.epoch, source="user", messages=numbers))
        session.waiting = deque(sorted([*chosen, *session.waiting], key=lambda one: one.seq))
        session.parked = rest
        session.go_on()
    return numbers


def discard(session: Session, messages: Iterable[int] | None) -> list[int]:
    chosen, rest = _among_parked(session, messages)
    numbers = [one.seq for one in chosen]
    if numbers:
        session.emit(QueueDiscarded(session=session.id, epoch=session.epoch, source="user", messages=numbers))
        session.parked = rest
    return numbers


def _among_parked(session: Session, messages: Iterable[int] | None) -> tuple[list[MessageUser], list[MessageUser]]:
    """Those that are meant, and the rest. UsageError names one that is not parked."""
    if messages is None:
        return session.parked, []
    wanted, parked = list(messages), {one.seq for one in session.parked}
    for number in wanted:
        if number not in parked:
            there = f"there are {', '.join(map(str, sorted(parked)))}" if parked else "there is none"
            raise UsageError(f"message {number!r} of session {session.id} is not parked; {there}")
    chosen = [one for one in session.parked if one.seq in wanted]
    return chosen, [one for one in session.parked if one.seq not in wanted]
