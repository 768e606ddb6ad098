"""The calls themselves replaced by such that are counted first, in whatever process this is; and put back exactly.

Standard library only, because zygotes and keepers load it too.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import io
import sys

from .tally import Tally

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_KEEPERS_LIBC = ("keeper.linux", "quell.supervise.keeper.linux")  # in a zygote, and in its owner
_ABOUT_FILES = ("os.open", "os.write", "os.mkdir", "os.rmdir")


class Patches:
    """What was put in place of the calls; `undo` puts back what was there."""

    def __init__(self) -> None:
        self._done: list[tuple[Any, str, Any, bool]] = []

    def put(self, holder: Any, name: str, new: Any) -> None:
        self._done.append((holder, name, vars(holder).get(name), name in vars(holder)))
        setattr(holder, name, new)

    def everywhere(self, swaps: list[tuple[Any, Any]]) -> None:
        """The second for the first, under every name by which a module knows it: `from os import pipe` too."""
        new = {id(first): second for first, second in swaps}
        for module in list(sys.modules.values()):
            names = getattr(module, "__dict__", None)
            if isinstance(names, dict):
                for name, value in [pair for pair in list(names.items()) if id(pair[1]) in new]:
                    self.put(module, name, new[id(value)])

    def undo(self) -> None:
        while self._done:
            holder, name, old, was_there = self._done.pop()
            if was_there:
                setattr(holder, name, old)
            else:
                delattr(holder, name)


def plant(tally: Tally) -> Patches:
    """Count and fail from now on, in this process and in those that it forks."""
    patches, swaps = Patches(), []
    holders = {call.split(".")[0] for call in tally.calls}
    try:
        for call in tally.calls:
            holder, name = call.split(".")
            if holder in ("os", "_socket", "_posixsubprocess"):
                old = getattr(importlib.import_module(holder), name, None)
                while old is not None:  # where others have wrapped it, some names still have what is inside
                    swaps.append((old, _counted(tally, call, old)))
                    old = getattr(old, "__wrapped__", None)
        if not holders.isdisjoint(("io", "file")):
            swaps.append((io.open, _opening(tally, io.open)))
        if "socket" in holders:
            swaps.append(_plant_in_sockets(tally, patches))
        patches.everywhere(swaps)
        if "libc" in holders:
            for linux in filter(None, map(sys.modules.get, _KEEPERS_LIBC)):
                patches.put(linux, "_libc", _Libc(tally, vars(linux)["_libc"]))
    except BaseException:
        patches.undo()
        raise
    return patches


def _counted(tally: Tally, call: str, old: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(old)
    def counted(*args: Any, **named: Any) -> Any:
        target = (args[0] if args else named.get("path")) if call in _ABOUT_FILES else None
        tally.strike(call, target, named.get("dir_fd"))
        return old(*args, **named)

    return counted


class _Libc:
    """The C library of the keepers, which says -1 and sets errno where it fails."""

    def __init__(self, tally: Tally, real: Any) -> None:
        self._tally = tally
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, getattr(self._real, name), f"libc.{name}")

    def _call(self, real: Any, call: str, *args: Any) -> Any:
        try:
            self._tally.strike(call)
        except OSError as error:
            ctypes.set_errno(error.errno or 0)
            return -1
        return real(*args)


# -- sockets and files, whose writing is in methods


def _plant_in_sockets(tally: Tally, patches: Patches) -> tuple[Any, Any]:
    """Those of `socket`, and the bare ones of `_socket` that are made from now on. Returns what makes pairs of them."""
    names = [call.rpartition(".")[2] for call in tally.calls if call.startswith("socket.")]
    if python := sys.modules.get("socket"):
        for name in names:
            patches.put(python.socket, name, _counted(tally, f"socket.{name}", getattr(python.socket, name)))
    bare = importlib.import_module("_socket")
    methods = {name: _counted(tally, f"socket.{name}", getattr(bare.socket, name)) for name in names}
    counting: Any = type("socket", (bare.socket,), methods)
    patches.put(bare, "socket", counting)
    pair = bare.socketpair

    @functools.wraps(pair)
    def socketpair(*args: Any, **named: Any) -> Any:
        return tuple(counting(one.family, one.type, one.proto, one.detach()) for one in pair(*args, **named))

    return pair, socketpair


def _opening(tally: Tally, old: Any) -> Callable[..., Any]:
    """`open` that counts itself, and each write to what it opened as the kernel sees it: when it is flushed."""
    real = getattr(old, "real", old)
    tallies: list[Tally] = [*getattr(old, "tallies", ()), tally]  # it makes the file itself: for the outer ones too
    writes = any("file.write" in one.calls for one in tallies)

    class File(io.FileIO):
        def write(self, data: Any) -> int:
            for one in tallies:
                one.strike("file.write", self.fileno())
            return super().write(data)

    @functools.wraps(real)
    def opening(
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        if not isinstance(file, int):
            for one in tallies:
                one.strike("io.open", file)
        binary = "b" in mode
        if not writes or set(mode).isdisjoint("wax+") or (buffering == 0 and not binary):
            return real(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = File(file, mode.replace("b", "").replace("t", ""), closefd, opener)
        if buffering == 0:
            return raw
        size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
        buffer = io.BufferedRandom(raw, size) if "+" in mode else io.BufferedWriter(raw, size)
        if binary:
            return buffer
        text = io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1 or (buffering < 0 and raw.isatty()))
        text.mode = mode  # type: ignore[misc]  # as `open` itself sets it
        return text

    vars(opening).update(real=real, tallies=tallies)
    return opening
