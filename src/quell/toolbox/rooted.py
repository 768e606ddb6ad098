"""A folder out of which no path leads: whatever is opened below it is reached step by step, and through no symlink.

A path is resolved first, and contained. Then each of its steps is opened anew, so that what was swapped for a symlink
in between is refused, not followed. Standard library only: the processes that search import it too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

LONGEST = 4096
"""Bytes of a path, as the kernel has it."""

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_KINDS = {
    stat.S_IFDIR: "a folder (`glob` shows what is in it)",
    stat.S_IFLNK: "a symlink by now",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}

Parts = tuple[str, ...]
"""The steps from the root to a file."""


class Refused(Exception):
    """What must not or cannot be opened; the sentence says why."""


class Root:
    """`path` is absolute and resolved. `off_limits` are the same, and nothing at or below them is there for anybody."""

    def __init__(self, path: str, off_limits: Sequence[str]) -> None:
        self.path = os.path.normpath(path)
        self._off_limits = [os.path.normpath(one) for one in off_limits]
        self._steps: Parts = tuple(step for step in self.path.split("/") if step)
        self._ids = {_id(found) for one in off_limits if (found := _stat(one)) is not None}

    # -- names

    def parts(self, path: str) -> Parts:
        """Where that is, with every symlink resolved; it need not be there. Refused where it leads out."""
        _check_words(path)
        with _told(path):  # what is swapped at this very moment
            now, real = os.path.realpath(self.path), os.path.realpath(os.path.join(self.path, path))
        if now != self.path:
            raise Refused(f"the working directory {self.path} is a symlink to {now} by now, and is not followed")
        self._check_place(path, real)
        return tuple(step for step in real[len(self.path) :].split("/") if step)

    def shown(self, parts: Parts) -> str:
        """As people name it: from the root."""
        return "/".join(parts) or "."

    def real(self, path: str) -> str:
        """The whole name of what is at this place below the root."""
        return f"{self.path.rstrip('/')}/{path}"

    def is_off_limits(self, real: str, found: os.stat_result | None = None) -> bool:
        """By its name, or (under another name: a mount, a hard link) by what it is."""
        if found is not None and _id(found) in self._ids:
            return True
        return any(_is_below(real, one) for one in self._off_limits)

    def contains(self, real: str) -> bool:
        return _is_below(real, self.path)

    def _check_place(self, path: str, real: str) -> None:
        if not self.contains(real):
            plainly = _is_below(os.path.normpath(os.path.join(self.path, path)), self.path)
            how = "leads out of the working directory by a symlink" if plainly else "is outside the working directory"
            raise Refused(f"{path!r} {how}, and only what is in it can be used")
        if self.is_off_limits(real):
            raise Refused(f"{path!r} is Quell's own (its configuration, plugins or state), which no tool may use")

    # -- opening

    @contextmanager
    def folder(self, parts: Parts, *, make: bool = False) -> Iterator[int]:
        """A descriptor of that folder, good for opening what is in it. `make` makes what is missing."""
        fd = os.open("/", _STEP)
        try:
            for number, name in enumerate((*self._steps, *parts)):
                below = number - len(self._steps)
                where = self.shown(parts[: below + 1]) if below >= 0 else self.path
                inner = _step(fd, name, where, make and below >= 0)
                os.close(fd)
                fd = inner
                if _id(os.fstat(fd)) in self._ids:
                    raise Refused(f"{where!r} is Quell's own, which no tool may use")
            yield fd
        finally:
            os.close(fd)

    def open(self, parts: Parts) -> int:
        """To read. Nothing but a regular file is opened, and nobody is waited for."""
        _check_name(parts)
        with self.folder(parts[:-1]) as folder:
            self._regular(folder, parts)
            with _told(self.shown(parts)):
                fd = os.open(parts[-1], _READ, dir_fd=folder)
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or _id(found) in self._ids:
            os.close(fd)
            raise Refused(f"{self.shown(parts)!r} is {_kind(found)}, and no file")
        return fd

    def write(self, parts: Parts, data: bytes, *, unless_newer: os.stat_result | None = None) -> bool:
        """Put this in its place, all at once; the mode stays. Whether there was a file before."""
        _check_name(parts)
        shown, name = self.shown(parts), parts[-1]
        with self.folder(parts[:-1], make=True) as folder, _told(shown):
            found = self._regular(folder, parts, missing=True)
            if found is not None and not os.access(name, os.W_OK, dir_fd=folder, effective_ids=True):
                raise Refused(f"{shown!r} is read-only")
            spare = f".quell-{os.urandom(8).hex()}"
            fd = os.open(spare, _MAKE, 0o666 if found is None else 0o600, dir_fd=folder)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                    if found is not None:
                        _like(fd, found)
                now = self._regular(folder, parts, missing=True)
                if unless_newer is not None and (now is None or _version(now) != _version(unless_newer)):
                    raise Refused(f"{shown!r} was changed by somebody else meanwhile; read it again")
                os.rename(spare, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _remove(spare, folder)
                raise
        return found is not None

    def _regular(self, folder: int, parts: Parts, *, missing: bool = False) -> os.stat_result | None:
        """What is there, if it is a file that may be used."""
        try:
            with _told(self.shown(parts)):
                found = os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
        except Missing:
            if missing:
                return None
            raise
        if _id(found) in self._ids:
            raise Refused(f"{self.shown(parts)!r} is Quell's own, which no tool may use")
        if not stat.S_ISREG(found.st_mode):
            raise Refused(f"{self.shown(parts)!r} is {_kind(found)}, and no file")
        return found


class Missing(Refused):
    """It is not there."""


def _check_name(parts: Parts) -> None:
    if not parts:
        raise Refused("the working directory itself is a folder, and no file")


def _check_words(path: str) -> None:
    if not path:
        raise Refused("a path is empty; name a file in the working directory")
    if "\0" in path:
        raise Refused("a path cannot contain a NUL character")
    if path.startswith("~"):
        raise Refused(f"{path[:80]!r} begins with `~`, which stands for no folder here; write ./~ for that character")
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise Refused("a path is not text that can be encoded as UTF-8") from None
    if size >= LONGEST:
        raise Refused(f"a path of {size} bytes is too long; {LONGEST - 1} is the most")


def _step(fd: int, name: str, where: str, make: bool) -> int:
    try:
        with _told(where):
            return os.open(name, _STEP, dir_fd=fd)
    except Missing:
        if not make:
            raise
    with _told(where):
        try:
            os.mkdir(name, dir_fd=fd)
        except FileExistsError:  # somebody was faster
            pass
        return os.open(name, _STEP, dir_fd=fd)


@contextmanager
def _told(where: str) -> Iterator[None]:
    """What the kernel says of that place, in a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise Missing(f"there is no {where!r}") from None
    except NotADirectoryError:
        raise Refused(f"{where!r} is no folder, or was swapped for a symlink") from None
    except OSError as error:
        raise Refused(f"{where!r} cannot be used: {error.strerror}") from None


def _like(fd: int, found: os.stat_result) -> None:
    """As the file before: whose it is (where that can be said), and who may read it."""
    try:
        os.fchown(fd, found.st_uid, found.st_gid)
    except PermissionError:
        pass
    os.fchmod(fd, stat.S_IMODE(found.st_mode))


def _remove(name: str, folder: int) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except OSError:  # it became the file itself, or its folder is gone
        pass


def _version(found: os.stat_result) -> tuple[int, ...]:
    return (*_id(found), found.st_mtime_ns, found.st_size)


def _kind(found: os.stat_result) -> str:
    return _KINDS.get(stat.S_IFMT(found.st_mode), "something else")


def _id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
