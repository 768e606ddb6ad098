"""A call that needs leave, as a person sees it: all of it, hidden characters too.

Whatever is in an argument stands behind a bar or its name, so that nothing in it can look like anything else.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ..events import ApprovalAsked
from .cells import cells, pieces
from .screen import Line, exact

LINES = 20
"""Of a question, until all is asked for."""
SHOW = "v"
_NARROW = 16  # columns that an argument has at least
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


def question(asked: ApprovalAsked, width: int, *, whole: bool = False, fancy: bool = True) -> tuple[list[Line], bool]:
    """What is asked, with all of its arguments; and whether something was left out."""
    rows = _rows(dict(asked.arguments), max(_NARROW, width - 3), "│" if fancy else "|")
    shown = rows if whole or len(rows) <= LINES else rows[: LINES - 1]
    lines: list[Line] = [[("bold yellow", f"{exact(asked.tool)} asks for leave")], *shown]
    left_out = len(rows) - len(shown)
    if left_out:
        lines.append([("dim", f"  {'…' if fancy else '...'} {left_out} more lines; {SHOW} shows all")])
    return lines, bool(left_out)


def _rows(arguments: dict[str, Any], room: int, bar: str) -> list[Line]:
    """A command comes first and needs no name; each other argument has its own."""
    found: list[Line] = []
    if isinstance(command := arguments.get("command"), str) and command:
        del arguments["command"]
        found += _block(command, room, bar)
    names = {name: name if _NAME.fullmatch(name) else _quoted(name) for name in arguments}
    wide = max(map(cells, names.values()), default=0)
    for name, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        said = _quoted(value) if isinstance(value, str) and _mistakable(value) else exact(text).expandtabs(4)
        shown = names[name]
        if "\n" in text or 2 + wide + 2 + cells(said) > room:
            found += [[("", "  "), ("dim", shown)]] if cells(shown) <= room else _block(shown, room, bar)
            found += _block(text, room, bar)
        else:
            found.append([("", "  "), ("dim", shown + " " * (wide - cells(shown))), ("", f"  {said}")])
    return found


def _quoted(text: str) -> str:
    return exact(json.dumps(text, ensure_ascii=False))


def _block(text: str, room: int, bar: str) -> list[Line]:
    lines = exact(text).removesuffix("\n").split("\n")
    return [[("dim", f"  {bar} "), ("", one)] for line in lines for one in pieces(line.expandtabs(4), room - 2)]


def _mistakable(text: str) -> bool:
    """Whether it could be taken for a number, for nothing, or for another text."""
    if text != text.strip() or not text:
        return True
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
