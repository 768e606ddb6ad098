"""A request as the server got it, and what became of it."""

from __future__ import annotations

import time
from typing import Any, Literal

import msgspec

Ended = Literal["", "answered", "left", "cut"]


class ModelRequest(msgspec.Struct, eq=False):
    """`at` and `ended_at` are of `time.monotonic`."""

    method: str
    path: str
    headers: dict[str, str]
    """By their names in lower case."""
    body: Any
    """From JSON; None where it was none."""
    at: float = msgspec.field(default_factory=time.monotonic)
    ended: Ended = ""
    """Empty while it is being answered. `left`: the client closed before the end. `cut`: we did."""
    ended_at: float = 0.0
    pieces: int = 0
    """Of the answer, that were sent."""
    refused: str = ""
    """Why, where it was not as the API wants it."""

    def __repr__(self) -> str:
        """Without headers and body, which hold what is nobody's business."""
        return f"<ModelRequest {self.method} {self.path} {self.ended or 'open'}, {self.pieces} pieces>"
