"""A crowd: the processes that one stop is about, and the ways to signal, kill and see the last of them.

Every crowd is found by descent. Orphans below a keeper become its children, because it is a subreaper or the
init of a PID namespace, so that "no child left" from the kernel means that nobody is left (H11, H13).
"""

from __future__ import annotations

import errno
import os
import time

from .freeze import Freeze
from .light import signal
from .proc import Proc, Seen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    Look = Callable[[list[Seen]], None]
    Reaped = Callable[[int, int], None]

WALK_LIMIT = 0.05  # seconds: a signal is sent walk after walk for no longer than this
SWEEP_PATIENCE = 0.25  # seconds between two rounds against what SIGKILL does not end, at the most


class Descent:
    """Everything below this process but what is in `skip`: the subreaper rung, and any one tree in a box.

    `skip` leaves out lower keepers with all below them, `hidden` leaves just them out of what is seen.
    """

    def __init__(self, proc: Proc, host: Proc | None = None) -> None:
        self.proc = proc
        self.host = host or proc
        self.namespaced = host is not None
        self.skip: Collection[int] = ()
        self.hidden: Collection[int] = ()

    def part(self, name: str, skip: Collection[int]) -> Descent:
        """The crowd of one tree in this box."""
        crowd = Descent(self.proc, self.host if self.namespaced else None)
        crowd.skip = skip
        return crowd

    def on_host(self, pid: int) -> int:
        """The pid by which the host knows a process; not above 0 if it is gone."""
        if not self.namespaced:
            return pid
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            return 0
        try:
            return self.host.pid_of(fd)
        finally:
            os.close(fd)

    def see(self) -> list[Seen]:
        """The living members."""
        return self._seen(self.proc.descendants(os.getpid(), self.skip))

    def look_at(self, pid: int) -> None:
        """See one process, as a rehearsal."""
        self._seen([pid])

    def _seen(self, pids: Iterable[int]) -> list[Seen]:
        seen = []
        for pid in pids:
            argv = self.proc.argv(pid)
            if pid not in self.hidden and (argv or self.proc.alive(pid)) and (host := self.on_host(pid)) > 0:
                seen.append(Seen(host, pid if self.namespaced else None, argv))
        return seen

    def enter(self) -> None:
        """Called right before a member is spawned, and `leave` right after."""

    def leave(self) -> None:
        pass

    def close(self) -> None:
        """Give back what the crowd holds in the kernel. It is empty by now."""

    def _each(self, number: int, ours: set[int], spare_group: bool = False) -> bool:
        """Signal, parents first, everybody who is not in `ours` yet. True if there was anybody."""
        fresh = False
        for pid in self.proc.descendants(os.getpid(), self.skip):
            if pid not in ours and _send(self.proc, pid, number, ours, spare_group=spare_group):
                ours.add(pid)
                fresh = True
        return fresh

    def _everybody(self, number: int, spare_group: bool) -> set[int]:
        """Signal until a walk finds nobody new: who dies of it during a walk hands its children up to us."""
        ours = {os.getpid()}
        limit = time.monotonic() + WALK_LIMIT
        while self._each(number, ours, spare_group) and time.monotonic() < limit:
            pass
        return ours

    def signal(self, number: int, spare_group: bool = False) -> None:
        """`spare_group`: not those in this process's own group, who have got it already."""
        self._everybody(number, spare_group)

    def kill(self, look: Look | None = None) -> None:
        """One forced round: everybody is stopped, looked at if that is asked for, and killed."""
        with Freeze(self.proc, self.skip) as frozen:
            if look:
                look(self._seen(frozen.held))
            frozen.kill()

    def empty(self) -> bool:
        """Called when there is nothing to reap: whether that is because nobody is left."""
        if not self.skip:
            return not _has_child()
        try:
            return all(child in self.skip for child in self.proc.children(os.getpid(), strict=True))
        except OSError:  # whom we cannot see may be there (H17)
            return False


class Namespace(Descent):
    """Everything in the PID namespace that this process is the init of."""

    def signal(self, number: int, spare_group: bool = False) -> None:
        if spare_group:
            super().signal(number, spare_group)
        else:
            _send_all(number)

    def see(self) -> list[Seen]:
        try:
            return self._seen(pid for pid in self.proc.everybody() if pid != os.getpid())
        except OSError:  # we lack a descriptor to look with; the kernel knows whom it kills
            return []

    def kill(self, look: Look | None = None) -> None:
        if look:
            look(self.see())
        _send_all(signal.SIGKILL)


class Cgroup(Descent):
    """Everything in one cgroup, and whatever left it but still descends from here."""

    def __init__(self, proc: Proc, path: str, home: str) -> None:
        super().__init__(proc)
        self.path = path
        self._home = home

    def create(self) -> Cgroup:
        os.mkdir(self.path, 0o755)
        try:
            if not os.path.exists(f"{self.path}/cgroup.kill"):
                raise OSError(errno.ENOTSUP, "the cgroups of this kernel have no cgroup.kill (Linux 5.14 has)")
            self.enter()
            self.leave()
        except OSError:
            self.close()
            raise
        return self

    def part(self, name: str, skip: Collection[int]) -> Descent:
        crowd = Cgroup(self.proc, f"{self.path}/{name}", self._home)
        os.mkdir(crowd.path, 0o755)
        crowd.skip = skip
        return crowd

    def enter(self) -> None:
        _write(f"{self.path}/cgroup.procs", "0")

    def leave(self) -> None:
        _write(f"{self._home}/cgroup.procs", "0")

    def members(self) -> list[int]:
        return cgroup_pids(self.path)

    def see(self) -> list[Seen]:
        below = list(self.proc.descendants(os.getpid(), self.skip))
        return self._seen([*below, *set(self.members()).difference(below)])

    def signal(self, number: int, spare_group: bool = False) -> None:
        ours = self._everybody(number, spare_group)
        for pid in self.members():
            if pid not in ours:
                _send(self.proc, pid, number, cgroup=self.path, spare_group=spare_group)

    def kill(self, look: Look | None = None) -> None:
        below, members = list(self.proc.descendants(os.getpid(), self.skip)), set(self.members())
        if look:
            look(self._seen([*below, *members.difference(below)]))
        if not kill_cgroup(self.path) or not members.issuperset(below):  # somebody left the cgroup, or is new
            super().kill(look)

    def empty(self) -> bool:
        return super().empty() and not cgroup_populated(self.path)

    def close(self) -> None:
        remove_cgroup(self.path)


def sweep(crowd: Descent, limit: float | None = None, reaped: Reaped | None = None) -> bool:
    """End everything below this process. True once the kernel says that it has no child; False after `limit`."""
    deadline = None if limit is None else time.monotonic() + limit
    wait = 0.001
    while True:
        try:
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if reaped:
                    reaped(*found)
        except ChildProcessError:
            return True
        if deadline is not None and time.monotonic() > deadline:
            return False
        try:
            crowd.kill()
        except OSError:  # nobody sweeps after us: try again
            pass
        time.sleep(wait)
        wait = min(wait * 2, SWEEP_PATIENCE)


def cgroup_pids(path: str) -> list[int]:
    pids: list[int] = []
    for folder, _, files in os.walk(path):
        if "cgroup.procs" in files:
            try:
                with open(f"{folder}/cgroup.procs", encoding="ascii") as file:
                    pids += map(int, file.read().split())
            except OSError:
                continue
    return pids


def cgroup_populated(path: str) -> bool:
    try:
        with open(f"{path}/cgroup.events", encoding="ascii") as file:
            return "populated 1" in file.read()
    except FileNotFoundError:
        return False
    except OSError:  # what cannot be read may be populated (H17)
        return True


def kill_cgroup(path: str) -> bool:
    """Whether the kernel took it on."""
    try:
        _write(f"{path}/cgroup.kill", "1")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def remove_cgroup(path: str) -> None:
    """Remove a cgroup with those below it; one that still has members stays."""
    for folder, _, _ in os.walk(path, topdown=False):
        try:
            os.rmdir(folder)
        except OSError:
            continue


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _send_all(number: int) -> None:
    try:
        os.kill(-1, number)
    except OSError:
        return


def _send(
    proc: Proc,
    pid: int,
    number: int,
    parents: Collection[int] = (),
    cgroup: str | None = None,
    spare_group: bool = False,
) -> bool:
    """Signal one of ours through a pidfd taken *before* its parent or cgroup is checked, so never a stranger."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        stat = proc.stat(pid)
        if stat is None or stat.state in "ZX":
            return False
        if not (proc.in_cgroup(pid, cgroup) if cgroup else stat.parent in parents):
            return False
        if not (spare_group and stat.group == os.getpgrp()):
            signal.pidfd_send_signal(fd, number)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _has_child() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | os.WSTOPPED | os.WCONTINUED)
        return True
    except ChildProcessError:
        return False
