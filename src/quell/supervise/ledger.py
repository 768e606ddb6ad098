"""The ledger: which boxes live, on disk, so that a later start can finish what a crash left.

A process is matched by pid, start time and boot, or by its cgroup; never by pid alone, and never while the owner
of its box lives (H13, H23). An entry is written before its box exists and removed when its stop is confirmed.
"""

from __future__ import annotations

import os
import time

from .keeper.crowd import cgroup_pids, cgroup_populated, kill_cgroup, remove_cgroup
from .keeper.light import signal
from .keeper.proc import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Facts = dict[str, list[list[Any]]]

_HEADER = "quell-ledger 1"
_LONG = 1000  # processes in an entry, most of them gone by then
END_LIMIT = 2.0  # seconds for what a crash left to be gone after SIGKILL


def state_dir() -> str:
    """Where Quell keeps its state: QUELL_STATE_DIR, else XDG_STATE_HOME/quell, else ~/.local/state/quell."""
    own = os.environ.get("QUELL_STATE_DIR")
    if own:
        return own
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"), "quell")


class Entry:
    """One box in the ledger: a small text file, a fact a line. What is learnt later is appended."""

    def __init__(self, path: str, facts: Facts) -> None:
        self._path = path
        self._facts = facts
        self._added = 0

    def write(self, processes: list[list[int]]) -> None:
        """The whole entry, in one step where there is one already."""
        facts = {**self._facts, "process": processes}
        lines = [_HEADER, *(f"{name} {' '.join(map(str, fact))}" for name in facts for fact in facts[name])]
        path = f"{self._path}.new" if self._added else self._path
        self._put(path, os.O_CREAT | os.O_TRUNC, "\n".join(lines) + "\n")
        if self._added:
            try:
                os.rename(path, self._path)
            except OSError:
                return  # the disk is full: the old entry stays
        self._added = len(processes)

    def add(self, processes: list[list[int]]) -> None:
        """A fifth of the cost of writing it anew; those that have ended since are told apart by their start time."""
        self._put(self._path, os.O_APPEND, "".join(f"process {pid} {start}\n" for pid, start in processes))
        self._added += len(processes)

    @property
    def long(self) -> bool:
        """H09: a box may see any number of commands; time to write anew who is left."""
        return self._added > _LONG

    def _put(self, path: str, flags: int, text: str) -> None:
        """A full disk costs the help that the ledger is after a crash; it neither stops nor ends a command."""
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | flags, 0o600)
        except OSError:
            return
        try:
            os.write(fd, os.fsencode(text))
        except OSError:
            return
        finally:
            os.close(fd)

    def remove(self) -> None:
        try:
            os.unlink(self._path)
        except OSError:  # gone, or the state directory is: an entry that stays does no harm
            return


class Ledger:
    def __init__(self, folder: str | None = None) -> None:
        """OSError where the state directory cannot be made or written."""
        self._folder = os.path.join(folder or state_dir(), "ledger")
        os.makedirs(os.path.dirname(self._folder), mode=0o700, exist_ok=True)
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        self._boot = boot_id()
        self._here = _namespace()
        self._owner: list[int] = []
        self._proc = Proc()

    def close(self) -> None:
        self._proc.close()

    def enter(self, rung: str, cgroup: str | None, processes: list[list[int]]) -> Entry:
        me = os.getpid()
        if me not in self._owner[:1]:
            self._owner = self._mark(me)
        # By chance, not by number: a process may have several zygotes, each with a ledger.
        path = os.path.join(self._folder, f"{me}-{self._owner[1]}-{os.urandom(6).hex()}.box")
        facts: Facts = {"boot": [[self._boot]], "namespace": [[self._here]], "owner": [self._owner], "rung": [[rung]]}
        if cgroup:
            facts["cgroup"] = [[cgroup]]
        entry = Entry(path, facts)
        entry.write(processes)
        return entry

    def _mark(self, pid: int) -> list[int]:
        stat = self._proc.stat(pid)
        return [pid, stat.start if stat else 0]

    def marks(self, *pids: int) -> list[list[int]]:
        """Pids with their start times, for an entry."""
        return [self._mark(pid) for pid in pids if pid]

    def reconcile(self, limit: float = END_LIMIT) -> list[dict[str, Any]]:
        """End what dead owners left. Tells, per box: how many processes were ended, and which would not."""
        found = []
        for name in sorted(os.listdir(self._folder)):
            path = os.path.join(self._folder, name)
            facts = _load(path)
            if facts is None:
                continue
            if facts["boot"][0][0] == self._boot:
                if facts["namespace"][0][0] != str(self._here) or self._proc.alive(*map(int, facts["owner"][0])):
                    continue  # of a PID namespace where the same numbers mean others, or with a live owner
                found.append(self._finish(facts, limit))
                if found[-1]["survivors"]:
                    continue
            Entry(path, facts).remove()
        return found

    def _finish(self, facts: Facts, limit: float) -> dict[str, Any]:
        cgroup = " ".join(facts["cgroup"][0]) if "cgroup" in facts else None
        marks = [(int(pid), int(start)) for pid, start in _pairs(facts.get("process", []))]
        pids = [pid for pid, start in marks if self._proc.alive(pid, start)]
        pids += [pid for root in list(pids) for pid in self._proc.descendants(root) if pid not in pids]
        members = cgroup_pids(cgroup) if cgroup else []
        fds = [fd for fd in map(_pidfd, pids) if fd is not None]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for fd in fds:
                _send(fd, number)
        if cgroup:
            kill_cgroup(cgroup)
        everyone = {*pids, *members}
        alive = self._await_end(everyone, cgroup, limit)
        for fd in fds:
            os.close(fd)
        if cgroup:
            remove_cgroup(cgroup)
        ended = len(everyone) - len(alive)
        return {"rung": facts["rung"][0][0], "owner": int(facts["owner"][0][0]), "ended": ended, "survivors": alive}

    def _await_end(self, pids: set[int], cgroup: str | None, limit: float) -> list[int]:
        """Who of them lives when all are gone or the limit is reached."""
        deadline = time.monotonic() + limit
        while True:
            alive = sorted(pid for pid in pids if self._proc.alive(pid))
            if not (alive or (cgroup and cgroup_populated(cgroup))) or time.monotonic() > deadline:
                return alive
            time.sleep(0.005)


def _pairs(found: list[list[Any]]) -> list[list[Any]]:
    """Those that were written whole."""
    return [pair for pair in found if len(pair) == 2 and all(number.isdecimal() for number in pair)]


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def _namespace() -> int:
    return os.stat("/proc/self/ns/pid").st_ino


def _load(path: str) -> Facts | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            header, *lines = file.read().splitlines()
    except (OSError, ValueError):
        return None
    facts: Facts = {}
    for line in lines:
        name, *fact = line.split(" ")
        facts.setdefault(name, []).append(fact)
    whole = header == _HEADER and {"boot", "namespace", "owner", "rung"} <= facts.keys()
    return facts if whole else None


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
