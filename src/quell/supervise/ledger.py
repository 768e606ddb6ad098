"""The ledger: which boxes live, on disk, so that a later start can finish what a crash left.

A process is matched by pid, start time and boot, or by its cgroup; never by pid alone, and never while the owner
of its box lives (H13, H23). An entry is written before its box exists and removed when its stop is confirmed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from typing import Any

from .keeper.crowd import cgroup_pids, cgroup_populated, kill_cgroup, remove_cgroup
from .keeper.proc import Proc

_END_LIMIT = 2.0  # seconds for what a crash left to be gone after SIGKILL


def state_dir() -> str:
    """Where Quell keeps its state: QUELL_STATE_DIR, else XDG_STATE_HOME/quell, else ~/.local/state/quell."""
    own = os.environ.get("QUELL_STATE_DIR")
    if own:
        return own
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "quell")


class Entry:
    """One box in the ledger."""

    def __init__(self, path: str, body: dict[str, Any]) -> None:
        self._path = path
        self._body = body

    def write(self, **facts: Any) -> None:
        self._body.update(facts)
        fresh = f"{self._path}.new"
        fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, json.dumps(self._body).encode())
        finally:
            os.close(fd)
        os.rename(fresh, self._path)

    def remove(self) -> None:
        try:
            os.unlink(self._path)
        except FileNotFoundError:
            return


class Ledger:
    def __init__(self, folder: str | None = None) -> None:
        """OSError where the state directory cannot be made or written."""
        self._folder = os.path.join(folder or state_dir(), "ledger")
        os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._proc = Proc()
        self._count = 0

    def enter(self, rung: str, cgroup: str | None) -> Entry:
        me = os.getpid()
        self._count += 1
        owner = self._mark(me)
        path = os.path.join(self._folder, f"{me}-{owner[1]}-{self._count}.json")
        entry = Entry(path, {"version": 1, "boot": boot_id(), "namespace": _namespace(), "owner": owner})
        entry.write(rung=rung, cgroup=cgroup, processes=[])
        return entry

    def _mark(self, pid: int) -> list[int]:
        stat = self._proc.stat(pid)
        return [pid, stat.start if stat else 0]

    def marks(self, *pids: int) -> list[list[int]]:
        """Pids with their start times, for an entry."""
        return [self._mark(pid) for pid in pids if pid]

    def reconcile(self) -> list[dict[str, Any]]:
        """End what dead owners left. Tells, per box: how many processes were ended, and which would not."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            path = os.path.join(self._folder, name)
            body = _load(path)
            if body is None or (body["boot"] == boot_id() and body["namespace"] != _namespace()):
                continue  # not an entry, or of another PID namespace, where the same numbers mean others
            if body["boot"] == boot_id():
                if self._proc.alive(*body["owner"]):
                    continue
                found.append(self._finish(body))
                if found[-1]["survivors"]:
                    continue
            Entry(path, body).remove()
        return found

    def _finish(self, body: dict[str, Any]) -> dict[str, Any]:
        cgroup = body["cgroup"]
        pids = [pid for pid, start in body["processes"] if self._proc.alive(pid, start)]
        pids += [pid for root in list(pids) for pid in self._proc.descendants(root) if pid not in pids]
        members = cgroup_pids(cgroup) if cgroup else []
        fds = [fd for fd in map(_pidfd, pids) if fd is not None]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for fd in fds:
                _send(fd, number)
        if cgroup:
            kill_cgroup(cgroup)
        deadline = time.monotonic() + _END_LIMIT
        everyone = {*pids, *members}
        while (alive := sorted(pid for pid in everyone if self._proc.alive(pid))) or (cgroup and cgroup_populated(cgroup)):
            if time.monotonic() > deadline:
                break
            time.sleep(0.005)
        for fd in fds:
            os.close(fd)
        if cgroup:
            remove_cgroup(cgroup)
        return {"rung": body["rung"], "owner": body["owner"][0], "ended": len(everyone) - len(alive), "survivors": alive}


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
        return body if isinstance(body, dict) and body.get("version") == 1 else None
    except (OSError, ValueError):
        return None


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def _send(fd: int, number: int) -> None:
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return
