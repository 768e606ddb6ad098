"""Wrong words: naming the nearest right one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)`, or nothing where none is near."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""
