"""The zygote: forks keepers in about a millisecond, and outlives any of them to finish its work.

When a keeper is killed, what it kept becomes the zygote's by descent (or dies with the namespace), and the zygote
ends it. When the runtime is gone, the zygote ends everything and exits (H23).
"""

from __future__ import annotations

import os
import select
import sys
import time

from .box import Keeper, broken
from .crowd import Cgroup, Descent, Namespace, kill_cgroup, remove_cgroup, sweep
from .ending import Ending
from .light import signal
from .link import Link
from .linux import (
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    MS_SLAVE,
    SignalFd,
    argv_place,
    become_subreaper,
    die_with_parent,
    hide_memory,
    mount,
    rename,
    setns,
    unshare,
)
from .proc import Proc
from .streams import close_all_but, inherited, let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from .link import Message

LULL = 1  # millisecond of quiet before a spare box is made: the one before it is starting its command
NAMESPACE_RUNGS = ("pidns", "userns")
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
NOT_HELD = {signal.SIGKILL, signal.SIGSTOP, *FAULTS}
WAKE_LIMIT, WAKE_ROUND = 0.5, 0.02  # seconds for which, and between which, we look whether an owner needs waking
YIELD_LIMIT = 0.3  # seconds that a keeper has to end its box by itself when the runtime is gone


class Ward:
    """One keeper below the zygote."""

    def __init__(self, ident: int, pid: int, rung: str, cgroup: str | None) -> None:
        self.ident = ident
        self.pid = pid
        self.rung = rung
        self.cgroup = cgroup


class Zygote:
    def __init__(self, line: Link, owner: int, env: Mapping[bytes, bytes], rehearse: bool) -> None:
        self._line = line
        self._owner = owner
        self._env = env
        self._wards: dict[int, Ward] = {}
        self._argv = argv_place()
        self._later: list[tuple[Message, list[int]]] = []  # boxes to have ready, made when nothing else is going on
        self._proc = Proc()
        self._me = os.pidfd_open(os.getpid())
        self._home_ns = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        become_subreaper()
        self._signals = SignalFd(signal.valid_signals() - NOT_HELD)
        self._heard: set[int] = set()
        self._keeper_signals = SignalFd([signal.SIGCHLD])
        if rehearse:  # many keepers will follow, so that it pays
            from .rehearsal import rehearse_all

            rehearse_all(self._proc, env)
        self._bell, self._bell_rope = os.pipe()
        os.set_blocking(self._bell, False)
        os.set_blocking(self._bell_rope, False)
        self._wake_until = 0.0
        self._owner_pid = pid_of(owner)

    # -- the loop

    def run(self) -> None:
        try:
            while not self._line.closed:
                self._turn()
        except Exception as error:  # noqa: BLE001  a boundary: the owner hears of it, and every box ends all the same
            self._line.send(broken(error))
        finally:
            self._perish()

    def _turn(self) -> None:
        poller = select.poll()
        poller.register(self._line, select.POLLIN | (select.POLLOUT if self._line.wants_write else 0))
        poller.register(self._owner, select.POLLIN)
        poller.register(self._signals, select.POLLIN)
        poller.register(self._bell, select.POLLIN)
        wait = WAKE_ROUND * 1000 if self._wake_until else None
        ready = {fd for fd, _ in poller.poll(LULL if self._later else wait)}
        if not ready and self._later:
            self._make(*self._later.pop(0))
        if self._owner in ready:
            self._line.closed = True
            return
        if self._signals.fileno() in ready:
            self._listen()
        self._wake(os.read(self._bell, 4096) if self._bell in ready else b"")
        self._line.flush()
        if self._line.fileno() in ready:
            for message, fds in self._line.receive():
                self._obey(message, fds)
        self._reap()

    def _listen(self) -> None:
        self._heard.update(one.number for one in self._signals.read())

    def _wake(self, rung: bytes) -> None:
        """Continue an owner that stopped because its command had, now that the command goes on.

        It may be about to stop, so we look again for a while, unless the command is stopped again meanwhile.
        """
        if rung:
            self._wake_until = time.monotonic() + WAKE_LIMIT if rung.endswith(b"1") else 0.0
        if not self._wake_until:
            return
        stat = self._proc.stat(self._owner_pid)
        if stat is not None and stat.state == "T" and not self._stopped_again():
            signal.pidfd_send_signal(self._owner, signal.SIGCONT)
        if time.monotonic() > self._wake_until:
            self._wake_until = 0.0

    def _stopped_again(self) -> bool:
        """Asked after the owner was seen stopped: a keeper rings before it tells the owner of its command's stop."""
        try:
            if os.read(self._bell, 4096).endswith(b"0"):
                self._wake_until = 0.0
        except BlockingIOError:
            return False
        return not self._wake_until

    def _obey(self, message: Message, fds: list[int]) -> None:
        match message["op"]:
            case "box" if message["spare"]:
                self._later.append((message, fds))
            case "box":
                self._make(message, fds)
            case "hurry":
                for request in [one for one in self._later if one[0]["box"] == message["box"]]:
                    self._later.remove(request)
                    self._make(*request)
            case "heard":  # we are in the owner's group: what we got as well was sent to all of it
                self._listen()
                self._line.send({"op": "heard", "box": message["box"], "signals": sorted(self._heard)})
                self._heard.clear()
            case "kill":
                for ward in self._wards.values():
                    if ward.ident == message["box"]:
                        os.kill(ward.pid, signal.SIGKILL)

    # -- keepers

    def _make(self, message: Message, fds: list[int]) -> None:
        try:
            pid = self._fork(message, fds[0])
            self._line.send({"op": "box", "box": message["box"], "pid": pid, "zygote": os.getpid()})
        except OSError as error:
            self._line.send({"op": "refused", "box": message["box"], "why": str(error.strerror or error)})
        for fd in fds:
            os.close(fd)
        let_go(message.get("let_go"))

    def _fork(self, message: Message, link: int) -> int:
        rung, cgroup = message["rung"], message["cgroup"]
        if rung == "userns":
            enter_user_namespace()  # for good: this zygote serves one box
        elif rung == "pidns":
            unshare(CLONE_NEWPID)
        try:
            pid = os.fork()
            if pid == 0:
                self._become_keeper(rung, cgroup, message["home"], link)
            self._wards[pid] = Ward(message["box"], pid, rung, cgroup)
        finally:
            if rung == "pidns":
                self._go_home()
        return pid

    def _go_home(self) -> None:
        try:
            setns(self._home_ns, CLONE_NEWPID)
        except OSError as error:  # what we fork would be born into somebody's box: that is the end of us
            raise RuntimeError(f"there is no way back from a PID namespace: {error}") from None

    def _become_keeper(self, rung: str, cgroup: str | None, home: str | None, link: int) -> None:
        """In the forked child: `link` leads to the owner. Never returns."""
        try:
            rename("quell-keeper", self._argv)
            self._line.close()
            self._signals.close()
            os.close(self._home_ns)
            os.close(self._bell)
            for _, fds in self._later:
                for fd in fds:
                    os.close(fd)
            channel = Link.of(link)
            try:
                crowd = self._contain(rung, cgroup, home)
                hide_memory()
            except OSError as error:
                channel.send({"op": "refused", "why": str(error)})
                os._exit(0)
            channel.send({"op": "ready"})
            Keeper(channel, self._owner, crowd, self._env, bell=self._bell_rope, signals=self._keeper_signals).run()
        finally:
            os._exit(1)

    def _contain(self, rung: str, cgroup: str | None, home: str | None) -> Descent:
        if rung not in NAMESPACE_RUNGS:
            become_subreaper()
            proc = Proc()
            return Cgroup(proc, cgroup, home).create() if cgroup and home else Descent(proc)
        die_with_parent()
        watch = select.poll()
        watch.register(self._me, select.POLLIN)
        if watch.poll(0):  # the zygote died before it could be asked to take us along
            os._exit(1)
        unshare(CLONE_NEWNS)
        mount("none", "/", None, MS_REC | MS_SLAVE)
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
        return Namespace(Proc(), self._proc)

    # -- ends

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ward = self._wards.pop(pid, None)
            if ward is None:
                continue
            if status != 0 or ward.ident is not None:
                self._finish(ward, status)

    def _finish(self, ward: Ward, status: int) -> None:
        """End what a killed keeper may have left, and tell. One that ended by itself left nothing."""
        report = None
        if status != 0:
            ending = Ending(self._crowd(ward), "keeper died", grace=0)
            while True:
                self._collect(ending)
                ending.step()
                if ending.done:
                    break
                time.sleep(min(ending.wait(), 0.002))
            report = ending.report()
        if ward.cgroup:
            remove_cgroup(ward.cgroup)
        self._line.send({"op": "died", "box": ward.ident, "status": status, "report": report})

    def _crowd(self, ward: Ward) -> Descent:
        crowd = Cgroup(self._proc, ward.cgroup, "") if ward.cgroup else Descent(self._proc)
        crowd.skip = set(self._wards)
        return crowd

    def _collect(self, ending: Ending) -> None:
        """Reap whoever came to us from the dead keeper."""
        for pid in self._proc.children(os.getpid()):
            if pid not in self._wards:
                try:
                    done, status = os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    continue
                if done:
                    ending.reaped(pid, status)

    def _perish(self) -> None:
        """The runtime is gone: see every keeper end its box; then end whatever is left, however long it takes.

        A keeper at work is not stopped: if we were killed in that moment, nobody would wake it.
        """
        cgroups = [ward.cgroup for ward in self._wards.values() if ward.cgroup]
        for path in cgroups:
            kill_cgroup(path)
        await_ends(self._wards, YIELD_LIMIT)
        for pid in self._wards:
            os.kill(pid, signal.SIGKILL)
        sweep(Descent(self._proc))
        for path in cgroups:
            remove_cgroup(path)
        os._exit(0)


def pid_of(pidfd: int) -> int:
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as file:
        return next((int(line.split()[1]) for line in file if line.startswith("Pid:")), 0)


def enter_user_namespace() -> None:
    """Become the owner of a user namespace in which this user is itself, and of the PID namespace to come."""
    uid, gid = os.geteuid(), os.getegid()
    hide_memory(False)  # else the files below would be root's
    unshare(CLONE_NEWUSER | CLONE_NEWPID)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def hold_signals() -> None:
    """The keyboard and polite requests are for the commands: zygote and keepers end by other means."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - NOT_HELD)


def serve(line: Link, owner: int, env: Mapping[bytes, bytes], rehearse: bool = False) -> None:
    """Be the zygote of the process behind `owner`. Never returns."""
    try:
        rename("quell-zygote")
        hold_signals()
        hide_memory()
        Zygote(line, owner, env, rehearse).run()
    except OSError as error:
        line.send(broken(error))
    finally:
        os._exit(1)


def await_ends(children: dict[int, Ward], limit: float) -> None:
    """Reap until these are gone; no longer than this."""
    deadline = time.monotonic() + limit
    while children and time.monotonic() < deadline:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid:
            children.pop(pid, None)
        else:
            time.sleep(0.001)


def serve_guarded(line: Link, owner: int, env: Mapping[bytes, bytes], rehearse: bool = False) -> None:
    """Be the guard above a zygote: whichever of it and the runtime goes first, end all that is left. Never returns."""
    try:
        hold_signals()
        become_subreaper()
        zygote = os.fork()
        if zygote == 0:
            serve(line, owner, env, rehearse)
        try:
            end, crowd = os.pidfd_open(zygote), Descent(Proc())
            let_go(inherited())
            rename("quell-guard")
        except OSError:  # a zygote without a guard shall not be
            os.kill(zygote, signal.SIGKILL)
            raise
        line.close()
        watch = select.poll()
        watch.register(end, select.POLLIN)
        watch.register(owner, select.POLLIN)
        if end not in {fd for fd, _ in watch.poll()}:
            watch.unregister(owner)
            if not watch.poll(YIELD_LIMIT * 2 * 1000):
                os.kill(zygote, signal.SIGKILL)
        sweep(crowd)
        os._exit(0)
    except OSError as error:
        line.send(broken(error))
    finally:
        os._exit(1)


def main(arguments: list[str]) -> None:
    """The program that a runtime starts: `line owner`, two descriptors."""
    line, owner = map(int, arguments)
    close_all_but(0, 1, 2, line, owner)
    os.set_inheritable(line, False)
    os.set_inheritable(owner, False)
    os.setsid()
    os.chdir("/")
    serve_guarded(Link.of(line), owner, os.environb, rehearse=True)


if __name__ == "__main__":
    main(sys.argv[1:])
