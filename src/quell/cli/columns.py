"""Rows of words below each other; on a terminal none is longer than that is wide."""

from __future__ import annotations

from collections.abc import Sequence

from .screen import Screen, one_line

WIDE = 40
"""Characters of a cell."""


def show(screen: Screen, rows: Sequence[Sequence[str]]) -> None:
    """The first row is the head."""
    cells = [[one_line(cell, WIDE) or "-" for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]) - 1)]
    for at, row in enumerate(cells):
        line = "  ".join(map(str.ljust, row, [*widths, 0])).rstrip()
        if screen.terminal and len(line) > screen.width:
            line = line[: screen.width - 1] + "…"
        screen.line(("bold" if at == 0 else "", line))
