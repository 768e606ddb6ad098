"""What an API gives out and recognises when it comes back: ids, signatures, encrypted reasoning, stored responses.

A seal holds what it seals, so it is recognised by any server, also by one that starts later.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from typing import Any

_HEAD = "gAAAAAB"
_DIGEST = 16


def seal(text: str) -> str:
    body = text.encode("utf-8", "surrogatepass")
    return _HEAD + base64.urlsafe_b64encode(_digest(body) + body).decode()


def unseal(sealed: object) -> str | None:
    """What was sealed; None where it was not we who did."""
    if not isinstance(sealed, str) or not sealed.startswith(_HEAD):
        return None
    try:
        whole = base64.urlsafe_b64decode(sealed.removeprefix(_HEAD))
    except (binascii.Error, ValueError):
        return None
    digest, body = whole[:_DIGEST], whole[_DIGEST:]
    return body.decode("utf-8", "surrogatepass") if digest == _digest(body) else None


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(b"quell model server\0" + body).digest()[:_DIGEST]


class Issued:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.thoughts: dict[str, str] = {}
        """By the id of a call or an item: the reasoning that came before it, and has to come back with it."""
        self.responses: dict[str, list[Any]] = {}
        """By the id of a stored response: everything that was said up to it, as input items."""

    def id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):024d}"
