"""The owner's end of a box: asks its keeper to spawn and to stop, and waits for what the keeper saw.

Every wait has an end. A keeper that does not answer at the ladder's end is killed by the zygote, which then ends
the box; if nobody answers, the verdict is `unconfirmed` and names who could be seen.
"""

from __future__ import annotations

import os
import select
import time

from ..errors import BoxLostError, ContainmentError, SpawnError
from .keeper.crowd import remove_cgroup
from .keeper.ending import KILL_LIMIT
from .keeper.light import signal
from .keeper.link import Link, milliseconds
from .keeper.proc import Proc
from .ledger import Entry
from .receipt import Receipt, nothing_seen, now_text
from .request import plain, spec_for
from .tree import Tree, streams_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .keeper.link import Message
    from .tree import Stream
    from .zygote import Zygote

INFINITY = float("inf")
GRACE = 5.0  # seconds between SIGTERM and SIGKILL
START_LIMIT = 30.0  # seconds for a box to be made, or a command to start
ANSWER_LIMIT = 1.0  # seconds past the ladder's end for keeper or zygote to say how it went


class Box:
    def __init__(
        self,
        zygote: Zygote,
        ident: int,
        link: Link,
        rung: str,
        cgroup: str | None,
        entry: Entry | None,
        own_zygote: bool,
        ahead: bool,
    ) -> None:
        self.ident = ident
        self.rung = rung
        self.keeper = 0
        self.zygote_pid = 0
        self._keeper_end = -1
        self.receipt: Receipt | None = None
        self._zygote = zygote
        self._link = link
        self._cgroup = cgroup
        self._entry = entry
        self._recorded = False  # whether the entry names the keeper
        self._count = 0
        self._first: Tree | None = None
        self._trees: dict[int, Tree] = {}
        self._with_streams: dict[int, Tree] = {}
        self._ready = False
        self._refused: str | None = None
        self._died: Message | None = None
        self._reason = ""
        self._deadline: float | None = None  # by when the next answer must be here
        self._asked_zygote = False
        self._heard: list[list[int]] = []
        self._began = now_text()
        self._own_zygote = own_zygote
        self._ahead = ahead  # made ahead of need: recorded with its first command, whose start is not held up
        self.changed: Callable[[Box], None] | None = None  # told when the box is ready, refused, lost or over

    # -- spawning

    def await_ready(self) -> None:
        if not self.settled():
            self.handle()
        if not self.settled():
            self.hurry()
            self.until(self.settled, START_LIMIT)
        self.confirm()

    def hurry(self) -> None:
        """Have the zygote make it before others."""
        self._zygote.line.send({"op": "hurry", "box": self.ident})

    def confirm(self) -> None:
        """ContainmentError if the box is not there."""
        if self.over() or not self._ready:
            self._refused = self._refused or "its keeper did not start"
        if self._refused is not None:
            self._link.close()
            if self._entry:
                self._entry.remove()
            raise ContainmentError(f"this machine does not give the rung '{self.rung}': {self._refused}")
        if not self._ahead:
            self._record()

    def settled(self) -> bool:
        """Whether it is known if this box is there."""
        return (self._ready and self.keeper > 0) or self._refused is not None or self.over()

    def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        umask: int | None = None,
        rlimits: Mapping[str, tuple[int, int]] | None = None,
        nice: int = 0,
        stdin: Stream = None,
        stdout: Stream = None,
        stderr: Stream = None,
        timeout: float = START_LIMIT,
    ) -> Tree:
        """Start a command in this box. SpawnError says why it did not start; nothing of it is left then.

        Each stream is None (inherit), NULL, PIPE, PTY, a descriptor, or an open file; `rlimits` are named as in the
        `resource` module.
        """
        spec = spec_for(argv, cwd, env, umask, rlimits, nice)
        with streams_for(stdin, stdout, stderr) as streams:
            spec["tty"] = streams.tty
            tree = self.ask_spawn(spec, streams.theirs)
            self._link.drain(START_LIMIT)
            if not self.until(lambda: tree.started or tree.failure is not None or self.over(), timeout):
                self.stop(reason="start timeout", force=True)
                raise SpawnError(f"{argv[0]} did not start within {timeout:g} s; its box was ended", 125)
            if tree.failure is not None:
                raise tree.failure
            if not tree.started:
                why = self.receipt.reason if self.receipt else "unknown"
                raise BoxLostError(f"the box ended before the command started: {why}", self.receipt)
            tree.take(streams)
            self._with_streams[tree.ident] = tree
        self._zygote.refill()
        return tree

    def ask_spawn(self, spec: dict[str, Any], fds: list[int]) -> Tree:
        """Send the request only: the tree is entered here before it exists (H01)."""
        if self.over() or self.stopping():
            raise BoxLostError("the box is stopped", self.receipt)
        self._count += 1
        tree = self._trees[self._count] = Tree(self, self._count, spec["argv"])
        self._first = self._first or tree
        try:
            self._link.send({"op": "spawn", "tree": tree.ident, "spec": spec}, fds)
        except BaseException:  # it cannot be put into a message: nothing was sent
            del self._trees[tree.ident]
            raise
        return tree

    def closed_streams(self, tree: Tree) -> None:
        self._with_streams.pop(tree.ident, None)

    def send(self, tree: Tree, number: int) -> None:
        self._link.send({"op": "signal", "tree": tree.ident, "signal": int(number)})

    def zygote_heard(self) -> set[int]:
        """The signals that the zygote got since it was asked last: those were sent to the whole process group."""
        self._heard.clear()
        self._zygote.line.send({"op": "heard", "box": self.ident})
        self.until(lambda: bool(self._heard) or self._zygote.line.closed or self.over(), ANSWER_LIMIT)
        return {number for signals in self._heard for number in signals}

    # -- stopping

    def stop(self, *, reason: str = "stop", grace: float = GRACE, force: bool = False) -> Receipt:
        """End everything in the box and say what was seen. Asking again joins the stop; `force` cuts it short."""
        self.ask_stop(*plain(reason, 0 if force else grace))
        while self.receipt is None:
            self.pump(None)
        self.close()
        return self.receipt

    def ask_stop(self, reason: str, grace: float, ask: int = signal.SIGTERM, spare_group: bool = False) -> None:
        """Begin a stop, or shorten the one under way; `handle` brings the receipt.

        `spare_group`: do not ask those in the keeper's process group, because they were asked already.
        """
        if self.over():
            return
        self._reason = self._reason or reason
        deadline = time.monotonic() + grace + KILL_LIMIT + ANSWER_LIMIT
        self._deadline = min(deadline, self._deadline) if self._deadline else deadline
        self._link.send({"op": "stop", "reason": reason, "grace": grace, "ask": int(ask), "spare_group": spare_group})

    def stop_tree(self, tree: Tree, reason: str, grace: float) -> Receipt:
        reason, grace = plain(reason, grace)
        self.ask_stop_tree(tree, reason, grace)
        self.until(lambda: tree.stop_seen or self.over(), grace + KILL_LIMIT + ANSWER_LIMIT)
        if not tree.stop_seen:  # the keeper does not answer: the whole box must go
            return self.stop(reason=reason, force=True)
        return tree.stopped or tree.receipt(nothing_seen(True, reason))

    def ask_stop_tree(self, tree: Tree, reason: str, grace: float) -> None:
        """Begin to end one tree, or shorten what is under way; `tree.stop_seen` tells when that is over."""
        tree.stopped = None
        self._link.send(
            {"op": "stop", "tree": tree.ident, "reason": reason, "grace": grace, "ask": int(signal.SIGTERM)}
        )

    def ask_see(self, tree: Tree) -> None:
        """Ask who is in a tree; `tree.seen` is the answer."""
        tree.seen = None
        self._link.send({"op": "see", "tree": tree.ident})

    def abandon(self) -> None:
        """Let go without waiting: the zygote ends what is left."""
        if not self._trees:  # there is no command in it: none was asked for, or the keeper saw the last of each
            if self._cgroup:
                remove_cgroup(self._cgroup)
            if self._entry:
                self._entry.remove()
        self.close()

    def close(self) -> None:
        """Let go of a box that is over."""
        self._link.close()
        if self._keeper_end >= 0:
            os.close(self._keeper_end)
            self._keeper_end = -1
        self._zygote.forget(self)
        for tree in list(self._with_streams.values()):
            tree.close()
        if self._own_zygote:
            self._zygote.close()

    # -- hearing

    def stopping(self) -> bool:
        return self._deadline is not None

    def over(self) -> bool:
        return self.receipt is not None

    def watch(self, poller: select.poll) -> None:
        """Register what to wait for before calling `handle`: words, and the ends of keeper and zygote."""
        for fd, events in self.waits_for(zygote=True).items():
            poller.register(fd, events)

    def waits_for(self, *, zygote: bool = False) -> dict[int, int]:
        """Descriptors and events. Those of the zygote too, if that is asked for or serves this box alone."""
        found = {}
        for link in (self._link, self._zygote.line) if zygote or self._own_zygote else (self._link,):
            if not link.closed:
                found[link.fileno()] = select.POLLIN | (select.POLLOUT if link.wants_write else 0)
        if self._keeper_end >= 0 and not self._link.closed:
            found[self._keeper_end] = select.POLLIN
        if (zygote or self._own_zygote) and not self._zygote.line.closed:
            found[self._zygote.end] = select.POLLIN
        return found

    def wait_left(self) -> float | None:
        """Seconds until `handle` must be called even if nothing arrives."""
        if self.keeper and self._link.closed and (self._zygote.line.closed or self._died is not None):
            return 0.0  # a word of ours failed, and told us: nothing else will
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())

    def pump(self, seconds: float | None) -> None:
        limits = [limit for limit in (seconds, self.wait_left()) if limit is not None]
        poller = select.poll()
        self.watch(poller)
        self.handle({fd for fd, _ in poller.poll(milliseconds(min(limits, default=None)))})

    def until(self, fact: Callable[[], bool], seconds: float | None) -> bool:
        """Wait for a fact, no longer than this. Whether it came true."""
        deadline = INFINITY if seconds is None else time.monotonic() + seconds
        while not fact():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self.pump(None if left == INFINITY else left)
        return True

    def handle(self, ready: set[int] | None = None) -> None:
        """Take in what keeper and zygote said, and act when one of them is gone or late.

        `ready`, where it is known, are the descriptors that have something to say.
        """
        if self.over():
            return
        lost = self._zygote.line.closed  # maybe by a failed word of ours: nothing arrives for that
        if ready is None or lost or not ready.isdisjoint((self._zygote.line.fileno(), self._zygote.end)):
            self._zygote.handle()
        # Asked before: what it said is there to be read.
        ended = self._keeper_ended() if ready is None else self._keeper_end in ready
        self._link.flush()
        for message, _ in self._link.receive():
            self._hear(message)
        if ended:
            self._link.closed = True  # whoever else may hold its end of the link
        if not self.over() and self.keeper:
            self._check()

    def _keeper_ended(self) -> bool:
        if self._keeper_end < 0:
            return False
        poller = select.poll()
        poller.register(self._keeper_end, select.POLLIN)
        return bool(poller.poll(0))

    def _hear(self, message: Message) -> None:
        tree = self._trees.get(message.get("tree") or 0)
        match message["op"]:
            case "ready":
                self._ready = True
            case "refused":
                self._refused = message["why"]
            case "broken":
                self._reason = self._reason or f"keeper failed ({message['why']})"
            case "receipt" if message["tree"] is None:
                self._settle(message["report"])
            case _ if tree is not None:
                tree.hear(message)
                if message["op"] == "spawned" and (not self._recorded or self.rung == "subreaper"):
                    self._record(tree.pid)  # here, so that no way of spawning is left out of the ledger
                if message["op"] in ("empty", "failed"):
                    del self._trees[tree.ident]  # H09: a box may see any number of commands
                if tree.changed:
                    tree.changed()
        if tree is None and self.changed:
            self.changed(self)

    def hear_zygote(self, message: Message) -> None:
        match message["op"]:
            case "box":
                self.keeper, self.zygote_pid = message["pid"], message["zygote"]
                try:
                    self._keeper_end = os.pidfd_open(self.keeper)
                except OSError:  # it is dead already, and the zygote says so next
                    pass
            case "refused":
                self._refused = message["why"]
            case "died":
                self._died = message
            case "heard":
                self._heard.append(message["signals"])
        if self.changed:
            self.changed(self)

    def _check(self) -> None:
        now = time.monotonic()
        if self._link.closed and self._died is not None:
            reason = self._reason or "keeper died"
            return self._settle({**(self._died["report"] or nothing_seen(True, reason)), "reason": reason})
        if self._zygote.line.closed:
            if self._link.closed:
                seen = self._zygote.finish_alone(self._cgroup, KILL_LIMIT + ANSWER_LIMIT)
                return self._settle(nothing_seen(seen, self._reason or "zygote died"))
            if self._deadline is None:
                return self.ask_stop("zygote died", 0)
        if self._link.closed and self._deadline is None:
            self._deadline = now + KILL_LIMIT + ANSWER_LIMIT
        if self._deadline is not None and now >= self._deadline:
            if self._asked_zygote:
                return self._settle(nothing_seen(False, self._reason or "keeper died"))
            self._asked_zygote = True
            self._deadline = now + KILL_LIMIT + ANSWER_LIMIT
            self._zygote.line.send({"op": "kill", "box": self.ident})
        return None

    def _settle(self, report: dict[str, Any]) -> None:
        """Make the receipt, adding what we know ourselves: the commands, and who can be seen of the survivors."""
        known = {one["pid"] for one in report["processes"]}
        confirmed, at = report["verdict"] == "confirmed", report["phases"]["total"]
        alive = {} if confirmed or report["survivors"] else self._seen_alive()
        unseen = {tree.pid: tree.argv for tree in self._trees.values() if tree.pid and not tree.ended}
        extra = [
            {"pid": pid, "inner": None, "argv": argv, "end": "alive" if pid in alive else "gone", "at": at}
            for pid, argv in {**unseen, **alive}.items()
            if pid not in known
        ]
        first = self._first
        self.receipt = Receipt(
            reason=report["reason"],
            confirmed=confirmed,
            rung=self.rung,
            command=first.argv if first else [],
            exit=first.exit if first else None,
            processes=[*report["processes"], *extra],
            survivors=[*report["survivors"], *alive],
            signalled=report["signalled"],
            phases=report["phases"],
            started=self._began,
        )
        if self._entry and self.receipt.confirmed:
            self._entry.remove()
        for tree in [*self._trees.values()]:
            if tree.changed:
                tree.changed()
        if self.changed:
            self.changed(self)

    def _seen_alive(self) -> dict[int, list[str]]:
        """Without a word from keeper or zygote: whom of the box we can see ourselves."""
        running = {tree.pid: tree.argv for tree in self._trees.values() if tree.pid and not tree.ended}
        try:
            proc = Proc()
        except OSError:  # no descriptor to look with: who was not seen to end is not gone (H17)
            return running
        try:
            roots = [pid for pid in running if proc.alive(pid)]
            below = [one for root in (self.keeper, *roots) for one in proc.see(root)]
            return {**{pid: proc.argv(pid) for pid in roots}, **{one.pid: one.argv for one in below}}
        finally:
            proc.close()

    def _record(self, *pids: int) -> None:
        """Keep the ledger's entry true."""
        ledger = self._zygote.ledger
        if self._entry and ledger:
            if self._entry.long:
                roots = [tree.pid for tree in self._trees.values() if not tree.ended]
                self._entry.write(self._zygote.marks + ledger.marks(self.keeper, *roots))
            else:
                self._entry.add(ledger.marks(*pids) if self._recorded else ledger.marks(self.keeper, *pids))
            self._recorded = True
