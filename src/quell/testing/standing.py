"""How things stand at one point of a log: its requests, sessions and messages; and which kind answers which."""

from __future__ import annotations

from ..events import OPENERS, Event

PARTS = {
    "harness.ready": "harness.starting",
    "harness.idle": "harness.starting",
    "message.delta": "turn.started",
    "message.done": "turn.started",
    "model.delta": "model.requested",
    "model.restarted": "model.requested",
    "tool.started": "tool.requested",
    "tool.output": "tool.requested",
}
"""The replies that end nothing, and the requests that they belong to."""

ANSWERS = PARTS | {end: opener for opener, ends in OPENERS.items() for end in ends}
"""Which request each kind of reply belongs to."""

INNER = frozenset({"model.requested", "tool.requested", "approval.asked"})
"""Requests that end before their turn does."""

EFFECTS = frozenset({"tool.started", "model.requested", "approval.asked", "process.spawned"})
"""What nothing starts behind the fence."""

OF_SESSIONS = frozenset("session turn message model tool approval queue stop process memory harness".split())
"""The families that need their session; the others may speak of one that is not there, or no more."""


class Request:
    """`end` is the kind that ended it, at `ended`."""

    __slots__ = (
        "allowed",
        "approvals",
        "end",
        "ended",
        "epoch",
        "inner",
        "kind",
        "outer",
        "seq",
        "session",
        "started",
        "turn",
    )

    def __init__(self, event: Event) -> None:
        self.kind, self.seq, self.session = event.kind, event.seq, event.session
        self.turn, self.epoch = event.turn, event.epoch
        self.end = ""
        self.ended = 0
        self.started = 0
        """Of a tool request."""
        self.approvals: list[Request] = []
        self.allowed = False
        """Of an approval."""
        self.inner: dict[int, Request] = {}
        """Of a turn: what is open in it."""
        self.outer: Request | None = None
        """Of a sub-agent's turn: the tool request that it is part of."""

    def __str__(self) -> str:
        return f"request {self.seq} ({self.kind})"


class Message:
    def __init__(self, outer: Request | None) -> None:
        self.outer = outer
        self.state = ""
        """`parked`, `discarded`, `answered`; empty while it waits."""


class Session:
    def __init__(self) -> None:
        self.opened = self.forked = self.deleted = False
        self.epoch = self.number = 0
        """Of the latest turn or stop; of the latest turn."""
        self.fence = self.stop = 0
        """The epoch that the latest stop made, and its `seq`."""
        self.outer: Request | None = None
        """The tool request that opened it, for a sub-agent."""
        self.running: Request | None = None
        self.turns: dict[int, Request] = {}
        self.messages: dict[int, Message] = {}
