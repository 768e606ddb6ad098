"""A command in a scope: entered there before it exists, ended with it, and never the asker's to lose (H01, H08)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import BoxLostError, QuellError, ScopeStoppedError, SpawnError
from .box import ANSWER_LIMIT, Box
from .errand import Fact
from .keeper.ending import KILL_LIMIT, SETTLE
from .keeper.proc import Proc
from .pipes import InputPipe, OutputPipe
from .receipt import Receipt, now_text, of_nobody
from .request import plain
from .tree import Streams, Tree, failure, set_size, streams_for

if TYPE_CHECKING:
    from .shared import Shared
    from .tree import Stream

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_END_OF_INPUT = b"\x04"  # on a terminal, at the beginning of a line
_SLACK = 0.05  # seconds for a keeper to end the grace by itself
READ_LIMIT = 1 << 16  # bytes that a stream holds before its process must wait for the reader, as asyncio has it


@dataclass(frozen=True)
class Member:
    """One process of a tree, as it was seen."""

    pid: int
    argv: list[str]
    rss: int
    """Bytes of memory."""
    cpu: float
    """Seconds of processor time."""
    age: float
    """Seconds since it was started."""


@dataclass(frozen=True)
class Wanted:
    """What a spawn asks for."""

    spec: dict[str, Any]
    stdin: Stream
    stdout: Stream
    stderr: Stream
    output_cap: int | None
    limit: int
    start_limit: float


class Process:
    """What `spawn` gives. The scope owns it: letting go of this object ends nothing, and nothing is lost by it."""

    def __init__(self, shared: Shared, wanted: Wanted, gone: Callable[[Process], None]) -> None:
        loop = shared.loop
        self.argv: list[str] = wanted.spec["argv"]
        self.pid = 0
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.stderr: asyncio.StreamReader | None = None
        self._shared = shared
        self._hub = shared.hub
        self._loop = loop
        self._wanted = wanted
        self._gone = gone
        self._box: Box | None = None
        self._tree: Tree | None = None
        self._streams: Streams | None = None
        self._input: InputPipe | None = None
        self._outputs: list[OutputPipe] = []
        self._terminal = -1
        self._clock: asyncio.TimerHandle | None = None
        self._asked_at = ""
        self._refused = ""  # why it must not start any more
        self.started: Fact[Process] = Fact(loop)
        self._exited: Fact[int] = Fact(loop)
        self._stopped: Fact[Receipt] | None = None
        self._seen: Fact[None] | None = None
        self.over: Fact[None] = Fact(loop)

    def __repr__(self) -> str:
        state = f"exit {self.returncode}" if self._exited.known and self._tree and self._tree.ended else "running"
        return f"<Process {self.pid or 'not started'} {' '.join(self.argv)[:60]!r} {state if self.pid else ''}>"

    # -- starting: in the loop

    def start_in(self, made: Fact[Box]) -> None:
        """Send it to its box, now or when there is one."""
        self._clock = self._loop.call_later(self._wanted.start_limit, self._late)
        made.then(lambda: self._send(made))

    def _send(self, made: Fact[Box]) -> None:
        try:
            box = made.get()
            with self._hub.lock:
                if self._refused:
                    raise ScopeStoppedError(self._refused)
                wanted = self._wanted
                self._streams = streams_for(wanted.stdin, wanted.stdout, wanted.stderr)
                self._tree = box.ask_spawn({**wanted.spec, "tty": self._streams.tty}, self._streams.theirs)
                self._tree.changed = self._changed
                self._box = box
                self._hub.look(box)
        except QuellError as error:
            self._fail(error)
        except OSError as error:
            self._fail(failure(self.argv[0], None, error.strerror or str(error)))
        except Exception as error:  # noqa: BLE001  a boundary: told to the asker (what cannot be put into a message)
            self._fail(SpawnError(f"{self.argv[0]}: could not be started: {error}", 125))

    def _late(self) -> None:
        self._fail(SpawnError(f"{self.argv[0]} did not start within {self._wanted.start_limit:g} s; it was ended", 125))
        self.begin_stop("start timeout", 0)

    def _fail(self, error: QuellError) -> None:
        self.started.fail(error)
        if self._tree is None or self._tree.failure is not None:
            self._finish()

    # -- hearing

    def _changed(self) -> None:
        """Under the hub's lock, in whichever thread heard."""
        self._hub.in_loop(self._look)

    def _look(self) -> None:
        """In the loop: say what is known of the tree to whoever waits."""
        tree, box = self._tree, self._box
        if tree is None or box is None or self.over.known:
            return
        if tree.started and not self.pid:
            self.pid = tree.pid
            try:
                self._take_streams()
            except Exception as error:  # noqa: BLE001  a boundary: told to the asker, who gets no process then
                self.started.fail(SpawnError(f"{self.argv[0]}: its streams could not be taken: {error}", 125))
                self.begin_stop("its streams could not be taken", 0)
            self.started.tell(self)
        if tree.failure is not None:
            self._fail(tree.failure)
            return
        if tree.ended:
            self._exited.tell(self.returncode or 0)
        if tree.seen is not None and self._seen is not None:
            self._seen.tell(None)
        if tree.stop_seen and self._stopped is not None:
            self._stopped.tell(tree.stopped or self._receipt("stop"))
        if tree.empty or box.over():
            self._finish()

    def _take_streams(self) -> None:
        streams, self._streams = self._streams, None
        if self._clock is not None:
            self._clock.cancel()
        assert streams is not None
        with streams:  # what is not taken is closed
            if streams.tty:
                streams.ours[1] = os.dup(streams.ours[0])
                self._terminal = streams.ours[1]
            for target in list(streams.ours):
                self._take_stream(target, streams)

    def _take_stream(self, target: int, streams: Streams) -> None:
        if target == 0:
            self._input = InputPipe(self._loop, streams.ours.pop(0))
            self.stdin = self._input.writer
        else:
            reader = asyncio.StreamReader(self._wanted.limit, self._loop)
            self._outputs.append(OutputPipe(self._loop, streams.ours.pop(target), reader, self._wanted.output_cap))
            setattr(self, "stdout" if target == 1 else "stderr", reader)

    def _finish(self) -> None:
        """Nobody is left of it, or nobody can be reached: tell everyone who waits, and let go of everything."""
        if self.over.known:
            return
        receipt = self._box.receipt if self._box is not None else None
        lost = BoxLostError(f"the box of {self.argv[0]} ended before its status was seen", receipt)
        self.started.fail(lost)
        self._exited.fail(lost)
        if self._stopped is not None:
            self._stopped.tell(receipt or self._receipt("stop"))
        if self._seen is not None:
            self._seen.tell(None)
        if self._streams is not None:
            with self._streams:
                self._streams = None
        if self._clock is not None:
            self._clock.cancel()
        if self._input is not None:
            self._input.abort()
        for output in self._outputs:
            output.read_rest()
        self._terminal = -1
        self.over.tell(None)
        self._gone(self)

    # -- what callers ask

    @property
    def returncode(self) -> int | None:
        """The exit code; -n after signal n; None while it runs."""
        status = self._tree.status if self._tree is not None else None
        return None if status is None else os.waitstatus_to_exitcode(status)

    @property
    def dropped(self) -> int:
        """Bytes of output that were cut off by the cap."""
        return sum(output.dropped for output in self._outputs)

    async def wait(self) -> int:
        """Until the command itself has ended, whoever holds its pipes; its exit code, or -n after signal n."""
        return await self._exited.wait()

    async def communicate(self, data: bytes | None = None) -> tuple[bytes, bytes]:
        """Write `data` to its stdin, wait for its end, and give what it wrote to stdout and stderr.

        A descendant that holds the pipes open does not hold this up: what has come by then is given.
        """
        if self.stdin is not None:
            if self._terminal >= 0:
                self.stdin.write((data or b"") + _END_OF_INPUT)  # closing it would tell nobody: it is open twice
            else:
                if data:
                    self.stdin.write(data)
                self.stdin.close()
        for output in self._outputs:
            output.keep_reading()
        await self._exited.wait()
        await self._ends_of_output(SETTLE)
        for output in self._outputs:
            output.read_rest()
        out = await self.stdout.read() if self.stdout is not None else b""
        return out, await self.stderr.read() if self.stderr is not None else b""

    async def _ends_of_output(self, seconds: float) -> None:
        """Until all output has come, or for so long: a descendant may hold a pipe open for ever."""
        all_here: Fact[None] = Fact(self._loop)
        for output in self._outputs:
            output.ended.then(lambda: all_here.tell(None) if all(one.ended.known for one in self._outputs) else None)
        if self._outputs and not all_here.known:
            clock = self._loop.call_later(seconds, all_here.tell, None)
            try:
                await all_here.wait()
            finally:
                clock.cancel()

    def signal(self, number: int) -> None:
        """Signal the command alone. Nothing happens if it has ended."""
        with self._hub.lock:
            if self._box is not None and self._tree is not None and not self.over.known:
                self._box.send(self._tree, number)
                self._hub.look(self._box)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal that the command was given."""
        if self._terminal < 0:
            raise ValueError("this command has no terminal, or has ended: spawn it with stdin=PTY")
        set_size(self._terminal, rows, columns)

    async def tree(self) -> list[Member]:
        """Every living process of it, escapees included, as its keeper sees them; the command itself first."""
        with self._hub.lock:
            if self._box is None or self._tree is None or self.over.known:
                return []
            if self._seen is None or self._seen.known:
                self._seen = Fact(self._loop)
                self._seen.then(self._loop.call_later(ANSWER_LIMIT, self._seen.tell, None).cancel)
                self._box.ask_see(self._tree)
                self._hub.look(self._box)
        await self._seen.wait()
        return _members(self._tree.seen, self.pid)

    # -- stopping

    async def stop(self, *, reason: str = "stop", grace: float | None = None, force: bool = False) -> Receipt:
        """End it with all its descendants and say what was seen; others live on. Asking again joins the stop."""
        term = self._shared.ladder.term if grace is None else grace
        return await self.begin_stop(*plain(reason, 0.0 if force else term)).wait()

    def begin_stop(self, reason: str, grace: float) -> Fact[Receipt]:
        """In the loop: end it, or shorten what is under way."""
        if self._stopped is None or grace == 0:
            self.ask_stop(reason, grace)
        return self.expect_stop(reason, grace)

    def withhold(self, reason: str) -> None:
        """From any thread: what is not sent yet never starts."""
        with self._hub.lock:
            if not self.sent:
                self._refused = f"{self.argv[0]} was stopped before it started ({reason})"

    def ask_stop(self, reason: str, grace: float) -> None:
        """From any thread: what is not sent yet never starts, what was sent is ended."""
        with self._hub.lock:
            self._refused = f"{self.argv[0]} was stopped before it started ({reason})"
            self._asked_at = self._asked_at or now_text()
            if self._box is not None and self._tree is not None and not self._tree.empty:
                self._box.ask_stop_tree(self._tree, reason, grace)
                self._hub.look(self._box)

    def expect_stop(self, reason: str, grace: float) -> Fact[Receipt]:
        """In the loop, after `ask_stop`: what tells its end, which comes whether the keeper answers or not."""
        if self._stopped is None:
            self._stopped = Fact(self._loop)
        if self.over.known:
            self._stopped.tell(self._receipt(reason))
        elif self._tree is None:
            self._fail(ScopeStoppedError(self._refused))
        else:
            self._look()
        if not self._stopped.known:
            clock = self._loop.call_later(grace + _SLACK, self._insist, reason)
            self._stopped.then(clock.cancel)
        return self._stopped

    def _insist(self, reason: str) -> None:
        """The grace is over: whoever was given a longer one before is ended now, and the keeper must say so."""
        self.ask_stop(reason, 0)
        clock = self._loop.call_later(KILL_LIMIT + ANSWER_LIMIT, self._end_box, reason)
        if self._stopped is not None:
            self._stopped.then(clock.cancel)

    def _end_box(self, reason: str) -> None:
        """The keeper does not answer: the whole box must go."""
        with self._hub.lock:
            if self._box is not None:
                self._box.ask_stop(reason, 0)
                self._hub.look(self._box)

    @property
    def sent(self) -> bool:
        """Whether its box was asked for it."""
        return self._tree is not None

    @property
    def settled(self) -> bool:
        """From any thread, after `ask_stop`: whether its stop has come to its end."""
        tree, box = self._tree, self._box
        return tree is None or box is None or tree.stop_seen or box.over()

    @property
    def last_receipt(self) -> Receipt | None:
        """From any thread: what the stop of this tree said, or that of its whole box."""
        of_tree = self._tree.stopped if self._tree is not None else None
        return of_tree or (self._box.receipt if self._box is not None else None)

    def _receipt(self, reason: str) -> Receipt:
        """Of a stop that found nobody."""
        return of_nobody(
            reason,
            rung=self._box.rung if self._box is not None else "none",
            command=self.argv,
            exit=self._tree.exit if self._tree is not None else None,
            started=self._asked_at or now_text(),
        )


def _members(seen: list[tuple[int, list[str]]] | None, root: int) -> list[Member]:
    """Add what the kernel says of each, the root first; who has ended since is left out."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    found = []
    proc = Proc()
    try:
        if seen is None:  # its keeper does not answer: what can be seen from here
            seen = [(pid, proc.argv(pid)) for pid in (root, *proc.descendants(root))]
        for pid, argv in sorted(seen, key=lambda one: one[0] != root):
            argv = argv or proc.argv(pid) or ["?"]  # it was about to become another program
            usage = proc.usage(pid)
            if usage is not None:
                ticks, pages, start = usage
                age = max(0.0, now - start / _TICKS)
                found.append(Member(pid, argv, pages * _PAGE, ticks / _TICKS, age))
    finally:
        proc.close()
    return found
