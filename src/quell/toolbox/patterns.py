"""Patterns of file names: `*`, `?`, `[a-z]`, `**` and `{a,b}`, and what a .gitignore makes of them.

Standard library only: the processes that search import it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAGIC = re.compile(r"[*?\[{]")
ALTERNATIVES = 200
"""Most ways to read the braces of one pattern."""

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_NEVER = re.compile(r"(?!)")


def compiled(pattern: str) -> re.Pattern[str]:
    """What whole paths must match. ValueError says what is wrong with it."""
    ways = [pattern]
    while any(_BRACES.search(way) for way in ways):
        ways = [one for way in ways for one in _without_braces(way)]
        if len(ways) > ALTERNATIVES:
            raise ValueError(f"its braces stand for more than {ALTERNATIVES} patterns")
    try:
        return re.compile("|".join(f"(?:{_of_path(way)})" for way in ways), re.DOTALL)
    except re.error as error:
        raise ValueError(str(error)) from None


def split(pattern: str) -> tuple[str, str]:
    """The folder that its beginning names without any magic, and the rest."""
    steps = pattern.split("/")
    plain = 0
    while plain < len(steps) - 1 and not MAGIC.search(steps[plain]):
        plain += 1
    return "/".join(steps[:plain]) or ("/" if plain else ""), "/".join(steps[plain:])


def _without_braces(pattern: str) -> Iterable[str]:
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    return [pattern[: found.start()] + one + pattern[found.end() :] for one in found[1].split(",")]


def _of_path(pattern: str) -> str:
    steps = [step for step in pattern.split("/") if step not in ("", ".")]
    parts = []
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if step == "**":
            parts.append(".+" if last else "(?:[^/]+/)*")
        else:
            parts.append(_of_step(step) + ("" if last else "/"))
    return "".join(parts)


def _of_step(step: str) -> str:
    parts: list[str] = []
    at = 0
    while at < len(step):
        sign = step[at]
        at += 1
        if sign == "*":
            if not parts or parts[-1] != "[^/]*":
                parts.append("[^/]*")
        elif sign == "?":
            parts.append("[^/]")
        elif sign == "[" and (end := step.find("]", at + 2 if step[at : at + 1] in "!^" else at + 1)) > 0:
            inside = step[at:end].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"[^/{inside[1:]}]" if inside[0] in "!^" else f"[{inside}]")
            at = end + 1
        elif sign == "\\" and at < len(step):
            parts.append(re.escape(step[at]))
            at += 1
        else:
            parts.append(re.escape(sign))
    return "".join(parts)


class Ignored:
    """What the .gitignore files of a folder and those above it leave out. Lines that make no sense are left out too."""

    def __init__(self, rules: tuple[tuple[str, re.Pattern[str], bool, bool], ...] = ()) -> None:
        self._rules = rules

    def below(self, folder: str, text: str) -> Ignored:
        """With those of the .gitignore in this folder, which is named from the root (``, `a/b`)."""
        start = f"{folder}/" if folder else ""
        more = [rule for line in text.splitlines() if (rule := _rule(start, line)) is not None]
        return Ignored((*self._rules, *more)) if more else self

    def has(self, path: str, is_folder: bool) -> bool:
        """The last rule that fits decides."""
        for start, pattern, only_folders, kept in reversed(self._rules):
            if (is_folder or not only_folders) and path.startswith(start) and pattern.fullmatch(path[len(start) :]):
                return not kept
        return False


def _rule(start: str, line: str) -> tuple[str, re.Pattern[str], bool, bool] | None:
    line = line.rstrip()
    if not line or line.startswith("#"):
        return None
    kept = line.startswith("!")
    line = line[kept:]
    only_folders, line = line.endswith("/"), line.rstrip("/")
    anchored = "/" in line
    line = line.lstrip("/")
    if not line:
        return None
    try:
        pattern = re.compile(_of_path(line if anchored else f"**/{line}"), re.DOTALL)
    except re.error:
        pattern = _NEVER
    return start, pattern, only_folders, kept
