"""What a person always allows: one file for all runtimes of the user, of which each change acts on the next call.

A line is added in one write, so that several may add at once, and what a line does not say clearly allows nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import stat
import threading
from collections.abc import Mapping
from typing import Any

import msgspec

from ..errors import QuellError, UsageError
from .redaction import MASK

FILE = "grants.jsonl"
LARGEST = 64 << 20
"""Bytes of a file that is read; nobody has said yes so often."""
LONGEST = 1 << 20
"""Bytes of a line."""
SHORTEST = 4
"""Characters of a digest that name it."""
_log = logging.getLogger("quell")


class GrantError(QuellError):
    """Raised when it cannot be written. Nothing has changed."""


class Grant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """This agent may do exactly that in this folder."""

    digest: str
    agent: str
    cwd: str
    tool: str
    arguments: dict[str, Any]
    """As the log has them: secrets are masked. The digest is of those that were meant."""
    at: float
    sandbox: str = ""
    """In which it was asked for."""


class Revoked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """From here on it is asked again."""

    revoked: str
    at: float


def digest(tool: str, arguments: Mapping[str, object], sandbox: str = "") -> str:
    """What an approval is bound to: the tool and all of its arguments, and the sandbox, if there is one around it."""
    body = msgspec.json.encode([tool, arguments, *([sandbox] if sandbox else [])], order="deterministic")
    return hashlib.sha256(body).hexdigest()


def bound(agent: str, cwd: str, digest: str) -> str:
    """What a grant is bound to: agent, folder, and the digest of tool and arguments."""
    return hashlib.sha256(msgspec.json.encode([agent, cwd, digest])).hexdigest()


class Grants:
    """All of it may block, and may be called from any thread, but for `known`, which only looks."""

    def __init__(self, home: str) -> None:
        self.path = os.path.join(home, FILE)
        self._lock = threading.Lock()
        self._seen: tuple[int, ...] | None = None
        self._there: dict[str, Grant] = {}
        self._broken: set[tuple[int, int]] = set()

    def known(self) -> bool:
        """Whether the file is as it was when it was read last."""
        return self._stamp() == self._seen

    def holds(self, digest: str) -> bool:
        """Whether it is allowed now."""
        return digest in self._read()

    def all(self) -> list[Grant]:
        """The oldest first."""
        return sorted(self._read().values(), key=lambda one: one.at)

    def add(self, grant: Grant) -> None:
        """GrantError says why it is not kept."""
        line = msgspec.json.encode(grant)
        if len(line) > LONGEST:
            raise GrantError(f"its arguments are too long to be kept: {len(line)} bytes")
        self._append(line)

    def revoke(self, digest: str, at: float) -> Grant:
        """By its digest, or the beginning of it. UsageError if that names none, or several."""
        if not re.fullmatch(rf"[0-9a-f]{{{SHORTEST},64}}", digest):
            raise UsageError(f"what is always allowed is named by its digest, or {SHORTEST} characters or more of it")
        found = [one for one in self._read().values() if one.digest.startswith(digest)]
        if len(found) != 1:
            raise UsageError(f"{'several' if found else 'none'} of what is always allowed begins with {digest}")
        self._append(msgspec.json.encode(Revoked(found[0].digest, at)))
        if self.holds(found[0].digest):
            raise GrantError(f"{self.path} was written, and still allows it: remove the line by hand")
        return found[0]

    # -- the file

    def _append(self, line: bytes) -> None:
        """A line of its own whatever the one before it is: one that came only half to the disk spoils no other."""
        try:
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
            try:
                _own(os.fstat(file))
                whole = b"\n" + line + b"\n"
                if os.write(file, whole) != len(whole):
                    raise OSError("only a part of it was written")
                os.fsync(file)
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise GrantError(f"{self.path} cannot be written: {error}") from None

    def _read(self) -> dict[str, Grant]:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._there = self._parsed(self._text()) if stamp is not None else {}
                self._seen = stamp  # of before it was read: what came meanwhile is read the next time
            return self._there

    def _stamp(self) -> tuple[int, ...] | None:
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode

    def _text(self) -> bytes:
        try:
            with open(self.path, "rb", opener=_without_waiting) as opened:
                _own(found := os.fstat(opened.fileno()))
                if found.st_size > LARGEST:
                    raise OSError(f"it has {found.st_size} bytes")
                return opened.read()
        except (OSError, ValueError) as error:
            _log.warning("nothing is always allowed: %s cannot be read: %s", self.path, error)
            return b""

    def _parsed(self, text: bytes) -> dict[str, Grant]:
        there: dict[str, Grant] = {}
        at = 0
        for line in text.split(b"\n"):
            try:
                if line:
                    self._take(line, there)
            except (ValueError, RecursionError):
                place = at, len(line)
                whole = at + len(line) < len(text)  # else somebody may be writing it now
                if whole and place not in self._broken:
                    self._broken.add(place)
                    _log.warning("%s: what stands at byte %d cannot be read, and allows nothing", self.path, at)
            at += len(line) + 1
        return there

    @staticmethod
    def _take(line: bytes, there: dict[str, Grant]) -> None:
        """In the order of the file: the last word counts."""
        found: Grant | Revoked
        try:
            found = msgspec.json.decode(line, type=Grant)
        except msgspec.ValidationError:
            found = msgspec.json.decode(line, type=Revoked)
        if isinstance(found, Revoked):
            there.pop(found.revoked, None)
            return
        wanted = digest(found.tool, found.arguments, found.sandbox)
        if found.digest != bound(found.agent, found.cwd, wanted) and not _masked(line):
            raise ValueError("it is not what was allowed")
        there[found.digest] = found


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to would hold us up."""
    return os.open(path, flags | os.O_NONBLOCK)


def _masked(line: bytes) -> bool:
    """A secret that became known when the question was asked: only the digest knows what was meant."""
    return MASK.encode() in line


def _own(found: os.stat_result) -> None:
    """OSError if others could have written it."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is no file")
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise OSError("others may write it: chmod 600 makes it yours alone")
