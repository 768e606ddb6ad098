"""What the server needs of a wire format: to check a request, to compose an answer, and to send it in events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import msgspec

from ...ports import Message
from .issued import Issued
from .refusals import Refusals, Refused
from .replies import Reply, Tokens

Json = dict[str, Any]

Piece = tuple[bytes, bool]
"""Bytes to send, and whether they are a piece of the answer (a word, some characters of a call), or around it."""


class Format(Protocol):
    @property
    def refusals(self) -> Refusals: ...

    def key(self, headers: Mapping[str, str]) -> str:
        """The key that the client has shown."""
        ...

    def check(self, body: Json, headers: Mapping[str, str], issued: Issued) -> None:
        """Raises Refused for what the API would not take."""
        ...

    def history(self, body: Json) -> list[Message]:
        """What was said so far."""
        ...

    def compose(self, reply: Reply, body: Json, tokens: Tokens, issued: Issued) -> Json:
        """The whole answer, as it is sent to who does not want a stream."""
        ...

    def stream(self, reply: Reply, whole: Json, body: Json, failed: Refused | None) -> Iterator[Piece]:
        """The same in events. Where it `failed`, the events break off with that."""
        ...


def encode(value: Any) -> bytes:
    return msgspec.json.encode(value)


def event(data: Json, *, piece: bool = False) -> Piece:
    """With its type as the name."""
    return f"event: {data['type']}\ndata: ".encode() + encode(data) + b"\n\n", piece


def data_only(data: Json, *, piece: bool = False) -> Piece:
    return b"data: " + encode(data) + b"\n\n", piece


def count(text: str) -> int:
    """Tokens of a text, roughly."""
    return len(text.split())
