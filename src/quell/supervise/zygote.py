"""The owner's end of a zygote: starting one, asking it for boxes, and seeing the last of it."""

from __future__ import annotations

import os
import select
import sys

from ..errors import ContainmentError
from .box import START_LIMIT, Box
from .contain import cgroup_home, order
from .keeper.crowd import Descent, cgroup_populated, kill_cgroup, remove_cgroup, sweep
from .keeper.light import signal
from .keeper.link import Link, pair
from .keeper.linux import become_subreaper
from .keeper.proc import Proc
from .ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

POOL = 2  # boxes that a zygote has ready
EXIT_LIMIT = 3.0  # seconds for a zygote to be gone after its line is closed

BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from keeper.zygote import main; main(sys.argv[2:])"


class Zygote:
    """`with Zygote() as zygote: box = zygote.box()`. Leaving it ends every box by force.

    Not for use by several threads at once.
    """

    def __init__(self, contain: str = "auto", *, pool: int = POOL, state_dir: str | None = None) -> None:
        self._contain = contain
        self._state_dir = state_dir
        rungs = order(contain)
        ledger = Ledger(state_dir)
        try:
            ledger.reconcile()
            self._set(*_start(), ledger, forked=False, guarded=True)
        except BaseException:
            ledger.close()
            raise
        self._orders[contain] = rungs
        self._pool = pool if rungs[0] != "userns" else 0
        self.refill()

    @classmethod
    def fork(cls, env: dict[bytes, bytes], ledger: Ledger | None) -> Zygote:
        """Fork the zygote from this process, which is small, has one thread, and serves one box: `quell exec`.

        This process is the guard itself, unless it has children already: then it could not tell orphans apart.
        """
        from .keeper.zygote import serve, serve_guarded

        ours, theirs = pair()
        owner = os.pidfd_open(os.getpid())
        proc = Proc()
        guarded = bool(proc.children(os.getpid(), strict=True))
        proc.close()
        if not guarded:
            become_subreaper()
        pid = os.fork()
        if pid == 0:
            ours.close()
            (serve_guarded if guarded else serve)(theirs, owner, env)
        theirs.close()
        os.close(owner)
        self = cls.__new__(cls)
        self._contain = "auto"
        self._state_dir = None
        self._set(ours, pid, ledger, forked=True, guarded=guarded)
        return self

    def _set(self, line: Link, pid: int, ledger: Ledger | None, forked: bool, guarded: bool) -> None:
        self.line = line
        self.pid = pid
        self.ledger = ledger
        self._forked = forked
        self._guarded = guarded  # our child is the guard above the zygote
        try:
            self.end = os.pidfd_open(pid)
        except OSError as error:  # unwatched it is of no use, and it has made nothing yet
            line.close()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise ContainmentError(f"the zygote could not be watched: {error.strerror}") from None
        self._boxes: dict[int, Box] = {}
        self._orders: dict[str, list[str]] = {}
        self._spare: list[Box] = []
        self.marks = ledger.marks(pid) if ledger else []
        self._pool = 0
        self._count = 0
        self._status: int | None = None
        self._parent: Zygote | None = None
        self._lower: set[Zygote] = set()
        self._fate = "its zygote is gone"

    def __enter__(self) -> Zygote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- boxes

    def box(self, contain: str | None = None, *, let_go: list[int] | None = None) -> Box:
        """A new box on the rung asked for, or on the best that works. ContainmentError says why there is none."""
        reasons = []
        for rung in self.rungs(contain):
            box = self.begin(rung, let_go=let_go)
            try:
                box.await_ready()
            except BaseException as error:
                box.abandon()
                if not isinstance(error, ContainmentError):
                    raise
                reasons.append(str(error))
            else:
                return box
        raise ContainmentError("; ".join(reasons))

    def begin(self, rung: str, *, let_go: list[int] | None = None) -> Box:
        """A box that is there or about to be, without waiting for it: `settled` tells when, `confirm` whether."""
        if rung == "userns" and not self._forked and self._parent is None:
            zygote = Zygote("userns", pool=0, state_dir=self._state_dir)  # in the user namespace for good
            zygote._parent = self
            self._lower.add(zygote)
            try:
                return zygote._ask(rung, let_go, own_zygote=True)
            except BaseException:
                zygote.close()
                raise
        spare = next((box for box in self._spare if box.rung == rung), None)
        if spare is None:
            return self._ask(rung, let_go, False)
        self._spare.remove(spare)
        return spare

    def rungs(self, contain: str | None = None) -> list[str]:
        """The rungs to try, best first."""
        name = contain or self._contain
        if name not in self._orders:
            self._orders[name] = order(name)
        return self._orders[name]

    def refill(self) -> None:
        """Ask for boxes to have ready, and hear of those asked for before, without waiting."""
        rungs = self._orders.get(self._contain, [])
        for box in self._spare:
            if not box.settled():
                box.handle()
        while len(self._spare) < self._pool and not self.line.closed:
            try:
                self._spare.append(self._ask(rungs[0], None, False, spare=True))
            except (OSError, ContainmentError):  # a spare is a favour: who needs a box will hear why there is none
                return

    def _ask(self, rung: str, let_go: list[int] | None, own_zygote: bool, spare: bool = False) -> Box:
        self._count += 1
        home = cgroup_home() if rung == "cgroup" else None
        cgroup = f"{home}/quell-{os.getpid()}-{self._count}-{os.urandom(4).hex()}" if home else None
        ours, theirs = pair()
        entry = self.ledger.enter(rung, cgroup, self.marks) if self.ledger else None
        box = self._boxes[self._count] = Box(self, self._count, ours, rung, cgroup, entry, own_zygote, spare)
        request = {
            "op": "box", "box": self._count, "rung": rung, "cgroup": cgroup, "home": home, "let_go": let_go,
            "spare": spare,
        }  # fmt: skip
        self.line.send(request, [theirs.fileno()])
        self.line.drain(START_LIMIT)
        theirs.close()
        return box

    @property
    def idle(self) -> bool:
        """Whether nobody is left in a box of it."""
        return all(box in self._spare for box in self._boxes.values())

    def forget(self, box: Box) -> None:
        self._boxes.pop(box.ident, None)

    # -- what the zygote says

    def handle(self) -> None:
        """Take in what has arrived, without waiting."""
        ended = self._exited(0)  # asked before: what it said is there to be read
        self.line.flush()
        for message, _ in self.line.receive():
            if message["op"] == "broken":
                self._fate = f"its zygote failed ({message['why']})"
            elif box := self._boxes.get(message["box"]):
                box.hear_zygote(message)
        if ended:
            self.line.closed = True  # whoever else may hold its end of the line
        if self.line.closed:
            for box in [box for box in self._boxes.values() if not box.keeper and not box.settled()]:
                box.hear_zygote({"op": "refused", "why": self._fate})

    # -- ends

    def finish_alone(self, cgroup: str | None, limit: float) -> bool:
        """Zygote and keeper are gone: see to it that nobody is left. True if that was observed."""
        if cgroup:
            kill_cgroup(cgroup)
        if self._guarded:
            seen = self._exited(limit) and self._reap() == 0  # the guard sweeps, and then exits
        else:
            proc = Proc()
            seen = sweep(Descent(proc), limit)
            proc.close()
        if cgroup:
            seen = seen and not cgroup_populated(cgroup)
            remove_cgroup(cgroup)
        return seen

    def _exited(self, limit: float) -> bool:
        if self.end < 0:
            return True
        watch = select.poll()
        watch.register(self.end, select.POLLIN)
        return bool(watch.poll(limit * 1000))

    def _reap(self) -> int | None:
        """The status of our child, once."""
        if self._status is None:
            try:
                self._status = os.waitpid(self.pid, 0)[1]
            except ChildProcessError:  # whoever started us ignores SIGCHLD: the kernel reaped it
                return None
        return self._status

    def close(self, wait: bool = True) -> None:
        """End every box by force, and the zygote. It goes on alone where something cannot be ended."""
        if self.end < 0:
            return
        self.line.close()
        for box in list(self._boxes.values()):
            box.abandon()
        for zygote in list(self._lower):
            zygote.close(wait)
        if self._parent:
            self._parent._lower.discard(self)
        if wait and self._exited(EXIT_LIMIT):
            self._reap()
        os.close(self.end)
        self.end = -1
        if self.ledger:
            self.ledger.close()


def _start() -> tuple[Link, int]:
    """Start the program of a zygote: our end of the line to it, and its pid."""
    ours = theirs = owner = None
    try:
        ours, theirs = pair()
        owner = os.pidfd_open(os.getpid())
        # Two numbers that are neither of the two descriptors, so that no dup2 overwrites the other's source.
        line_fd, owner_fd = sorted({3, 4, 5, 6} - {theirs.fileno(), owner})[:2]
        actions = [
            *((os.POSIX_SPAWN_OPEN, fd, "/dev/null", os.O_RDWR, 0) for fd in (0, 1, 2)),
            (os.POSIX_SPAWN_DUP2, theirs.fileno(), line_fd),
            (os.POSIX_SPAWN_DUP2, owner, owner_fd),
        ]
        argv = [sys.executable, "-I", "-S", "-c", BOOT, os.path.dirname(__file__), str(line_fd), str(owner_fd)]
        return ours, os.posix_spawn(sys.executable, argv, {}, file_actions=actions)
    except OSError as error:
        if ours:
            ours.close()
        raise ContainmentError(f"the zygote could not be started: {error.strerror}") from None
    finally:
        if theirs:
            theirs.close()
        if owner is not None:
            os.close(owner)
