"""A safety PID namespace around every cell: whatever a cell leaves running dies with its first process, which is ours.

Everything here is the kernel's work, none of it Quell's.
"""

import ctypes
import json
import os
import signal
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
_PR_SET_PDEATHSIG = 1

Result = dict[str, Any]


def die_with_parent() -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def own_mounts() -> None:
    """Whatever this process mounts from now on is seen by it and its children only.

    Without root, a user namespace in which this user is still itself gives the right to do so.
    """
    uid, gid = os.getuid(), os.getgid()
    _unshare(_CLONE_NEWNS | (_CLONE_NEWUSER if uid else 0))
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)


def make_reachable(folders: Iterable[Path]) -> None:
    """Let every uid reach these folders, in this mount namespace only; nobody's permissions are changed.

    An interpreter or a checkout may lie below a folder that is closed to others (a home directory, say). Such a folder
    is covered by an empty one that is open, in which only what is needed is put back, at the same path.
    """
    held = {folder: os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders}
    for folder, fd in held.items():
        closed = [above for above in reversed(folder.parents) if not above.stat().st_mode & 0o001]
        if closed:
            _mount("tmpfs", str(closed[0]), "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
        if closed or not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            _mount(f"/proc/self/fd/{fd}", str(folder), None, _MS_BIND | _MS_REC)
        os.close(fd)


class Safe:
    """A job that runs as the first process of a PID namespace of its own, with its own /proc."""

    def __init__(self, job: Callable[[], Result]) -> None:
        self._out, end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._out)
                die_with_parent()
                _unshare(_CLONE_NEWPID | _CLONE_NEWNS)
                status = _first_process(job, end)
            finally:
                os._exit(status)
        os.close(end)

    def result(self) -> Result:
        """What the job returned, once nothing of its namespace is left."""
        with open(self._out, "rb") as file:
            said = file.read()
        os.waitpid(self._pid, 0)
        result: Result = json.loads(said or b'{"broken": "the driver of this cell died without a word"}')
        return result


def _first_process(job: Callable[[], Result], end: int) -> int:
    pid = os.fork()
    if pid:
        os.close(end)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        die_with_parent()
        _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
        os.setsid()
        said = job()
    except BaseException:  # noqa: BLE001 - the boundary of the cell: whatever broke it is its result
        said = {"broken": traceback.format_exc()}
    with open(end, "w") as file:
        json.dump(said, file)
    os._exit(0)


def _unshare(flags: int) -> None:
    if _libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), f"unshare: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    if _libc.mount(*words, ctypes.c_ulong(flags), data.encode() if data else None) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}: {os.strerror(ctypes.get_errno())}")


class Program(NamedTuple):
    argv: list[str]
    env: dict[str, str]

    def become(self) -> NoReturn:
        os.execvpe(self.argv[0], self.argv, self.env)


def run_as(
    uid: int, program: Program, stdout: int, stderr: int, cgroup: Path | None, older_child: Program | None = None
) -> int:
    """Start a program under this uid, in this cgroup, in our session and process group, every signal at its default.

    It may have a child from before it was this program, as it has after `helper & exec program` in a shell.
    """
    pid = os.fork()
    if pid:
        return pid
    try:
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        if cgroup is not None:
            (cgroup / "cgroup.procs").write_text("0")
        become(uid)
        os.chdir("/")
        if older_child is not None and os.fork() == 0:
            older_child.become()
        program.become()
    except BaseException as error:  # noqa: BLE001 - after the fork: nothing may return into the parent's code
        os.write(2, f"cannot start {program.argv[0]}: {error}\n".encode())
    finally:
        os._exit(125)


def become(uid: int) -> None:
    if uid != os.getuid():
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
