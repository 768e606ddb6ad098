"""The keeper of one box: spawns its commands, reaps, runs the stop ladder, and ends the box when its owner is gone.

The first tree hangs directly below the keeper. A further one that starts while the first still has members gets
a keeper of its own below this one, so that what it orphans stays told apart and can be ended alone.
"""

from __future__ import annotations

import errno
import os
import select

from .crowd import Descent, Namespace, sweep
from .ending import SETTLE, Ending
from .launch import launch
from .light import signal
from .link import Link, milliseconds, pair
from .linux import SignalFd, become_subreaper, seal
from .streams import let_go

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from .link import Message

FLUSH_LIMIT = 1.0  # seconds to hand the last message over to an owner that does not read


class Tree:
    """One spawned command. `below` leads to the keeper it was given; None while it hangs directly below this one."""

    def __init__(self, ident: int, spec: dict[str, Any], crowd: Descent) -> None:
        self.ident = ident
        self.argv: list[str] = spec["argv"]
        self.last_grace: float | None = spec.get("last_grace")  # set: the box ends with this command
        self.crowd = crowd
        self.pid = 0
        self.host_pid = 0
        self.tried = False  # whether it came to starting the command itself
        self.running = True
        self.stopped = False
        self.below: Link | None = None
        self.below_pid = 0
        self.fate = "its keeper was killed before it said that the command runs"
        self.ending: Ending | None = None


class Keeper:
    """`lower`: a keeper below a keeper, which minds one tree and is over with it."""

    def __init__(
        self,
        link: Link,
        owner: int,
        crowd: Descent,
        env: Mapping[bytes, bytes],
        lower: bool = False,
        bell: int | None = None,
        signals: SignalFd | None = None,
    ) -> None:
        self._link = link
        self._owner = owner
        self._crowd = crowd
        self._env = env
        self._lower = lower
        self._bell = bell  # tells the zygote to wake an owner that stopped when its command did
        self._signals = signals or SignalFd([signal.SIGCHLD])  # one of the parent's reads as ours after a fork
        self._trees: dict[int, Tree] = {}
        self._lower_pids: set[int] = set()
        self._ending: Ending | None = None
        self._served = False
        crowd.skip, crowd.hidden = (), self._lower_pids

    # -- the loop

    def run(self) -> None:
        """Until the box is over. A lost owner, or a fault of our own, ends it by force."""
        try:
            while not self._over():
                self.turn()
        except Exception as error:  # noqa: BLE001  a boundary: the owner hears of it, and the box ends all the same
            self._link.send(broken(error))
        self._link.drain(FLUSH_LIMIT)
        self._perish()

    def close(self) -> None:
        """Let go of what it holds itself."""
        self._link.close()
        self._signals.close()

    def _over(self) -> bool:
        served = self._lower and self._served and not self._trees
        return served or self._link.closed or (self._ending is not None and self._ending.done)

    def turn(self) -> None:
        """Wait for something to happen, and see to it."""
        poller = select.poll()
        poller.register(self._link, select.POLLIN | (select.POLLOUT if self._link.wants_write else 0))
        poller.register(self._owner, select.POLLIN)
        poller.register(self._signals, select.POLLIN)
        for tree in self._trees.values():
            if tree.below and not tree.below.closed:
                poller.register(tree.below, select.POLLIN)
        endings = self._endings()
        wait = min((ending.wait() for ending in endings), default=None)
        ready = {fd for fd, _ in poller.poll(milliseconds(wait))}
        if self._owner in ready:
            self._link.closed = True
            return
        if self._signals.fileno() in ready:
            self._signals.read()
        for tree in [tree for tree in self._trees.values() if tree.below and tree.below.fileno() in ready]:
            self._relay(tree)
        self._reap()
        self._link.flush()
        if self._link.fileno() in ready:
            for message, fds in self._link.receive():
                self._obey(message, fds)
        self._step()

    def _endings(self) -> list[Ending]:
        endings = [tree.ending for tree in self._trees.values() if tree.ending]
        return [*endings, self._ending] if self._ending else endings

    def _step(self) -> None:
        for tree in list(self._trees.values()):
            if tree.ending is not None:
                tree.ending.step()
                if tree.ending.done:
                    self._link.send({"op": "receipt", "tree": tree.ident, "report": tree.ending.report()})
                    tree.running = tree.running and not tree.ending.confirmed  # its keeper may have reaped it
                    tree.ending = None
            if tree.below is None and not tree.running and tree.crowd.empty():
                self._forget(tree)
                self._link.send({"op": "empty", "tree": tree.ident})
        if self._ending is not None:
            self._ending.step()
            if self._ending.done:
                self._link.send({"op": "receipt", "tree": None, "report": self._ending.report()})

    def _forget(self, tree: Tree) -> None:
        if tree.crowd is not self._crowd:
            tree.crowd.close()
        del self._trees[tree.ident]

    # -- what the owner asks

    def _obey(self, message: Message, fds: list[int]) -> None:
        tree = self._trees.get(message.get("tree", -1))
        match message["op"]:
            case "spawn":
                self._spawn(message["tree"], message["spec"], fds)
            case "signal" if tree is not None:
                if tree.below:
                    tree.below.send(message)
                elif tree.running:
                    _signal(tree.pid, message["signal"])  # a child of ours that we have not reaped: never a stranger
            case "stop" if "tree" not in message:
                self._stop_box(message)
            case "stop" if tree is not None:
                self._stop_tree(tree, message)
            case "stop":
                self._link.send({"op": "receipt", "tree": message["tree"], "report": None})
            case "see" if tree is not None:
                if tree.below:
                    tree.below.send(message)
                else:
                    seen = [(one.pid, one.argv) for one in tree.crowd.see()]
                    self._link.send({"op": "seen", "tree": tree.ident, "seen": seen})

    def _stop_box(self, message: Message) -> None:
        if self._ending is None:
            self._ending = self._end(self._crowd, self._trees.values(), message)
        else:
            self._ending.again(message["ask"], message["grace"], message.get("spare_group", False))

    def _stop_tree(self, tree: Tree, message: Message) -> None:
        if tree.below:
            tree.below.send(message)
        elif tree.ending is None:
            tree.ending = self._end(tree.crowd, [tree], message)
        else:
            tree.ending.again(message["ask"], message["grace"], message.get("spare_group", False))

    def _end(self, crowd: Descent, trees: Iterable[Tree], message: Message) -> Ending:
        spare = message.get("spare_group", False)
        ending = Ending(crowd, message["reason"], message["grace"], message["ask"], spare_group=spare)
        for tree in trees:
            if tree.running and tree.pid:
                ending.note(tree.pid, tree.argv, tree.host_pid, self._inner(tree.pid))
        return ending

    def _inner(self, pid: int) -> int | None:
        return pid if self._crowd.namespaced else None

    # -- trees

    def _spawn(self, ident: int, spec: dict[str, Any], fds: list[int]) -> None:
        self._served = True
        tree = None
        try:
            if self._ending is not None:
                raise OSError(errno.ESHUTDOWN, "it is stopping")
            whole = self._lower or spec.get("last_grace") is not None
            tree = Tree(ident, spec, self._crowd if whole else self._crowd.part(str(ident), self._lower_pids))
            alone = all(other.below for other in self._trees.values())
            self._trees[ident] = tree  # entered before it exists (H01)
            if alone:
                self._start(tree, spec, fds)
            else:
                self._delegate(tree, spec, fds)
        except Exception as error:  # a boundary: what cannot be started costs nobody else in the box
            if tree is not None and tree.pid:  # it runs: the box is broken, and ends with it
                raise
            if ident in self._trees:
                self._forget(self._trees[ident])
            code, why = (error.errno, error.strerror) if isinstance(error, OSError) else (errno.EINVAL, str(error))
            if tree is None or not tree.tried:
                code, why = 0, f"its box cannot take it: {why}"
            self._link.send({"op": "failed", "tree": ident, "errno": code, "why": why})
        for fd in fds:
            os.close(fd)

    def _start(self, tree: Tree, spec: dict[str, Any], fds: list[int]) -> None:
        if self._crowd.namespaced:  # elsewhere the mounts are everybody's
            for path in spec.get("sealed", ()):
                if os.access(path, os.W_OK):
                    seal(path)
        try:
            tree.crowd.enter()
            tree.tried = True
            try:
                tree.pid = launch(spec, fds, self._env)
            finally:
                tree.crowd.leave()
        finally:
            os.chdir("/")
        let_go(spec.get("let_go"))
        tree.host_pid = self._crowd.on_host(tree.pid)
        if tree.host_pid <= 0:
            raise OSError(errno.ESRCH, "the pid of the command cannot be told")
        self._link.send({"op": "spawned", "tree": tree.ident, "pid": tree.host_pid, "inner": self._inner(tree.pid)})

    def _delegate(self, tree: Tree, spec: dict[str, Any], fds: list[int]) -> None:
        owner = os.pidfd_open(os.getpid())
        try:
            ours, theirs = pair()
            pid = os.fork()
            if pid == 0:
                ours.close()
                self._become_lower(theirs, owner, tree.crowd)
        finally:
            os.close(owner)
        theirs.close()
        self._lower_pids.add(pid)
        tree.below, tree.below_pid = ours, pid
        tree.below.send({"op": "spawn", "tree": tree.ident, "spec": spec}, fds)

    def _become_lower(self, link: Link, owner: int, crowd: Descent) -> None:
        """In the forked child: mind one tree. Never returns."""
        try:
            self._link.close()
            self._signals.close()
            os.close(self._owner)
            for tree in self._trees.values():
                if tree.below:
                    tree.below.close()
            become_subreaper()
            Keeper(link, owner, crowd, self._env, lower=True).run()
        except OSError as error:
            link.send(broken(error))
        finally:
            os._exit(1)

    def _relay(self, tree: Tree) -> None:
        """Pass on what a lower keeper says, and keep what its loss would make us need."""
        assert tree.below is not None
        for message, _ in tree.below.receive():
            match message["op"]:
                case "broken":
                    tree.fate = f"its keeper failed ({message['why']})"
                    continue
                case "spawned":
                    tree.pid, tree.host_pid = message["inner"] or message["pid"], message["pid"]
                case "exited":
                    tree.running = False
                case "failed" | "empty":
                    self._trees.pop(tree.ident, None)
            self._link.send(message)
        if tree.ident not in self._trees:
            tree.below.close()

    def _lost(self, tree: Tree) -> None:
        """A lower keeper was killed: what it minded hangs below us now, and ends (H10)."""
        self._relay(tree)
        if tree.ident not in self._trees:
            return
        if tree.below is not None:
            tree.below.close()
        tree.below, tree.below_pid = None, 0
        if not tree.pid:
            tree.running = False
            self._link.send({"op": "failed", "tree": tree.ident, "errno": 0, "why": tree.fate})
        others = {other.pid for other in self._trees.values() if other is not tree and not other.below}
        tree.crowd.skip = self._lower_pids | others
        tree.ending = self._end(tree.crowd, [tree], {"reason": "keeper died", "grace": 0, "ask": signal.SIGTERM})

    # -- ends

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            root = next((tree for tree in self._trees.values() if tree.running and tree.pid == pid), None)
            if os.WIFSTOPPED(status) or os.WIFCONTINUED(status):
                if root is not None and root.below is None and self._ending is None:
                    stopped = os.WSTOPSIG(status) if os.WIFSTOPPED(status) else 0
                    self._ring(root, bool(stopped))
                    self._link.send({"op": "stopped", "tree": root.ident, "signal": stopped})
                continue
            if pid in self._lower_pids:
                self._lower_pids.discard(pid)
                for tree in [tree for tree in self._trees.values() if tree.below_pid == pid]:
                    self._lost(tree)
            for ending in self._endings():
                ending.reaped(pid, status)
            if root is not None:
                self._root_ended(root, status)

    def _ring(self, tree: Tree, stopped: bool) -> None:
        if tree.stopped != stopped and self._bell is not None:
            try:
                os.write(self._bell, b"0" if stopped else b"1")
            except OSError:  # the zygote is gone or does not listen: no reason to end the box
                pass
        tree.stopped = stopped

    def _root_ended(self, tree: Tree, status: int) -> None:
        tree.running = False
        self._link.send({"op": "exited", "tree": tree.ident, "status": status})
        self._ring(tree, False)
        if tree.last_grace is not None and self._ending is None:
            self._ending = Ending(self._crowd, "exit", tree.last_grace, settle=SETTLE)
            self._ending.note(tree.pid, tree.argv, tree.host_pid, self._inner(tree.pid))
            self._ending.reaped(tree.pid, status)

    def _perish(self) -> None:
        """End whoever is left by force, however long it takes, and this process with them."""
        if isinstance(self._crowd, Namespace):
            os._exit(0)  # the kernel kills the namespace with its init, and holds the init until all are gone
        sweep(self._crowd, reaped=self._tell_end)
        self._crowd.close()
        self._link.drain(FLUSH_LIMIT)
        os._exit(0)

    def _tell_end(self, pid: int, status: int) -> None:
        for tree in self._trees.values():
            if tree.running and tree.pid == pid:
                self._link.send({"op": "exited", "tree": tree.ident, "status": status})


def broken(error: Exception) -> Message:
    """What zygote and keepers say before they end because of a fault of their own."""
    return {"op": "broken", "why": str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"}


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:  # it became another user's, or there is no such signal
        return
