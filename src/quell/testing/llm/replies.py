"""What a model server answers: replies are values, made of what the model thinks, says and calls, and of how it fails.

Thinks("Let me look.") + Says("I list it.") + Calls(("shell", {"command": "ls"}))
Says("one two three").slow(0.1)
Says("one two three").hang(after=2)
Fails(429, retry_after=1)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

from ...errors import UsageError

Fault = Literal["context", "key", "model", "overloaded", "quota", "rate", "request", "server"]
"""Why a request fails, in one word; each API has its own status and its own words for it."""

Garbled = Literal["not json", "html", "truncated", "wrong type", "no type", "empty"]
"""What comes instead of an answer: see `Malformed`."""

Ending = Literal["hang", "close", "reset", "end"]
Stop = Literal["", "length", "filter"]

_OF_STATUS: dict[int, Fault] = {
    400: "request",
    401: "key",
    404: "model",
    429: "rate",
    503: "overloaded",
    529: "overloaded",
}

_WORD = re.compile(r"\S+\s*|\s+")
_SLICE = 12  # characters of a call's arguments that come at once


class Say(msgspec.Struct, frozen=True):
    text: str


class Think(msgspec.Struct, frozen=True):
    text: str
    hidden: bool = False


class CallAll(msgspec.Struct, frozen=True):
    """Calls in parallel. `mixed`: their arguments come a bit of each in turn, where the API can say whose they are."""

    calls: tuple[tuple[str, Mapping[str, Any] | str], ...]
    mixed: bool = False


class Fail(msgspec.Struct, frozen=True):
    fault: Fault
    status: int = 0
    """Where it is not the usual one of the fault."""
    retry_after: float | str | None = None
    message: str = ""


class Tokens(msgspec.Struct, frozen=True):
    """`cached` and `written` are parts of `input`, `thought` is a part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    thought: int = 0


class Reply(msgspec.Struct, frozen=True):
    """One answer. Every method gives another reply; `+` puts what two of them say into one.

    `Reply()` says nothing of its own: it is what the scripted model would answer, in whatever manner it is given.
    """

    parts: tuple[Say | Think | CallAll | Fail, ...] = ()
    pace: float = 0.0
    ending: Ending | None = None
    after: int | None = None
    tokens: Tokens | None = None
    stop: Stop = ""
    garbled: Garbled | None = None

    def __add__(self, other: Reply) -> Reply:
        return Reply(
            self.parts + other.parts,
            self.pace or other.pace,
            self.ending or other.ending,
            self.after if self.ending is not None else other.after,
            self.tokens or other.tokens,
            self.stop or other.stop,
            self.garbled or other.garbled,
        )

    def slow(self, seconds: float) -> Reply:
        """Wait so long before each piece. A piece is a word of text or thought, or some characters of a call."""
        return msgspec.structs.replace(self, pace=seconds)

    def hang(self, after: int | None = None) -> Reply:
        """Send nothing more after so many pieces: None is before the headers, 0 is headers and nothing else."""
        return msgspec.structs.replace(self, ending="hang", after=after)

    def cut(self, after: int | None = None, how: Literal["close", "reset", "end"] = "close") -> Reply:
        """Break off after so many pieces, counted as by `hang`.

        The connection is closed in the midst of the body, or reset; or the body ends as it should, but too early.
        """
        return msgspec.structs.replace(self, ending=how, after=after)

    def counts(self, input: int, output: int, *, cached: int = 0, written: int = 0, thought: int = 0) -> Reply:  # noqa: A002  as in Usage
        """The usage that is told. Of the input so much was `cached` before and `written` to the cache now."""
        return msgspec.structs.replace(self, tokens=Tokens(input, output, cached, written, thought))

    def stops(self, why: Literal["length", "filter"]) -> Reply:
        """The answer is not whole: it got too long, or it was refused."""
        return msgspec.structs.replace(self, stop=why)


def Says(text: str) -> Reply:
    """Text, word by word. A long word is one piece, so `"x" * 10_000_000` is one huge event."""
    return Reply((Say(text),))


def Thinks(text: str, *, hidden: bool = False) -> Reply:
    """Reasoning, signed or encrypted as the API does it; `hidden` is what only the API can read.

    As in life it is only told where the client asked for it: `thinking`, or `reasoning.summary`.
    """
    return Reply((Think(text, hidden),))


def Calls(*calls: tuple[str, Mapping[str, Any] | str], mixed: bool = False) -> Reply:
    """Tool calls in parallel, each a name and its arguments; arguments that are a string are sent as they are."""
    if not calls:
        raise UsageError("Calls needs at least one call: a pair of the tool's name and its arguments")
    return Reply((CallAll(calls, mixed),))


def Fails(why: int | Fault, *, retry_after: float | str | None = None, message: str = "") -> Reply:
    """An error with the body that the API gives it: a status, or a word for one.

    Behind something else in a reply it comes in the stream, as the API's own event.
    """
    if isinstance(why, int):
        return Reply((Fail(_OF_STATUS.get(why, "server" if why >= 500 else "request"), why, retry_after, message),))
    if why not in get_args(Fault):
        raise UsageError(f"nothing fails by '{why}': choose a status, or one of {', '.join(get_args(Fault))}")
    return Reply((Fail(why, 0, retry_after, message),))


def Malformed(what: Garbled = "not json") -> Reply:
    """Not what was promised, with status 200.

    `not json`: words where JSON should be. `html`: a page, as a proxy shows it. `truncated`: JSON that breaks off, in
    a body that is complete. `wrong type`: the right answer as text/plain. `no type`: JSON objects that say nothing.
    `empty`: no body.
    """
    if what not in get_args(Garbled):
        raise UsageError(f"nothing is malformed by '{what}': choose one of {', '.join(get_args(Garbled))}")
    return Reply(garbled=what)


def words(text: str) -> Iterator[str]:
    return (match.group() for match in _WORD.finditer(text))


def slices(text: str) -> Iterator[str]:
    return (text[at : at + _SLICE] for at in range(0, len(text), _SLICE))


def arguments_text(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(dict(arguments)).decode()
