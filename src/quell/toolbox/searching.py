"""Looks through the files below a folder, in a process that can be ended: a pattern or a tree may take for ever (H26).

It reads one request from its input and writes what it finds, a line of JSON each: a text, and at the end what is to
be said of the whole. It follows no symlink, shows nothing that is off limits, and imports the standard library only.
"""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from .patterns import Ignored, compiled, split
from .rooted import Parts, Refused, Root

SKIPPED = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders that nobody means, unless they are named."""
DEEPEST = 100  # folders in each other: each holds a descriptor
READ_MOST = 8 << 20  # bytes of one file that are searched
WINDOW = 5000  # characters of a line that are told, on each side of its match
BINARY_LOOK = 8192  # bytes in which a NUL tells that it is no text

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


class Entry(NamedTuple):
    name: str
    path: str
    """From the root."""
    mode: int
    folder: int
    """A descriptor of where it is, while it is looked at."""


class Walk:
    """Every entry below a folder, in order of names; folders come before what is in them."""

    def __init__(self, root: Root, everything: bool) -> None:
        self._root = root
        self._everything = everything
        self.closed = 0
        """Folders that could not be read, or are too deep."""

    def below(self, parts: Parts) -> Iterator[Entry]:
        ignored = Ignored()
        for upto in range(len(parts)):
            with self._root.folder(parts[:upto]) as folder:
                ignored = self._with_rules(ignored, folder, "/".join(parts[:upto]))
        with self._root.folder(parts) as folder:
            try:
                fd = os.open(".", _FOLDER, dir_fd=folder)
            except OSError as error:
                raise Refused(f"{self._root.shown(parts)!r} cannot be read: {error.strerror}") from None
        yield from self._entries(fd, "/".join(parts), ignored, 0)

    def _entries(self, fd: int, where: str, ignored: Ignored, depth: int) -> Iterator[Entry]:
        """Closes the descriptor."""
        try:
            if not self._everything:
                ignored = self._with_rules(ignored, fd, where)
            for name, found in _listed(fd):
                path = f"{where}/{name}" if where else name
                is_folder = stat.S_ISDIR(found.st_mode)
                if self._root.is_off_limits(self._root.real(path), found):
                    continue
                if not self._everything and ((is_folder and name in SKIPPED) or ignored.has(path, is_folder)):
                    continue
                yield Entry(name, path, found.st_mode, fd)
                if is_folder:
                    yield from self._inner(fd, name, path, ignored, depth)
        finally:
            os.close(fd)

    def _inner(self, fd: int, name: str, path: str, ignored: Ignored, depth: int) -> Iterator[Entry]:
        try:
            if depth >= DEEPEST:
                raise PermissionError
            inner = os.open(name, _FOLDER, dir_fd=fd)
        except OSError:  # gone, swapped, or closed to us
            self.closed += 1
            return
        if self._root.is_off_limits(self._root.real(path), os.fstat(inner)):
            os.close(inner)
            return
        yield from self._entries(inner, path, ignored, depth + 1)

    def _with_rules(self, ignored: Ignored, folder: int, where: str) -> Ignored:
        data = read(folder, ".gitignore", 1 << 16)
        return ignored if not data else ignored.below(where, data.decode("utf-8", "replace"))


def _listed(fd: int) -> list[tuple[str, os.stat_result]]:
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            try:
                found.append((entry.name, entry.stat(follow_symlinks=False)))
            except OSError:  # gone
                continue
    return sorted(found, key=lambda one: one[0])


def read(folder: int, name: str, most: int) -> bytes | None:
    """The beginning of a regular file; None where there is none that can be read."""
    try:
        if not stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return None
        fd = os.open(name, _FILE, dir_fd=folder)
        with os.fdopen(fd, "rb") as file:
            return file.read(most) if stat.S_ISREG(os.fstat(fd).st_mode) else None
    except OSError:
        return None


def shown(path: str) -> str:
    """A name on one line, whatever bytes it is of."""
    return _CONTROLS.sub("?", os.fsencode(path).decode("utf-8", "replace"))


# -- the two searches: each tells what it finds, and gives what is to be said of it


Tell = Callable[[Any], None]


def glob(root: Root, asked: dict[str, Any], tell: Tell) -> list[str]:
    folder, rest = split(asked["pattern"])
    start = root.parts(os.path.join(asked["path"], folder))
    if not rest:
        raise Refused("the pattern ends with a slash: write what is to be found in that folder, such as `*`")
    pattern, limit, found = compiled(rest), asked["limit"], 0
    walk, above = Walk(root, asked["everything"]), len("/".join(start)) + 1 if start else 0
    for entry in walk.below(start):
        if pattern.fullmatch(entry.path[above:]) is None:
            continue
        is_link = stat.S_ISLNK(entry.mode)
        if is_link and not _may_be_shown(root, entry.path):
            continue
        if found == limit:
            return [f"there is more than these {limit}; narrow the pattern", *_of(walk)]
        found += 1
        tell(shown(entry.path) + ("/" if stat.S_ISDIR(entry.mode) else ""))
    return _of(walk)


def _may_be_shown(root: Root, path: str) -> bool:
    """A symlink: only its name, and only when that says nothing of what is elsewhere."""
    try:
        real = os.path.realpath(root.real(path))
    except OSError:
        return False
    return root.contains(real) and not root.is_off_limits(real)


def grep(root: Root, asked: dict[str, Any], tell: Tell) -> list[str]:
    pattern = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    wanted = compiled(asked["glob"] if "/" in asked["glob"] else f"**/{asked['glob'] or '*'}")
    start, limit, found, cut = root.parts(asked["path"]), asked["limit"], 0, 0
    walk = Walk(root, asked["everything"])
    for path, data in _texts(root, walk, start, wanted):
        cut += len(data) == READ_MOST
        for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
            match = pattern.search(line)
            if match is None:
                continue
            if found == limit:
                return [f"there are more than these {limit} lines; narrow the search, or raise `limit`", *_of(walk)]
            found += 1
            at, line = match.start(), line.rstrip("\r")
            tell([f"{shown(path)}:{number}", line[max(0, at - WINDOW) : at], line[at : at + WINDOW]])
    notes = [f"of {cut} long files only the first {READ_MOST >> 20} MB were searched"] if cut else []
    return notes + _of(walk)


def _texts(root: Root, walk: Walk, start: Parts, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    """Every text that is to be searched, and its name."""
    if start and os.path.isfile(root.real("/".join(start))):
        with os.fdopen(root.open(start), "rb") as file:
            yield "/".join(start), file.read(READ_MOST)
        return
    above = len("/".join(start)) + 1 if start else 0
    for entry in walk.below(start):
        if stat.S_ISREG(entry.mode) and wanted.fullmatch(entry.path[above:]):
            data = read(entry.folder, entry.name, READ_MOST)
            if data and b"\0" not in data[:BINARY_LOOK]:
                yield entry.path, data


def _of(walk: Walk) -> list[str]:
    return [f"folders that could not be read: {walk.closed}"] if walk.closed else []


def main() -> None:
    asked = json.load(sys.stdin)

    def tell(text: Any) -> None:
        sys.stdout.write(json.dumps(text) + "\n")
        sys.stdout.flush()

    search = {"glob": glob, "grep": grep}[asked["search"]]
    try:
        notes = search(Root(asked["root"], asked["off_limits"]), asked, tell)
    except Refused as refusal:
        tell({"refused": str(refusal)})
    except re.error as error:
        tell({"refused": f"the pattern is no regular expression: {error}"})
    except ValueError as error:
        tell({"refused": f"the pattern makes no sense: {error}"})
    except OSError as error:
        tell({"refused": f"{asked['path']!r} cannot be searched: {error.strerror}"})
    except (RecursionError, OverflowError, MemoryError) as error:
        tell({"refused": f"the pattern is too much: {type(error).__name__}"})
    else:
        tell({"notes": notes})
