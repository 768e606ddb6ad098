"""One spawned command with all its descendants, and the streams that it was given."""

from __future__ import annotations

import errno
import os

from ..errors import BoxLostError, SpawnError, UsageError
from .receipt import Receipt, nothing_seen, now_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import IO, Any

    from .box import Box
    from .keeper.link import Message

    Stream = int | IO[Any] | None

PIPE, STDOUT, NULL, PTY = -1, -2, -3, -4
_STANDARD = (0, 1, 2)


class Streams:
    """The descriptors of one spawn: `theirs` go to the child, `ours` stay. What is not taken over is closed."""

    def __init__(self) -> None:
        self.theirs: list[int] = []
        self.ours: dict[int, int] = {}
        self.tty = False
        self._close: list[int] = []

    def __enter__(self) -> Streams:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for fd in [*self._close, *self.ours.values()]:
            os.close(fd)

    def add(self, wanted: Stream, target: int) -> None:
        if wanted is None:
            fd = os.dup(target)
        elif wanted == NULL:
            fd = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        elif wanted == PIPE:
            read, write = os.pipe()
            fd, mine = (read, write) if target == 0 else (write, read)
            self.ours[target] = mine
        elif wanted == STDOUT and target == 2:
            fd = os.dup(self.theirs[1])
        elif isinstance(wanted, int) and wanted < 0:
            raise UsageError(f"there is no stream {wanted}: choose None, NULL, PIPE, PTY, a descriptor or an open file")
        else:
            # A copy: one that is not there is said here, and what its owner does with it meanwhile is his.
            fd = os.dup(wanted if isinstance(wanted, int) else wanted.fileno())
        self._close.append(fd)
        self.theirs.append(fd)

    def add_terminal(self) -> None:
        master, slave = os.openpty()
        self.tty = True
        self.ours[0] = master
        self._close.append(slave)
        self.theirs = [slave] * 3


def streams_for(stdin: Stream, stdout: Stream, stderr: Stream) -> Streams:
    streams = Streams()
    if PTY in (stdin, stdout, stderr):
        streams.add_terminal()
        return streams
    try:
        for target, wanted in zip(_STANDARD, (stdin, stdout, stderr), strict=True):
            streams.add(wanted, target)
    except BaseException:
        streams.__exit__(None, None, None)
        raise
    return streams


class Tree:
    def __init__(self, box: Box, ident: int, argv: list[str]) -> None:
        self.ident = ident
        self.argv = argv
        self.pid = 0
        self.inner: int | None = None
        self.status: int | None = None
        self.stopped_by = 0
        self.empty = False
        self.failure: SpawnError | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self.terminal: int | None = None
        self.stopped: Receipt | None = None  # the receipt of the last stop of this tree alone
        self.seen: list[tuple[int, list[str]]] | None = None  # pids and argv, where they were asked for
        self.changed: Callable[[], None] | None = None  # told of every word about this tree, and of its box's end
        self._box = box

    @property
    def started(self) -> bool:
        return self.pid > 0

    @property
    def ended(self) -> bool:
        return self.status is not None

    @property
    def stop_seen(self) -> bool:
        """Whether nobody is left of it, or its stop has come to its end."""
        return self.empty or self.failure is not None or self.stopped is not None

    @property
    def exit(self) -> dict[str, int] | None:
        """How the command itself ended."""
        if self.status is None:
            return None
        if os.WIFSIGNALED(self.status):
            return {"signal": os.WTERMSIG(self.status)}
        return {"code": os.WEXITSTATUS(self.status)}

    def wait(self, timeout: float | None = None) -> dict[str, int] | None:
        """Until the command itself has ended, whoever of its descendants lives on. None if it has not by then."""
        self._box.until(self._settled, timeout)
        if not self.ended and (self.empty or self._box.over()):
            whose = "its keeper" if self.empty else "the box"
            raise BoxLostError(f"{whose} ended before the command's status was seen", self._box.receipt)
        return self.exit

    def _settled(self) -> bool:
        return self.ended or self.empty or self._box.over()

    def signal(self, number: int) -> None:
        """Signal the command alone."""
        self._box.send(self, number)

    def stop(self, *, reason: str = "stop", grace: float = 5.0, force: bool = False) -> Receipt:
        """End this tree; others in the box live on."""
        return self._box.stop_tree(self, reason, 0 if force else grace)

    def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal that the command was given."""
        if self.terminal is None:
            raise ValueError("this command has no terminal: spawn it with stdin=PTY")
        set_size(self.terminal, rows, columns)

    def take(self, streams: Streams) -> None:
        """Take over our ends of the streams."""
        ours, streams.ours = streams.ours, {}
        if streams.tty:
            self.terminal = ours[0]
            return
        names = {0: "stdin", 1: "stdout", 2: "stderr"}
        for target, fd in ours.items():
            setattr(self, names[target], os.fdopen(fd, "wb" if target == 0 else "rb", 0))

    def __enter__(self) -> Tree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close our ends of its streams, as the box does at its end."""
        self._box.closed_streams(self)
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None

    def hear(self, message: Message) -> None:
        match message["op"]:
            case "spawned":
                self.pid, self.inner = message["pid"], message["inner"]
            case "failed":
                self.failure = failure(self.argv[0], message["errno"], message["why"])
            case "exited":
                self.status = message["status"]
            case "stopped":
                self.stopped_by = message["signal"]
            case "empty":
                self.empty = True
            case "receipt":
                self.stopped = self.receipt(message["report"])
            case "seen":
                self.seen = message["seen"]

    def receipt(self, report: dict[str, Any] | None) -> Receipt:
        facts = report or nothing_seen(True, "stop")
        confirmed = facts.pop("verdict") == "confirmed"
        return Receipt(
            **facts, confirmed=confirmed, rung=self._box.rung, command=self.argv, exit=self.exit, started=now_text()
        )


def set_size(terminal: int, rows: int, columns: int) -> None:
    import fcntl  # three libraries that only a terminal needs
    import struct
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def failure(name: str, code: int | None, why: str) -> SpawnError:
    """A sentence and the exit code that shells give."""
    name = name or "''"
    if code in (errno.ENOENT, errno.ENOTDIR):
        return SpawnError(f"{name}: command not found", 127)
    if code in (errno.EACCES, errno.EISDIR, errno.ENOEXEC, errno.EPERM):
        return SpawnError(f"{name}: cannot be executed: {why}", 126)
    return SpawnError(f"{name}: could not be started: {why}", 125)
