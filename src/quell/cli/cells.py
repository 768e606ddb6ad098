"""How much room text takes on a terminal: a character may take two cells, or none."""

from __future__ import annotations

_PICTURE = "\ufe0f"  # makes the character before it a picture, which most terminals show in two cells


def cells(text: str) -> int:
    """What it takes on a line, rather too much than too little."""
    return len(text) if text.isascii() else sum(map(cell, text))


def cell(char: str) -> int:
    """0, 1 or 2."""
    if char.isascii() or char == _PICTURE:
        return 1
    from unicodedata import category, east_asian_width  # a file of its own, which most text does without

    if category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(char) in ("W", "F") else 1


def cut(text: str, room: int, more: str = "…") -> str:
    """As much of it as there is room for; that something is left out is seen."""
    if cells(text) <= room:
        return text
    taken = len(more)
    for at, char in enumerate(text):
        taken += cell(char)
        if taken > room:
            return text[:at] + more
    return text


def pieces(text: str, room: int) -> list[str]:
    """All of it, broken wherever the room ends, and at least one piece."""
    found, taken = [""], 0
    for char in text:
        taken += cell(char)
        if taken > room and found[-1]:
            found.append("")
            taken = cell(char)
        found[-1] += char
    return found
