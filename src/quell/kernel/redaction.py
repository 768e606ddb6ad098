"""Known secrets never reach an event, and so no log, stream, export, page or history: each is `***` wherever it is.

Also one that comes in parts: of a stream, what could be the beginning of a secret is held back until more is known.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import re
import traceback
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from ..errors import UsageError
from ..events import Event, Image, Usage
from ..secrecy import LEAST
from .asked import is_text

T = TypeVar("T")
Key = tuple[str, int, int, str]
MASK = "***"
SHORT = 500
"""Characters up to which one pattern of all secrets is faster than a search for each."""
_stamp = msgspec.structs.force_setattr


class Redaction:
    """Of one runtime. What masks may be called from any thread, what holds back only from the loop.

    It is a filter for `logging` as well: `handler.addFilter(redaction)`.
    """

    def __init__(self) -> None:
        self.active = False
        self.held: dict[Key, tuple[Event, str]] = {}
        """Of each stream: the last event of it, and the text that is held back."""
        self._forms: tuple[str, ...] = ()
        self._least = 0
        self._pattern: re.Pattern[str] = re.compile(r"(?!)")
        self._encoded: re.Pattern[bytes] = re.compile(rb"(?!)")
        self._bodies: tuple[bytes, ...] = ()
        self._ends: dict[str, list[tuple[str, int]]] = {}  # by three characters: the beginnings that end with them
        self._one: frozenset[str] = frozenset()  # beginnings of one character
        self._two: frozenset[str] = frozenset()
        self._letters: frozenset[str] = frozenset()  # what a beginning may end with

    def conceal(self, *values: str) -> None:
        """From here on these are masked. UsageError for one that is too short to be told from other words."""
        found = set(self._forms)
        for value in values:
            if len(is_text("a secret", value)) < LEAST:
                raise UsageError(f"a secret has {LEAST} characters at least: a shorter one would be found everywhere")
            found |= forms(value)
        if len(found) == len(self._forms):
            return
        known = tuple(sorted(found, key=lambda one: (-len(one), one)))
        ends: dict[str, list[tuple[str, int]]] = {}
        for one in known:
            for length in range(3, len(one)):
                ends.setdefault(one[length - 3 : length], []).append((one, length))
        self._ends = ends
        self._one, self._two = (frozenset(one[:length] for one in known) for length in (1, 2))
        self._letters = frozenset("".join(known))
        self._bodies = tuple(msgspec.json.encode(one)[1:-1] for one in known)
        self._encoded = re.compile(b"|".join(map(re.escape, self._bodies)))
        self._pattern = re.compile("|".join(map(re.escape, known)))
        self._least = len(known[-1])
        self._forms = known
        self.active = True

    # -- masking

    def text(self, text: str) -> str:
        """The same, with every secret masked."""
        if self.active and len(text) >= self._least and self._is_in(text):
            return masked(text, self._places(text))
        return text

    def thing(self, value: Any) -> Any:
        """All texts in it, keys too; a copy where it is no text."""
        match value:
            case str():
                return self.text(value)
            case None | bool() | int() | float():
                return value
            case dict():
                return {self.thing(key) if isinstance(key, str) else key: self.thing(one) for key, one in value.items()}
            case list() | tuple() | set() | frozenset():
                return type(value)(self.thing(one) for one in value)
            case msgspec.Struct():
                fields = {name: self.thing(getattr(value, name)) for name in value.__struct_fields__}
                return msgspec.structs.replace(value, **fields)
        return self.thing(msgspec.to_builtins(value))

    def touches(self, event: Event, body: bytes) -> bool:
        """Whether there may be a secret in it; `body` is its JSON form."""
        texts, deep = plan(type(event))
        least = self._least
        for name in texts:
            text = getattr(event, name)
            if type(text) is not str:
                return self._is_in_body(body)  # bytes, say, which JSON has as text
            if len(text) >= least and self._is_in(text):
                return True
        for name in deep:
            if getattr(event, name):
                return self._is_in_body(body)
        return False

    def mask(self, event: Event) -> None:
        """In place."""
        for names in plan(type(event)):
            for name in names:
                _stamp(event, name, self.thing(getattr(event, name)))

    def _is_in(self, text: str) -> bool:
        if len(text) < SHORT:
            return self._pattern.search(text) is not None
        return any(one in text for one in self._forms)

    def _is_in_body(self, body: bytes) -> bool:
        if len(body) < SHORT:
            return self._encoded.search(body) is not None
        return any(one in body for one in self._bodies)

    def _places(self, text: str) -> list[tuple[int, int]]:
        """Where secrets stand; those that overlap are one place."""
        found = []
        for one in self._forms:
            start = text.find(one)
            while start >= 0:
                found.append((start, start + len(one)))
                start = text.find(one, start + 1)
        merged: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = merged[-1][0], max(end, merged[-1][1])
            else:
                merged.append((start, end))
        return merged

    # -- streams

    def take(self, event: Event) -> bool:
        """A part of a stream: what it may show by now is put into it. False when that is nothing."""
        text: Any = event.text  # type: ignore[attr-defined]  # every delta has one
        if not isinstance(text, str):
            return True
        if not self.held and text[-1:] not in self._letters:
            return True
        earlier = self.held.pop(_key(event), None) if self.held else None
        if earlier is not None:
            text = earlier[1] + text
        length = self._beginning(text)
        if earlier is None and not length:
            return True
        places, upto = self._places(text), len(text) - length
        for start, end in places:
            if start < upto < end:
                upto = start  # held back whole: its end may be the beginning of another
        if upto < len(text):
            self.held[_key(event)] = event, text[upto:]
        _stamp(event, "text", masked(text[:upto], [one for one in places if one[1] <= upto]))
        return upto > 0

    def rest(self, request: int) -> list[Event]:
        """What was held back of the streams that end with this request, or with the event that was its cause."""
        found = []
        for key in [one for one in self.held if request in one[1:3]]:
            event, text = self.held.pop(key)
            found.append(msgspec.structs.replace(event, seq=0, at=0.0, text=self.text(text)))
        return found

    def _beginning(self, text: str) -> int:
        """How long the longest end of it is with which a secret begins, but for a whole one."""
        longest = 0
        for one, length in self._ends.get(text[-3:], ()):
            if length > longest and text.endswith(one[:length]):
                longest = length
        if longest:
            return longest
        return 2 if text[-2:] in self._two else 1 if text[-1:] in self._one else 0

    # -- the program's own log

    def filter(self, record: logging.LogRecord) -> bool:
        """As a filter of loggers and handlers: every record passes, masked."""
        if self.active:
            try:
                words = record.getMessage()
            except Exception:  # noqa: BLE001  a boundary: logging itself says what is wrong with the record
                return True
            if (plain := self.text(words)) != words:
                record.msg, record.args = plain, ()
            if record.exc_info and record.exc_info[0] is not None:
                told = record.exc_text or "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
                if (plain := self.text(told)) != told:
                    record.exc_info, record.exc_text = None, plain
            if record.stack_info:
                record.stack_info = self.text(record.stack_info)
        return True


def forms(value: str) -> set[str]:
    """As a secret may stand in a text: as it is, and as it is in JSON."""
    found = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    # Bytes that are no UTF-8 are replaced on their way into an event.
    found |= {one.encode("utf-8", "replace").decode() for one in found}
    found.add(os.fsencode(value).decode("utf-8", "replace") if _is_bytes(value) else value)
    return {one for one in found if _is_unicode(one)}


def _is_bytes(value: str) -> bool:
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        return False
    return True


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def masked(text: str, places: Iterable[tuple[int, int]]) -> str:
    parts, last = [], 0
    for start, end in places:
        parts += [text[last:start], MASK]
        last = end
    return "".join([*parts, text[last:]])


@functools.cache
def plan(kind: type[Event]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields of a type that are text, and those that hold any. The name of a session is our own.

    Pictures are passed over: base64 of a picture holds no secret as it is written, and searching megabytes of it for
    each of them would hold up the loop.
    """
    texts, deep = [], []
    for field in msgspec.structs.fields(kind):
        if field.type is str and field.name != "session":
            texts.append(field.name)
        elif field.type not in (str, int, float, bool, Usage, list[Image]) and not _is_words(field.type):
            deep.append(field.name)
    return tuple(texts), tuple(deep)


def _is_words(kind: Any) -> bool:
    """A Literal: one of a few words."""
    return getattr(kind, "__origin__", None) is not None and not isinstance(kind.__origin__, type)


def _key(event: Event) -> Key:
    return event.kind, event.request, event.cause, getattr(event, "channel", "")
