"""The tools `glob` and `grep`: names and lines in the working directory, found by a process that ends in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from ..errors import ToolError
from ..ports import Caller, ToolSpec
from . import apart
from .arguments import schema, taken

SECONDS = 30.0  # for one search
NAMES = 1000  # that `glob` gives
LINES, MOST_LINES = 100, 1000  # that `grep` gives, and may be asked for
PATTERN_MOST = 10_000  # characters
LINE_MOST = 300  # characters of a line that are shown

_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=PATTERN_MOST)]
_Folder = Annotated[str, msgspec.Meta(description="The folder to look in, from the working directory.")]
_Everything = Annotated[
    bool, msgspec.Meta(description="Also what .gitignore names, and folders such as .git and node_modules.")
]


class Names(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[
        _Pattern, msgspec.Meta(description="Such as `*.py` in the folder itself, `**/*.py` at any depth, `{a,b}/**`.")
    ]
    path: _Folder = "."
    everything: _Everything = False


class Lines(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    pattern: Annotated[_Pattern, msgspec.Meta(description="A regular expression, as Python has them, for one line.")]
    path: Annotated[str, msgspec.Meta(description="The folder or file to look in, from the working directory.")] = "."
    glob: Annotated[
        str, msgspec.Meta(max_length=PATTERN_MOST, description="Only files of this name, such as `*.py`.")
    ] = ""
    ignore_case: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LINES, description="Most lines to give.")] = LINES
    everything: _Everything = False


class Glob:
    spec = ToolSpec("glob", "Find files and folders by name, in the working directory.", schema(Names))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        wish = taken("glob", Names, arguments)
        nothing = "Nothing matches."
        if "/" not in wish.pattern:
            nothing = f"Nothing matches; `**/{wish.pattern}` looks in all folders."
        return await _search("glob", {**msgspec.structs.asdict(wish), "limit": NAMES}, caller, str, nothing)


class Grep:
    spec = ToolSpec("grep", "Find lines in files of the working directory by a regular expression.", schema(Lines))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        wish = taken("grep", Lines, arguments)

        def line(found: list[str]) -> str:
            where, before, rest = found
            return f"{where}: {excerpt(before, rest, caller.redact)}"

        return await _search("grep", msgspec.structs.asdict(wish), caller, line, "No line matches.")


def excerpt(before: str, rest: str, redact: Callable[[str], str]) -> str:
    """The part of a long line around its match. Secrets are masked first: half a one is not known."""
    whole = redact(before + rest)
    if len(whole) <= LINE_MOST:
        return whole
    at = len(redact(before))
    start = max(0, min(at - LINE_MOST // 3, len(whole) - LINE_MOST))
    end = start + LINE_MOST
    return ("…" if start else "") + whole[start:end] + ("…" if end < len(whole) else "")


async def _search(tool: str, wish: dict[str, Any], caller: Caller, line: Callable[[Any], str], nothing: str) -> str:
    request = {**wish, "search": tool, "root": caller.cwd, "off_limits": list(caller.off_limits)}
    said = await apart.ask(tool, "searching", request, caller, SECONDS)
    notes = said.last.get("notes", [])
    if not said.in_time:
        if not said.found:
            raise ToolError(f"{tool}: not done after {SECONDS:g} s, and ended; narrow it by `path` or the pattern")
        notes = [f"not done after {SECONDS:g} s, and ended: there may be more; narrow it by `path` or the pattern"]
    return "\n".join([*(map(line, said.found) if said.found else [nothing]), *(f"[{note}]" for note in notes)])
