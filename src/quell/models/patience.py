"""A model that fails for a while is asked again, and who waits is told each time; a stop ends the wait at once.

What was said before a break is declared void first (`Anew`): no answer is made of two halves.
"""

from __future__ import annotations

import asyncio
import email.utils
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing

import msgspec

from ..errors import ModelError
from ..ports import Anew, Chunk, Notice

LONGEST = 60.0
"""Seconds that we wait because a server asks for it. More is the person's to decide."""


class Passing(Exception):
    """It may work when it is tried again. `after` is what the server asks for, in seconds; `more` is for the end."""

    def __init__(self, sentence: str, after: float | None = None, more: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.after = after
        self.more = more


class Patience(msgspec.Struct, frozen=True):
    again: int = 5
    """Times that it is asked again."""
    first: float = 1.0
    """Seconds before the first of them; each next wait is twice as long."""

    def wait(self, attempt: int, after: float | None) -> float:
        """Many who failed together should not come back together."""
        grown: float = min(LONGEST, self.first * 2 ** (attempt - 1))
        return max(after or 0.0, grown * random.uniform(0.75, 1.25))


async def patient(ask: Callable[[], AsyncIterator[Chunk]], patience: Patience) -> AsyncIterator[Chunk]:
    """What `ask` streams; it is called anew after each `Passing`. ModelError is what ends it."""
    for attempt in range(1, patience.again + 2):
        said = False
        try:
            async with aclosing(ask()) as chunks:  # type: ignore[type-var]  # an async generator has aclose
                async for chunk in chunks:
                    yield chunk
                    said = said or not isinstance(chunk, Notice)
            return
        except Passing as trouble:
            passing = trouble
        if attempt > patience.again:
            tried = f" (tried {attempt} times)" if attempt > 1 else ""
            raise ModelError(f"{passing.sentence}{tried}{passing.more}")
        if passing.after is not None and passing.after > LONGEST:
            wait = f"it asks to wait for {_shown(passing.after)}, try again then"
            raise ModelError(f"{passing.sentence}; {wait}{passing.more}")
        seconds = patience.wait(attempt, passing.after)
        again = f"trying again in {_shown(seconds)} ({attempt} of {patience.again})"
        if said:
            yield Anew(f"{passing.sentence}, and what it said so far is void; {again}")
        else:
            yield Notice(f"{passing.sentence}; {again}")
        await asyncio.sleep(seconds)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks us to wait: a number of them, or a date."""
    if (exact := _number(headers.get("retry-after-ms", ""))) is not None:
        return exact / 1000
    asked = headers.get("retry-after", "").strip()
    if (seconds := _number(asked)) is not None:
        return seconds
    try:
        return max(0.0, email.utils.parsedate_to_datetime(asked).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return max(0.0, value) if math.isfinite(value) else None


def _shown(seconds: float) -> str:
    if seconds >= 120:
        return f"{math.ceil(seconds / 60)} minutes"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.2g} s"
