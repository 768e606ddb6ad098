"""A session as a file: JSONL is every event in its one JSON form, Markdown is the conversation for people.

In Markdown what people and models said is quoted, and what tools got and gave is fenced: nothing in it ends the block.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..events import (
    ApprovalAnswered,
    ApprovalWithdrawn,
    Event,
    MessageDone,
    MessageUser,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    QueueDiscarded,
    QueueParked,
    SessionCompacted,
    SessionConfigured,
    SessionForked,
    StopReceipt,
    StopRequested,
    ToolEnded,
    ToolRefused,
    ToolRequested,
    TurnEnded,
    TurnStarted,
    encode,
)
from ..images import size_of

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def to_jsonl(events: Iterable[Event]) -> Iterator[bytes]:
    """One line for each event, as the log has it."""
    for event in events:
        yield encode(event) + b"\n"


def to_markdown(events: Iterable[Event], title: str) -> str:
    """The conversation of one session. Messages stand where their turn began; calls where they ended."""
    page = _Page()
    for event in events:
        page.add(event)
    return "\n\n".join([f"# {_line(title)}", *page.finished()]) + "\n"


class _Page:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._waiting: dict[int, MessageUser] = {}
        self._calls: dict[int, ToolRequested] = {}
        self._stops: dict[int, StopRequested] = {}
        self._summaries: set[int] = set()
        self._said = ""

    def add(self, event: Event) -> None:
        match event:
            case MessageUser():
                self._waiting[event.seq] = event
            case TurnStarted():
                self._said = ""
                if (message := self._waiting.pop(event.cause, None)) is not None:
                    self._user("## User", message)
            case ModelRequested() if event.purpose == "compact":
                self._summaries.add(event.seq)
            case ModelAnswered() if event.request not in self._summaries:
                self._answer(event.text)
            case MessageDone():
                self._answer(event.text)
            case ModelFailed():
                self._note("The model failed", event.error)
            case ToolRequested():
                self._calls[event.seq] = event
            case ToolEnded():
                self._call(event, "failed" if event.error else "", event.error, event.result)
            case ToolRefused():
                self._call(event, "refused", event.reason, "")
            case ApprovalAnswered():
                self._note("Approved" if event.allow else "Not approved", event.reason)
            case ApprovalWithdrawn():
                self._note("Approval withdrawn", event.reason)
            case TurnEnded() if event.end != "completed":
                self._note(f"The turn ended: {event.end}", event.reason)
            case QueueParked():
                self._note(f"Parked, of what waits: {len(event.messages)}", event.reason)
            case QueueDiscarded():
                for seq in event.messages:
                    self._waiting.pop(seq, None)
                self._note(f"Discarded, of what waits: {len(event.messages)}", event.reason)
            case StopRequested():
                self._stops[event.seq] = event
                self._note(f"Stop of {event.reach} was asked for", event.reason)
            case StopReceipt():
                self._receipt(event)
            case SessionCompacted():
                self._parts += ["**What came before was summed up:**", quoted(event.summary)]
            case SessionConfigured():
                self._note("From here on", f"{event.agent} with {event.model}" if event.model else event.agent)
            case SessionForked():
                self._waiting.clear()
                self._note("Forked from", event.origin)

    def finished(self) -> list[str]:
        """What is left open comes last."""
        for call in list(self._calls.values()):
            self._parts += [f"### {code(call.tool)}, without a result", fenced(_json(call.arguments), "json")]
        for message in self._waiting.values():
            self._user("## User, not answered yet", message)
        return self._parts

    def _user(self, heading: str, message: MessageUser) -> None:
        """Pictures are named: what they show is in the JSONL."""
        self._parts += [heading, quoted(message.text)]
        for one in message.images:
            self._note("With a picture", f"{one.media}, {size_of(one) / 1000:.1f} kB")

    def _answer(self, text: str) -> None:
        if text and text != self._said:
            self._parts += ["## Assistant", quoted(text)]
            self._said = text

    def _note(self, words: str, detail: str) -> None:
        self._parts.append(f"*{words}{f': {_line(detail)}' if detail.strip() else ''}*")

    def _call(self, event: ToolEnded | ToolRefused, verdict: str, why: str, result: str) -> None:
        call = self._calls.pop(event.request, None)
        name = code(call.tool) if call else "a call"
        self._parts.append(f"### {name}{f', {verdict}' if verdict else ''}")
        if call:
            self._parts.append(fenced(_json(call.arguments), "json"))
        self._parts += [fenced(text, "text") for text in (why, result) if text]

    def _receipt(self, event: StopReceipt) -> None:
        stop = self._stops.pop(event.request, None)
        seconds = f" after {event.at - stop.at:.1f} s" if stop else ""
        processes, survivors = (_listed(event.receipt, word) for word in ("processes", "survivors"))
        facts = f"; processes: {len(processes)}" if processes else ""
        facts += f"; alive: {_line(', '.join(map(str, survivors)))}" if survivors else ""
        self._parts.append(f"**Stop {'confirmed' if event.confirmed else 'unconfirmed'}**{seconds}{facts}")


def quoted(text: str) -> str:
    """As a quotation: whatever is left open in it ends with it."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines() or [""])


def fenced(text: str, language: str) -> str:
    """In a fence that is longer than any in the text."""
    ticks = "`" * max(3, _longest_run(text) + 1)
    return f"{ticks}{language}\n{text.removesuffix(chr(10))}\n{ticks}"


def code(text: str) -> str:
    """Inside a line, whatever it holds."""
    flat = " ".join(text.split()) or "?"
    ticks = "`" * (_longest_run(flat) + 1)
    room = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{ticks}{room}{flat}{room}{ticks}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)


def _line(text: str) -> str:
    """Words of others inside one of our lines: no new line, and nothing that Markdown takes for its own."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _listed(receipt: dict[str, Any], word: str) -> list[object]:
    found = receipt.get(word)
    return found if isinstance(found, list) else []
