"""The board: how everything is, folded from events; so what it shows and what a client follows can have no gap (H36).

Built from the log (only KINDS) and fed live, it is the same. It belongs to one thread, and asks nobody.
"""

from __future__ import annotations

from collections import deque

from ...errors import NoSessionError
from ...events import (
    AdmissionClosed,
    AdmissionReopened,
    Event,
    MessageDelta,
    ModelDelta,
    RuntimeReady,
    RuntimeStopped,
    SessionDeleted,
    SessionOpened,
    StopReceipt,
    StopRequested,
    ToolOutput,
    TurnEnded,
)
from .counts import Counts
from .shapes import Admission, Card, Question, Queued, Slip, Snapshot
from .tile import SHORT, Tile, head

RECEIPTS = 200
"""Receipts that are kept, besides the last of each session."""
REMOVED = 10_000
"""Deleted sessions that are remembered, for clients that were told of them."""
PREFIX = 4
"""Characters of an id that may stand for it."""
NAMED = 10
"""Sessions that a sentence names."""
_STREAMED = (MessageDelta, ModelDelta, ToolOutput)


class Board:
    """After the event `seq`."""

    KINDS: tuple[str, ...] = (
        *("runtime.ready", "runtime.stopped", "admission.closed", "admission.reopened"),
        *("session.opened", "session.renamed", "session.forked", "session.configured"),
        *("session.closed", "session.deleted"),
        *("turn.started", "turn.ended", "message.user", "message.done"),
        *("model.requested", "model.restarted", "model.answered", "model.failed", "tool.ended", "tool.refused"),
        *("approval.asked", "approval.answered", "approval.withdrawn"),
        *("queue.parked", "queue.released", "queue.discarded"),
        *("stop.requested", "stop.receipt", "process.spawned", "process.ended"),
    )
    """What it must read from the log at start. Everything else that is applied only moves `seq`, or streams."""

    def __init__(self) -> None:
        self.seq = 0
        self.counts = Counts()
        self.changed: dict[str, int] = {}
        """By session: the event that changed its card last. The latest change is at the end."""
        self.removed: dict[str, int] = {}
        """By session: the event that deleted it; the last REMOVED of them."""
        self._tiles: dict[str, Tile] = {}
        self._admission = Admission(True)
        self._stops: dict[int, StopRequested] = {}  # without a receipt
        self._receipts: deque[Slip] = deque(maxlen=RECEIPTS)

    # -- what happens

    def apply(self, event: Event) -> None:
        """Any event, in order; one that was applied is passed over."""
        if event.seq <= self.seq:
            return
        self.seq = event.seq
        if isinstance(event, _STREAMED):
            if (tile := self._tiles.get(event.session)) is not None:
                tile.hear(event.request, "text" if isinstance(event, MessageDelta) else event.channel, event.text)
                self._touch(event.session)
        elif event.kind in _KINDS:
            self._fold(event)

    def _fold(self, event: Event) -> None:
        match event:
            case SessionOpened():
                self._tiles[event.session] = Tile(event)
                self._touch(event.session)
                return
            case SessionDeleted():
                self._forget(event.session)
                return
            case RuntimeReady():  # after a crash nobody said of each process that it has ended
                self._gone(event.seq)
            case RuntimeStopped() if event.confirmed:
                self._gone(event.seq)
            case AdmissionClosed():
                self._admission = Admission(False, event.reason, event.at)
            case AdmissionReopened():
                self._admission = Admission(True, "", event.at)
        if event.session:
            tile = self._tiles.get(event.session)
            if tile is None:
                return
            tile.apply(event)
            self._touch(event.session)
        match event:
            case TurnEnded():
                self.counts.ended(event)
            case StopRequested():
                self._stops[event.seq] = event
            case StopReceipt():
                self._receipt(event)

    def _receipt(self, event: StopReceipt) -> None:
        asked = self._stops.pop(event.request, None)
        if asked is None:
            return  # its session was deleted and is here no more
        self.counts.stopped(asked.reach, event)
        slip = Slip(event.seq, event.session, asked.reach, asked.reason, event.at, event.confirmed, event.receipt)
        self._receipts.append(slip)
        if (tile := self._tiles.get(event.session)) is not None:
            tile.slip = slip
        if event.confirmed and asked.reach != "turn":
            self._gone(asked.seq, event.session)

    def _gone(self, before: int, session: str = "") -> None:
        """Processes that were spawned before this event: of one session, or of all."""
        for id_ in [session] if session else list(self._tiles):
            if self._tiles[id_].gone(before):
                self._touch(id_)

    def _forget(self, session: str) -> None:
        """Nothing of a deleted session is left here."""
        if self._tiles.pop(session, None) is None:
            return
        self.changed.pop(session, None)
        self._stops = {seq: one for seq, one in self._stops.items() if one.session != session}
        if any(one.session == session for one in self._receipts):
            self._receipts = deque((one for one in self._receipts if one.session != session), RECEIPTS)
        self.removed[session] = self.seq
        if len(self.removed) > REMOVED:
            del self.removed[next(iter(self.removed))]

    def _touch(self, session: str) -> None:
        self.changed.pop(session, None)  # so that the latest is at the end
        self.changed[session] = self.seq

    # -- how things are

    def snapshot(self) -> Snapshot:
        return Snapshot(self.seq, self._admission, self.cards())

    def cards(self) -> list[Card]:
        """The oldest first."""
        return [tile.card() for tile in self._tiles.values()]

    def card(self, id: str) -> Card | None:  # noqa: A002  the word for it everywhere
        tile = self._tiles.get(id)
        return None if tile is None else tile.card()

    def since(self, seq: int) -> tuple[list[Card], list[str]]:
        """The cards that changed after this event, and the sessions that were deleted."""
        return [self._tiles[one].card() for one in _after(self.changed, seq)], _after(self.removed, seq)

    def turn(self, id: str) -> int:  # noqa: A002  the word for it everywhere
        """The number of the turn that is open; 0 if none is."""
        tile = self._tiles.get(id)
        return tile.turn if tile is not None and tile.running else 0

    def queue(self, id: str) -> list[Queued]:  # noqa: A002  the word for it everywhere
        tile = self._tiles.get(id)
        return [] if tile is None else tile.queue()

    def approvals(self) -> list[Question]:
        """The oldest first."""
        return sorted((one for tile in self._tiles.values() for one in tile.approvals()), key=lambda one: one.request)

    def receipts(self, session: str | None = None, limit: int = RECEIPTS) -> list[Slip]:
        """The newest first; of one session, or of all."""
        found = [one for one in reversed(self._receipts) if session is None or one.session == session]
        if session is not None and not found and (tile := self._tiles.get(session)) is not None:
            found = [] if tile.slip is None else [tile.slip]
        return found[: max(0, limit)]

    def receipt(self, seq: int) -> Slip | None:
        """If it is among those that are kept."""
        kept = (tile.slip for tile in self._tiles.values() if tile.slip is not None)
        return next((one for many in (self._receipts, kept) for one in many if one.seq == seq), None)

    def admission(self) -> Admission:
        return self._admission

    # -- names

    def resolve(self, word: str) -> str:
        """The id of the session that is meant: by id, by a prefix of it or by title, where only one has that."""
        if word in self._tiles:
            return word
        found = [id_ for id_, tile in self._tiles.items() if word and (is_prefix(word, id_) or word == tile.title)]
        if len(found) == 1:
            return found[0]
        wanted = repr(head(word, SHORT))
        if found:
            raise NoSessionError(f"{wanted} may be {self._names(found, ' or ')}: name one by its id")
        there = "are none" if not self._tiles else "is " if len(self._tiles) == 1 else "are "
        raise NoSessionError(f"there is no session {wanted}; there {there}{self._names(list(self._tiles), ', ')}")

    def _names(self, ids: list[str], between: str) -> str:
        """The latest, if there are too many."""
        tiles = [self._tiles[one] for one in ids[-NAMED:]]
        named = [f"{one.id} ({head(one.title, 40)!r})" if one.title else one.id for one in tiles]
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        return between.join(named) + more


def is_prefix(word: str, id_: str) -> bool:
    return len(word) >= PREFIX and id_.startswith(word)


_KINDS = frozenset(Board.KINDS)


def _after(when: dict[str, int], seq: int) -> list[str]:
    """Those of a later event: they are at the end."""
    found = []
    for id_ in reversed(when):
        if when[id_] <= seq:
            break
        found.append(id_)
    return found[::-1]
