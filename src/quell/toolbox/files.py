"""The tools `read`, `write` and `edit`: files of the working directory, and nothing outside it or of Quell's own.

A file is written all at once or not at all. The work is done in a thread of the call, never in the loop.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from ..errors import ToolError
from ..ports import Caller, PluginContext, ToolSpec
from .arguments import schema, taken
from .rooted import Refused, Root
from .search import Glob, Grep

LINES = 2000  # that `read` gives, unless it is asked for others
TEXT_MOST = 100_000  # characters that `read` gives at once
LINE_MOST = 2000  # characters of one line
READ_MOST = 64 << 20  # bytes of a file that is read at all
WRITE_MOST = 8 << 20  # bytes of a file that is written or edited
BINARY_LOOK = 8192  # bytes in which a NUL tells that it is no text
HINT_MOST, HINT_LONG = 2000, 80  # lines, and of each the characters, that are compared with what was meant

_SIGNS = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a ZIP archive",
    b"\x1f\x8b": "gzip data",
    b"\x7fELF": "a program",
    b"SQLite format 3": "a SQLite database",
}
_Path = Annotated[str, msgspec.Meta(description="From the working directory.")]


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: _Path
    start: Annotated[int, msgspec.Meta(ge=1, description="The first line to give, from 1.")] = 1
    lines: Annotated[int, msgspec.Meta(ge=1, description="How many lines to give.")] = LINES


class Whole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: Annotated[str, msgspec.Meta(description="From the working directory; missing folders are made.")]
    text: Annotated[str, msgspec.Meta(description="All of it: what was there before is replaced.")]


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: _Path
    old: Annotated[str, msgspec.Meta(min_length=1, description="What to replace, exactly, with enough around it.")]
    new: Annotated[str, msgspec.Meta(description="What to put there.")]
    all: Annotated[bool, msgspec.Meta(description="Replace it wherever it is; else it must be there once.")] = False


class Read:
    spec = ToolSpec("read", "Read a text file of the working directory, or some lines of it.", schema(Wanted))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        wanted = taken("read", Wanted, arguments)
        return await _in_thread("read", caller, lambda root: read(root, wanted, caller.redact))


class Write:
    spec = ToolSpec("write", "Write a text file in the working directory.", schema(Whole))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        whole = taken("write", Whole, arguments)
        return await _in_thread("write", caller, lambda root: write(root, whole))


class Edit:
    spec = ToolSpec("edit", "Replace a piece of a text file in the working directory.", schema(Change))

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        change = taken("edit", Change, arguments)
        return await _in_thread("edit", caller, lambda root: edit(root, change))


async def _in_thread(tool: str, caller: Caller, work: Callable[[Root], str]) -> str:
    """In a thread of the call's scope, which names it on its receipt should it hang (H26)."""

    def run() -> str:
        try:
            return work(Root(caller.cwd, caller.off_limits))
        except Refused as refusal:
            raise ToolError(f"{tool}: {refusal}") from None

    run.__qualname__ = f"tool {tool}"
    return await caller.scope.task(asyncio.to_thread(run), name=f"tool {tool}")


# -- reading


def read(root: Root, wanted: Wanted, redact: Callable[[str], str]) -> str:
    data, found = _bytes_of(root, wanted.path, READ_MOST, "use `grep`, or `sed -n` in the shell")
    if b"\0" in data[:BINARY_LOOK]:
        what = next((words for sign, words in _SIGNS.items() if data.startswith(sign)), "binary data")
        return f"[{what}, {found.st_size} bytes: no text to show]"
    lines = redact(data.decode("utf-8", "replace")).split("\n")  # before it is cut: half a secret is not known
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return "[the file is empty]"
    if wanted.start > len(lines):
        raise Refused(f"{wanted.path!r} has {len(lines)} lines, and none at {wanted.start}")
    return _page(lines, wanted.start - 1, wanted.lines)


def _page(lines: list[str], start: int, most: int) -> str:
    shown: list[str] = []
    room = TEXT_MOST
    for line in lines[start : start + most]:
        piece = line if len(line) <= LINE_MOST else f"{line[:LINE_MOST]}… [{len(line) - LINE_MOST} characters more]"
        room -= len(piece) + 1
        if room < 0:
            break
        shown.append(piece)
    end = start + len(shown)
    text = "\n".join(shown)
    if start == 0 and end == len(lines):
        return text
    further = f"; go on with start={end + 1}" if end < len(lines) else ""
    return f"[lines {start + 1} to {end} of {len(lines)}{further}]\n{text}"


def _bytes_of(root: Root, path: str, most: int, otherwise: str) -> tuple[bytes, os.stat_result]:
    with os.fdopen(root.open(root.parts(path)), "rb") as file:
        found = os.fstat(file.fileno())
        data = file.read(most + 1)
    if len(data) > most:
        raise Refused(f"{path!r} has {found.st_size} bytes, and more than {most} are too many; {otherwise}")
    return data, found


# -- writing


def write(root: Root, whole: Whole) -> str:
    data = _encoded(whole.text)
    there = root.write(root.parts(whole.path), data)
    lines = whole.text.count("\n") + (not whole.text.endswith("\n") and bool(whole.text))
    return f"{'Replaced' if there else 'Made'} {whole.path}: {lines} lines, {len(data)} bytes."


def edit(root: Root, change: Change) -> str:
    data, found = _bytes_of(root, change.path, WRITE_MOST, "use `sed -i` in the shell")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused(f"{change.path!r} is not UTF-8 text, and cannot be edited; use the shell") from None
    old, new = change.old, change.new
    if old == new:
        raise Refused("`old` and `new` are the same: nothing is to be changed")
    if "\r\n" in text and "\r" not in old and old not in text:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise Refused(f"`old` is not in {change.path!r}{_nearest(text, change.old)}")
    if count > 1 and not change.all:
        raise Refused(
            f"`old` is {count} times in {change.path!r}, at lines {_lines_of(text, old)}; give more around it,"
            " or say all=true"
        )
    where = _lines_of(text, old)
    root.write(root.parts(change.path), _encoded(text.replace(old, new)), unless_newer=found)
    return f"Changed {change.path} at line{'s' if count > 1 else ''} {where}."


def _encoded(text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Refused("the text cannot be encoded as UTF-8") from None
    if len(data) > WRITE_MOST:
        raise Refused(f"a text of {len(data)} bytes is too long; {WRITE_MOST} is the most")
    return data


def _lines_of(text: str, old: str) -> str:
    """Where it begins: the first few."""
    found: list[str] = []
    at, line, last = text.find(old), 1, 0
    while at >= 0 and len(found) < 6:
        line += text.count("\n", last, at)
        found.append(str(line))
        last, at = at, text.find(old, at + len(old))
    return ", ".join(found[:5]) + (" and more" if len(found) > 5 else "")


def _nearest(text: str, old: str) -> str:
    """A line that is nearly the first one that was meant."""
    meant = next((line.strip() for line in old.splitlines() if line.strip()), "")[:HINT_LONG]
    lines = [line.strip()[:HINT_LONG] for line in text.splitlines()[:HINT_MOST]]
    for number, line in enumerate(lines, 1):
        if meant and meant == line:
            return f": its first line is at line {number}, and what follows is different, or the space around it"
    near = get_close_matches(meant, set(lines), 1, 0.7) if meant else []
    if not near:
        return "; read it first"
    return f"; nearest is line {lines.index(near[0]) + 1}: {near[0]}"


class _Plugin:
    name = "files"

    def setup(self, ctx: PluginContext) -> None:
        for tool in (Read(), Write(), Edit(), Glob(), Grep()):
            ctx.tool(tool)


plugin = _Plugin()
