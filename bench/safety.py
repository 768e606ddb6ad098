"""Every row runs in a PID namespace of its own: what a peer leaves behind, or a fault of ours, ends with the row.

Everything here is the kernel's work, none of it Quell's.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWPID = 0x00020000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG = 1


class BrokenRowError(Exception):
    """A row raised, or died: there is no figure for it."""


def safely(job: Callable[..., Any], *arguments: Any) -> Any:
    """What the job returns (as JSON can say it), once nothing that it started is left."""
    read, write = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _in_own_namespace(job, arguments, write)
    os.close(write)
    with open(read, "rb") as file:
        said = file.read()
    os.waitpid(pid, 0)
    answer = json.loads(said or b'{"broken": "it died without a word"}')
    if "broken" in answer:
        raise BrokenRowError(answer["broken"])
    return answer["result"]


def _in_own_namespace(job: Callable[..., Any], arguments: tuple[Any, ...], out: int) -> NoReturn:
    """In the forked child. The namespace's first process only reaps: the job below it is a process like any other."""
    try:
        _die_with_parent()
        _check(_libc.unshare(_CLONE_NEWPID | _CLONE_NEWNS), "unshare")
        first = os.fork()
        if first:
            os.close(out)
            os.waitpid(first, 0)
            os._exit(0)
        _die_with_parent()
        _check(_libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None), "mount")
        _check(
            _libc.mount(b"proc", b"/proc", b"proc", ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC), None), "mount"
        )
        worker = os.fork()
        if worker:
            os.close(out)
            while os.waitpid(-1, 0)[0] != worker:
                pass
            os._exit(0)
        os.setsid()
        _answer(out, {"result": job(*arguments)})
    except BaseException:  # noqa: BLE001  the boundary of a row: whatever broke it is its result
        _answer(out, {"broken": traceback.format_exc()})
    finally:
        os._exit(0)


def _answer(out: int, answer: dict[str, Any]) -> None:
    with open(out, "w", encoding="utf-8", closefd=False) as file:
        json.dump(answer, file)


def _die_with_parent() -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
