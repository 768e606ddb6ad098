"""What a crash left: found in the log at the next start, and ended there. No effect is ever repeated (H23)."""

from __future__ import annotations

from collections.abc import Iterable

from ..events import (
    ENDERS,
    OPENERS,
    AdmissionClosed,
    AdmissionReopened,
    Event,
    MessageUser,
    QueueDiscarded,
    QueueParked,
    QueueReleased,
    SessionDeleted,
    ToolStarted,
    TurnStarted,
)

Messages = dict[int, MessageUser | None]


class Queue:
    """The messages of one session that were not answered, as its events tell."""

    def __init__(self) -> None:
        self.waiting: Messages = {}
        self.parked: Messages = {}

    def apply(self, event: Event) -> None:
        match event:
            case MessageUser():
                self.waiting[event.seq] = event
            case TurnStarted():
                self.waiting.pop(event.cause, None)
            case QueueParked():
                self._move(event.messages, self.waiting, self.parked)
            case QueueReleased():
                self._move(event.messages, self.parked, self.waiting)
            case QueueDiscarded():
                for seq in event.messages:
                    self.parked.pop(seq, None)

    @staticmethod
    def _move(numbers: Iterable[int], origin: Messages, goal: Messages) -> None:
        """A message that was sent before the first event that is read here is known by its number only."""
        for seq in numbers:
            goal[seq] = origin.pop(seq, None)


class Leftovers:
    """Given every event since the last orderly end."""

    def __init__(self) -> None:
        self.requests: dict[int, Event] = {}
        self.begun: set[int] = set()
        self.queues: dict[str, Queue] = {}
        self.epochs: dict[str, int] = {}
        self.deleted: dict[str, int] = {}
        """By session: the event that says so. Its other events may still be there."""

    def apply(self, event: Event) -> None:
        if event.kind in OPENERS:
            self.requests[event.seq] = event
        elif event.kind in ENDERS:
            self.requests.pop(event.request, None)
            self.begun.discard(event.request)
        elif isinstance(event, ToolStarted):
            self.begun.add(event.request)
        elif isinstance(event, SessionDeleted):
            self.deleted[event.session] = event.seq
        if event.session:
            self.queues.setdefault(event.session, Queue()).apply(event)
            self.epochs[event.session] = max(event.epoch, self.epochs.get(event.session, 0))

    def drop_deleted(self) -> None:
        self.requests = {seq: one for seq, one in self.requests.items() if one.session not in self.deleted}
        for session in self.deleted:
            self.queues.pop(session, None)


def closed_by(events: Iterable[Event]) -> AdmissionClosed | None:
    """What keeps admission closed, if it is: until somebody reopens it, over restarts too (H21)."""
    closed: AdmissionClosed | None = None
    for event in events:
        if isinstance(event, AdmissionClosed | AdmissionReopened):
            closed = event if isinstance(event, AdmissionClosed) else None
    return closed
