"""While `tracking()` is on, whatever makes a thing leaves a note of the line; when it is off, nothing is patched.

An audit hook cannot be taken out again: it is put in by the first `tracking()`, and looks at one flag when that is
over. What Python does not audit is wrapped, and put back.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import selectors
import socket
import sys
import tempfile
import threading
from typing import TYPE_CHECKING, Any

from . import pending
from .notes import Notes, here, rank, slurp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Note = Callable[[Notes, Any, tuple[Any, ...]], object]

__all__ = ["SETTLE", "active", "rank", "tracking"]

SETTLE = 2.0
"""Seconds that what was made may take to go: asyncio reaps in a thread on 3.11."""

DEPTH = 12
"""Frames of a coroutine's origin: enough to get out of a task group and its library."""

_OF_OS = "pipe pipe2 dup dup2 openpty eventfd memfd_create pidfd_open timerfd_create posix_openpt".split()
"""What makes descriptors unheard by the audit hook, on 3.11 and on 3.13."""


class _Tracking:
    """Whether it is on. There is one, because there is one audit hook in a process."""

    notes: Notes | None = None
    depth = 0
    hooked = False
    lock = threading.Lock()
    undo = contextlib.ExitStack()


def active() -> Notes | None:
    """What is noted now; None when tracking is off."""
    return _Tracking.notes


@contextlib.contextmanager
def tracking(settle: float = SETTLE) -> Iterator[Notes]:
    """Note where tasks, threads, descriptors, processes and temporary files are made.

    It nests. Tasks that get lost inside the inner one are the inner one's to tell.
    """
    with _Tracking.lock:
        notes = _Tracking.notes or _begin(settle)
        _Tracking.depth += 1
        lost, outer_settle, notes.settle = len(notes.lost), notes.settle, settle
    try:
        yield notes
    finally:
        with _Tracking.lock:
            _Tracking.depth -= 1
            notes.settle = outer_settle
            del notes.lost[lost:]
            if not _Tracking.depth:
                _end()


def _begin(settle: float) -> Notes:
    tempfile.gettempdir()  # the first call tries the folder out, by making a file
    notes = Notes(settle)
    if not _Tracking.hooked:
        _Tracking.hooked = True
        sys.addaudithook(_hear)
        os.register_at_fork(after_in_parent=_forked)
    for holder, name, before, after in list(_wraps()):
        _wrap(holder, name, before, after)
    depth = sys.get_coroutine_origin_tracking_depth()
    sys.set_coroutine_origin_tracking_depth(max(depth, DEPTH))
    _Tracking.undo.callback(sys.set_coroutine_origin_tracking_depth, depth)
    _Tracking.notes = notes
    return notes


def _end() -> None:
    _Tracking.notes = None
    _Tracking.undo.close()


# -- what is audited


def _hear(event: str, args: tuple[Any, ...], tracking: type[_Tracking] = _Tracking) -> None:
    notes = tracking.notes
    if notes is not None and (note := _HEARD.get(event)) is not None:
        note(notes, *args)


def _hear_open(notes: Notes, path: object = None, mode: object = None, flags: object = 0, *_: object) -> None:
    if isinstance(path, int):  # a file over a descriptor that is there
        notes.descriptor(path)
    elif name := _text(path):
        notes.open_of(name)
        if isinstance(flags, int) and flags & os.O_CREAT:
            _hear_temporary(notes, name)


def _hear_socket(notes: Notes, made: object = None, *_: object) -> None:
    if isinstance(made, socket.socket):  # those of C cannot be referred to weakly
        notes.sockets[made] = here()


def _hear_folder(notes: Notes, path: object = None, *_: object) -> None:
    if name := _text(path):
        notes.path(os.path.abspath(name))


def _hear_second(notes: Notes, first: object = None, path: object = None, *_: object) -> None:
    _hear_temporary(notes, _text(path))


def _hear_database(notes: Notes, path: object = None, *_: object) -> None:
    if name := _text(path):
        notes.open_of(name)
        _hear_temporary(notes, name)


def _hear_temporary(notes: Notes, path: str) -> None:
    """What is about to appear directly in the folder for temporary files."""
    if path and os.path.dirname(path) == _text(tempfile.tempdir) and not os.path.lexists(path):
        notes.path(path)


# Anybody may raise an event by such a name with other arguments, and what we raise would end what they do.
_HEARD: dict[str, Callable[..., None]] = {
    "open": _hear_open,
    "socket.__new__": _hear_socket,
    "socket.bind": _hear_second,
    "os.mkdir": _hear_folder,
    "os.link": _hear_second,
    "os.symlink": _hear_second,
    "os.rename": _hear_second,
    "sqlite3.connect": _hear_database,
}


def _text(path: object) -> str:
    """A path as text; empty if it is none."""
    try:
        return os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
    except (TypeError, ValueError):
        return ""


def _forked() -> None:
    """In the parent of a fork, uvloop's too: the child is the last of this thread's."""
    notes = _Tracking.notes
    if notes is not None and (children := slurp("/proc/thread-self/children").split()):
        notes.process(int(children[-1]))


# -- what is wrapped


def _wraps() -> Iterator[tuple[Any, str, Note | None, Note | None]]:
    """The holder, the name, and what to note before and after the call: from its result and its arguments."""
    for name in _OF_OS:
        if hasattr(os, name):
            yield os, name, None, _note_descriptors
    yield os, "forkpty", None, lambda notes, made, args: notes.descriptor(made[1])
    yield socket.socket, "detach", None, _note_descriptors
    yield selectors.EpollSelector, "__init__", None, lambda notes, made, args: notes.descriptor(args[0].fileno())
    for name in ("posix_spawn", "posix_spawnp"):
        yield os, name, None, lambda notes, made, args: notes.process(made)
    processes = vars(sys.modules["subprocess"])["Popen"]  # asyncio has loaded it
    yield processes, "__init__", None, lambda notes, made, args: notes.process(args[0].pid)
    yield sys.modules["_posixsubprocess"], "fork_exec", None, lambda notes, made, args: notes.process(made)
    yield threading.Thread, "start", lambda notes, made, args: notes.threads.update({args[0]: here()}), None
    bare = sys.modules["_thread"]
    yield bare, "start_new_thread", None, lambda notes, made, args: notes.bare_threads.update({made: here()})
    yield asyncio.Runner, "close", lambda notes, made, args: pending.left_by(args[0], notes), None
    for loop in (asyncio.BaseEventLoop, getattr(sys.modules.get("uvloop"), "Loop", None)):
        if loop is not None:
            yield loop, "run_forever", lambda notes, made, args: notes.loop(args[0]), None
            yield loop, "call_exception_handler", lambda notes, made, args: pending.destroyed(args[-1], notes), None


def _note_descriptors(notes: Notes, made: Any, args: tuple[Any, ...]) -> None:
    for number in made if isinstance(made, tuple) else (made,):
        notes.descriptor(number)


def _wrap(holder: Any, name: str, before: Note | None, after: Note | None) -> None:
    old = getattr(holder, name)
    own = name in vars(holder)

    @functools.wraps(old)
    def making(*args: Any, **named: Any) -> Any:
        notes = _Tracking.notes
        try:
            if notes is not None and before is not None:
                before(notes, None, args)
        finally:  # a runner closes, whatever its last tasks raise
            made = old(*args, **named)
        if notes is not None and after is not None:
            after(notes, made, args)
        return made

    def put_back() -> None:
        if vars(holder).get(name) is not making:  # somebody has put theirs over it, which calls it: it is inert now
            return
        if own:
            setattr(holder, name, old)
        else:
            delattr(holder, name)

    setattr(holder, name, making)
    _Tracking.undo.callback(put_back)
