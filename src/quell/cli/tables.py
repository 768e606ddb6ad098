"""Tables of Markdown: their columns below each other, and no wider than the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable

from .cells import cell, cells
from .screen import Line
from .wrapping import folded

LEAST = 4
"""Cells that a column has at least; where there is no room for that, the table stays as it was written."""
_GAP = 2
_RULE = re.compile(r"\s*\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?\s*")
_BETWEEN = re.compile(r"(?<!\\)\|")

Rendered = Callable[[str], Line]


def is_table(rows: list[str]) -> bool:
    """Whether what stands below the first row says so."""
    return len(rows) > 1 and "-" in rows[1] and _RULE.fullmatch(rows[1]) is not None


def table(rows: list[str], width: int, rule: str, rendered: Rendered) -> list[Line]:
    """As lines that fit; none where that cannot be."""
    head, aligned, *body = (_cells(one) for one in rows)
    columns = len(head)
    grid = [[rendered(one) for one in (row + [""] * columns)[:columns]] for row in (head, *body)]
    grid[0] = [[(f"bold {style}".strip(), text) for style, text in one] for one in grid[0]]
    wide = [max(LEAST, *(_size(row[at]) for row in grid)) for at in range(columns)]
    room = width - _GAP * (columns - 1)
    if columns * LEAST > room:
        return []
    while sum(wide) > room:
        wide[wide.index(max(wide))] -= 1
    right = [one.endswith(":") and not one.startswith(":") for one in (aligned + [""] * columns)[:columns]]
    lines = [line for row in grid for line in _row(row, wide, right)]
    below = sum(1 for _ in _row(grid[0], wide, right))
    return [*lines[:below], [("dim", (" " * _GAP).join(rule * one for one in wide))], *lines[below:]]


def _row(row: list[Line], wide: list[int], right: list[bool]) -> list[Line]:
    """One row, which is as many lines as its tallest cell."""
    tall = [_broken(one, room) for one, room in zip(row, wide, strict=True)]
    found: list[Line] = []
    for number in range(max(map(len, tall))):
        line: Line = []
        for at, lines in enumerate(tall):
            parts = lines[number] if number < len(lines) else []
            blank = ("", " " * max(0, wide[at] - _size(parts)))
            last = at + 1 == len(tall)
            line += [blank, *parts] if right[at] else parts if last else [*parts, blank]
            line.append(("", "" if last else " " * _GAP))
        found.append(line)
    return found


def _broken(line: Line, room: int) -> list[Line]:
    """Between words, and within a word that is longer than the room."""
    found: list[Line] = []
    for one in folded(line, room):
        found.append([])
        taken = 0
        for style, text in one:
            for char in text:
                taken += cell(char)
                if taken > room:
                    found.append([])
                    taken = cell(char)
                found[-1].append((style, char))
    return found


def _cells(row: str) -> list[str]:
    inner = row.strip().removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    return [one.strip().replace("\\|", "|") for one in _BETWEEN.split(inner)]


def _size(line: Line) -> int:
    return sum(cells(text) for _, text in line)
