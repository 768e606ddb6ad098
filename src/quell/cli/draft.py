"""A changed copy of the configuration: it replaces the file in one step, or the file stays as it was.

Comments and order are kept. What would make the file invalid, or change more of it than was asked, is refused.
"""

from __future__ import annotations

import copy
import fcntl
import os
import stat
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable

from ..configfile import Loaded, place, understood
from ..errors import UsageError

WAIT = 5.0
"""Seconds for another command that changes the file."""
NEW = 0o600


@contextmanager
def editing(config: str | None) -> Iterator[Draft]:
    """The file that is named, or the usual one, which need not be there. Nobody else changes it meanwhile."""
    path = place(config, os.environ)
    try:
        target = _target(path)
        folder = os.path.dirname(target)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        with _locked(folder):
            yield Draft(path, target)
    except OSError as error:
        raise UsageError(f"{path} cannot be changed: {error.strerror}; it is as it was") from None


class Draft:
    def __init__(self, path: str, target: str) -> None:
        self.path = path
        self._target = target
        """Where the file is, after all links."""
        try:
            with open(target, "rb") as file:
                self._before = file.read()
                self._was: os.stat_result | None = os.fstat(file.fileno())
        except FileNotFoundError:
            self._before, self._was = b"", None
        try:
            text = self._before.decode()
            self._meant: dict[str, Any] = tomllib.loads(text)
            self._document = tomlkit.parse(text)
        except (ValueError, RecursionError, TOMLKitError) as error:
            raise UsageError(f"{path} is no TOML: {error}") from None

    def has(self, parts: Sequence[str]) -> bool:
        table: Any = self._meant
        for part in parts:
            if not isinstance(table, dict) or part not in table:
                return False
            table = table[part]
        return True

    def get(self, parts: Sequence[str]) -> Any:
        """What the file says there, which is there."""
        table: Any = self._meant
        for part in parts:
            table = table[part]
        return copy.deepcopy(table)

    def put(self, parts: Sequence[str], value: Any) -> None:
        """A value, or a table of values."""
        *above, last = parts
        meant, table = self._meant, self._document  # type: dict[str, Any], Any
        for at, part in enumerate(above):
            if not isinstance(meant.setdefault(part, {}), dict):
                raise UsageError(
                    f"{self.path}: {'.'.join(parts[: at + 1])} is a table, and something else stands there"
                )
            if part not in table:
                table[part] = tomlkit.inline_table() if isinstance(table, InlineTable) else tomlkit.table(at == 0)
            meant, table = meant[part], table[part]
        meant[last] = copy.deepcopy(value)
        table[last] = _item(value, inline=isinstance(table, InlineTable))

    def drop(self, parts: Sequence[str]) -> None:
        *above, last = parts
        meant, table = self._meant, self._document  # type: dict[str, Any], Any
        for part in above:
            meant, table = meant[part], table[part]
        del meant[last]
        del table[last]

    def check(self) -> Loaded:
        """What it says by now, without the environment. UsageError says what would be wrong with the file."""
        text = tomlkit.dumps(self._document)
        try:
            as_meant = _filled(tomllib.loads(text)) == _filled(self._meant)
        except ValueError:
            as_meant = False
        if not as_meant:  # first: what such a text says is nothing that anybody wrote
            raise UsageError(f"{self.path} is written in a way that quell cannot change safely: edit it by hand")
        return understood(self.path, text.encode(), {})

    def save(self) -> Loaded:
        """As `check`; where that raises, nothing is written."""
        loaded, data = self.check(), tomlkit.dumps(self._document).encode()
        if data != self._before or self._was is None:
            self._write(data)
        return loaded

    def _write(self, data: bytes) -> None:
        folder = os.path.dirname(self._target)
        fd, fresh = tempfile.mkstemp(prefix=".config-", dir=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                os.fchmod(fd, NEW if self._was is None else stat.S_IMODE(self._was.st_mode))
                if self._was is not None and (self._was.st_uid, self._was.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(fd, self._was.st_uid, self._was.st_gid)
                file.flush()
                os.fsync(fd)
            os.rename(fresh, self._target)
        except BaseException:
            os.unlink(fresh)
            raise
        above = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(above)
        finally:
            os.close(above)


def _filled(table: dict[str, Any]) -> dict[str, Any]:
    """Without tables that have nothing in them: they go with the last of what they had."""
    found = {name: _filled(one) if isinstance(one, dict) else one for name, one in table.items()}
    return {name: one for name, one in found.items() if one != {}}


def _item(value: Any, *, inline: bool) -> Any:
    if isinstance(value, dict):
        table: Any = tomlkit.inline_table() if inline else tomlkit.table()
        for name, one in value.items():
            table[name] = _item(one, inline=inline)
        return table
    if isinstance(value, str) and "\n" in value and not inline:
        return tomlkit.string(value, multiline=True)
    return tomlkit.item(value)


def _target(path: str) -> str:
    """Where it really is. A link is followed to a file of our own, and to nothing else."""
    target = os.path.realpath(path)
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        if os.path.islink(path):
            raise UsageError(f"{path} is a link to {target}, which is not there: mend it or remove it") from None
        return target
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is {'a folder' if stat.S_ISDIR(found.st_mode) else 'no regular file'}: name a file")
    if os.path.islink(path) and found.st_uid != os.geteuid():
        raise UsageError(f"{path} is a link to {target}, which belongs to another user: it is left alone")
    return target


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """On the folder itself: nothing is left of it."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        deadline = time.monotonic() + WAIT
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise UsageError(f"another program changes files in {folder} now; try again later") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(fd)
