"""The history of a session is a view of its events: folding them live and from the log gives the same.

Every call of a tool has exactly one result in it, whatever became of the call, because models reject what dangles.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ..events import (
    Event,
    Image,
    MessageDone,
    MessageUser,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    QueueDiscarded,
    SessionCompacted,
    SessionForked,
    ToolCall,
    ToolEnded,
    ToolRefused,
    ToolRequested,
    TurnEnded,
    TurnStarted,
)
from ..ports import Message, ToolResult, ToolSpec

SUMMARY = "Summary of the conversation so far: "
STOPPED = "stopped"
"""What a model is told of a call that has no result."""

CHARACTERS_PER_TOKEN = 4
IMAGE_TOKENS = 1500


class Wish:
    """One call, and what came of it."""

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.requested = False
        self.result: ToolResult | None = None

    @property
    def outcome(self) -> ToolResult:
        return self.result or ToolResult(self.call.id, self.call.tool, STOPPED, True)

    @property
    def size(self) -> int:
        return len(self.call.tool) + len(msgspec.json.encode(self.call.arguments)) + len(self.outcome.text)


class Entry:
    """What the user said, or one answer of a model with its calls. `last` is the last event that it is made of."""

    def __init__(
        self,
        seq: int,
        text: str,
        wishes: list[Wish] | None = None,
        images: list[Image] | None = None,
        kept: dict[str, Any] | None = None,
    ) -> None:
        self.last = seq
        self.text = text
        self.wishes = wishes
        self.images = images or []
        self.kept = kept or {}

    @property
    def waits(self) -> bool:
        return any(wish.result is None for wish in self.wishes or ())

    @property
    def size(self) -> int:
        words = len(self.text) + sum(wish.size for wish in self.wishes or ())
        return words + len(self.images) * IMAGE_TOKENS * CHARACTERS_PER_TOKEN

    def wish(self, event: ToolRequested) -> Wish:
        """The one that is requested. A strategy may read calls out of the text, so that the answer itself has none."""
        assert self.wishes is not None
        for wish in self.wishes:
            if wish.call.id == event.call and not wish.requested:
                break
        else:
            wish = Wish(ToolCall(event.call, event.tool, event.arguments))
            self.wishes.append(wish)
        wish.requested = True
        return wish

    def messages(self) -> list[Message]:
        if self.wishes is None:
            return [Message("user", self.text, images=self.images)]
        if self.wishes:
            calls = [wish.call for wish in self.wishes]
            results = [wish.outcome for wish in self.wishes]
            return [Message("assistant", self.text, calls, kept=self.kept), Message("tool", results=results)]
        return [Message("assistant", self.text, kept=self.kept)] if self.text else []


class History:
    """Give it every event of the session, in order; of a fork, those of its origin before its own."""

    def __init__(self) -> None:
        self.last_seq = 0
        self._entries: list[Entry] = []
        self._summary: str | None = None
        self._upto = 0
        self._waiting: dict[int, MessageUser] = {}  # messages whose turn has not come
        self._summaries: set[int] = set()  # requests for one, which are no part of the conversation
        self._question: Entry | None = None  # what the turn that runs answers
        self._answer: Entry | None = None  # the latest of that turn
        self._calls: dict[int, tuple[Entry, Wish]] = {}

    @property
    def size(self) -> int:
        """In tokens, roughly; without the system prompt."""
        return (len(self._summary or "") + sum(entry.size for entry in self._entries)) // CHARACTERS_PER_TOKEN

    def messages(self, system: str) -> list[Message]:
        """What a model is given: the system prompt, if there is one, the summary, and what came after it."""
        found = [Message("system", system)] if system else []
        if self._summary is not None:
            found.append(Message("user", SUMMARY + self._summary))
        for entry in self._entries:
            found += entry.messages()
        return found

    def reach(self, room: int) -> int:
        """The event up to which a summary must stand for what there is, so that at most `room` characters stay.

        What is being answered stays whatever its length, and steps stay whole. 0: all else has room.
        """
        for entry in reversed(self._entries):
            if entry is not self._question:
                room -= entry.size
                if room < 0:
                    return entry.last
        return 0

    def apply(self, event: Event) -> None:
        self.last_seq = event.seq
        match event:
            case MessageUser():
                self._waiting[event.seq] = event
            case QueueDiscarded():
                for seq in event.messages:
                    self._waiting.pop(seq, None)
            case TurnStarted():
                self._break()
                if (said := self._waiting.pop(event.cause, None)) is not None:
                    self._question = Entry(event.seq, said.text, images=said.images)
                    self._entries.append(self._question)
            case ModelRequested() if event.purpose == "compact":
                self._summaries.add(event.seq)
            case ModelAnswered() | ModelFailed() if event.request in self._summaries:
                self._summaries.discard(event.request)
            case ModelAnswered():
                self._answered(event, event.text, event.calls, event.kept)
            case ToolRequested():
                answer = self._answer or self._answered(event, "", [])
                self._calls[event.seq] = answer, answer.wish(event)
            case ToolEnded():
                words = "\n".join(part for part in (event.error, event.result) if part)
                self._result(event, words, bool(event.error))
            case ToolRefused():
                self._result(event, f"refused: {event.reason}", True)
            case MessageDone() if self._answer is None and event.text:  # said without a model of ours
                self._answered(event, event.text, [])
            case TurnEnded():
                self._break()
            case SessionForked():
                self._break()
                self._waiting.clear()  # those wait in the origin
            case SessionCompacted() if event.upto >= self._upto:
                self._summary, self._upto = event.summary, event.upto
                self._entries = [entry for entry in self._entries if self._stays(entry)]

    def _answered(self, event: Event, text: str, calls: list[ToolCall], kept: dict[str, Any] | None = None) -> Entry:
        self._answer = Entry(event.seq, text, [Wish(call) for call in calls], kept=kept)
        self._entries.append(self._answer)
        return self._answer

    def _result(self, event: ToolEnded | ToolRefused, text: str, failed: bool) -> None:
        if (found := self._calls.pop(event.request, None)) is not None:
            entry, wish = found
            entry.last = event.seq
            wish.result = ToolResult(wish.call.id, wish.call.tool, text, failed)

    def _stays(self, entry: Entry) -> bool:
        """Beside the summary: what came after, what is being answered, and the answer whose calls are still at work."""
        return entry.last > self._upto or entry is self._question or (entry is self._answer and entry.waits)

    def _break(self) -> None:
        """Nothing more comes for what was asked before."""
        self._question = self._answer = None
        self._calls.clear()
        self._summaries.clear()


def size_of(messages: list[Message], tools: list[ToolSpec]) -> int:
    """Of a request, in characters, roughly."""
    words = sum(len(msgspec.json.encode(one)) for one in tools)
    for message in messages:
        words += len(message.text) + len(message.images) * IMAGE_TOKENS * CHARACTERS_PER_TOKEN
        words += sum(len(one.tool) + len(msgspec.json.encode(one.arguments)) for one in message.calls)
        words += sum(len(one.text) for one in message.results)
    return words
