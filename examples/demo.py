"""A demonstration: `kill -9` the program that runs a tree of processes, once under `quell exec` and once without it.

The tree tries to escape in the ways that real agents' commands do. Nobody's word is taken for the result: every
process of the tree holds a FIFO open for writing, and the kernel tells the reader when the last of them is gone.
"""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

FIFO_VARIABLE = "DEMO_FIFO"
START = 10.0  # seconds for the tree to report itself
GONE = 5.0  # seconds after which what is still there counts as left behind
LIFE = 60  # seconds after which each process of the tree ends by itself, should all else fail

STYLES = ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m")
BOLD, DIM, GREEN, RED, PLAIN = STYLES if sys.stdout.isatty() else ("", "", "", "", "")


# The tree. Each of these runs in a process of its own, reports its pid, and waits.


def plain_child(report: int) -> None:
    wait(report, "a plain child")


def ignores_term(report: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    wait(report, "ignores SIGTERM")


def own_session(report: int) -> None:
    os.setsid()
    wait(report, "setsid: a session of its own")


def daemon(report: int) -> None:
    """Double fork, new session, no environment, another argv: nothing is left by which to recognise it."""
    os.setsid()
    if os.fork():
        os._exit(0)
    os.write(report, f"{os.getpid()} daemon: double fork, empty environment, other argv\n".encode())
    signal.alarm(LIFE)
    os.chdir("/")
    os.set_inheritable(report, True)
    os.execve(shutil.which("sleep") or "/bin/sleep", ["kworker/u8:3", str(LIFE)], {})


TREE = (plain_child, ignores_term, own_session, daemon)


def grow() -> None:
    """The command itself: start the others, then wait as an agent does."""
    report = os.open(os.environ[FIFO_VARIABLE], os.O_WRONLY)
    for member in TREE:
        if os.fork() == 0:
            member(report)
            os._exit(0)
    wait(report, "the command (an agent, say)")


def wait(report: int, name: str) -> None:
    os.write(report, f"{os.getpid()} {name}\n".encode())
    signal.alarm(LIFE)
    while True:
        signal.pause()


# The oracle.


class Oracle:
    """The reading end of a FIFO that every process of a tree holds open for writing."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = path
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)

    def members(self, count: int) -> dict[str, int]:
        """Name and pid of each process, once `count` of them have reported."""
        text, end = "", time.monotonic() + START
        while text.count("\n") < count:
            if not self._poll.poll(max(0.0, end - time.monotonic()) * 1000):
                sys.exit(f"demo: only {text.count(chr(10))} of {count} processes of the tree reported within {START} s")
            piece = os.read(self._fd, 65536).decode()
            if not piece:
                sys.exit("demo: the tree ended while it was being started")
            text += piece
        pairs = sorted((int(pid), name) for pid, name in (line.split(" ", 1) for line in text.splitlines()))
        return {name: pid for pid, name in pairs}

    def empty(self, bound: float) -> bool:
        """Whether the last holder goes within `bound` seconds."""
        end = time.monotonic() + bound
        while (left := end - time.monotonic()) > 0:
            if any(event & select.POLLHUP for _, event in self._poll.poll(left * 1000)):
                return True
        return False

    def close(self) -> None:
        os.close(self._fd)


@contextlib.contextmanager
def planted(prefix: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Oracle, dict[str, int]]]:
    """The tree, running under `prefix`, with its oracle."""
    oracle = Oracle(folder / "fifo")
    environment = os.environ | {FIFO_VARIABLE: str(oracle.path), "QUELL_STATE_DIR": str(folder / "state")}
    top = subprocess.Popen([*prefix, sys.executable, "-I", __file__, "grow"], env=environment)
    try:
        yield top, oracle, oracle.members(len(TREE) + 1)
    finally:
        top.kill()
        top.wait()
        oracle.close()


# The two scenes.


def with_quell(quell: str, folder: Path) -> bool:
    say(f"\n{BOLD}With quell{PLAIN}   {DIM}$ quell exec -- agent{PLAIN}")
    with planted([quell, "exec", "--"], folder) as (top, oracle, members):
        for name in members:
            say(f"  running   {name}")
        say(f"{DIM}  $ kill -9 {top.pid}   (quell itself: no handler runs, nothing is asked){PLAIN}")
        start = time.monotonic()
        top.kill()
        gone = oracle.empty(GONE)
        took = (time.monotonic() - start) * 1000
    if gone:
        say(f"  {GREEN}all {len(members)} gone after {took:.1f} ms{PLAIN}: the FIFO has no holder left")
    else:
        say(f"  {RED}something still holds the FIFO after {GONE:.0f} s{PLAIN}")
    return gone


def without_quell(folder: Path) -> bool:
    say(f"\n{BOLD}Without{PLAIN}      {DIM}$ agent{PLAIN}")
    with planted([], folder) as (top, oracle, members):
        handles = {name: os.pidfd_open(pid) for name, pid in members.items()}
        say(f"{DIM}  $ kill -9 {top.pid}   (the command itself){PLAIN}")
        top.kill()
        top.wait()
        left = [name for name, handle in handles.items() if not ended(handle)]
        for name in left:
            say(f"  {RED}survived{PLAIN}  {name} (pid {members[name]})")
        for name in left:
            signal.pidfd_send_signal(handles[name], signal.SIGKILL)
        cleared = oracle.empty(GONE)
        for handle in handles.values():
            os.close(handle)
    say(f"  {len(left)} of {len(members)} left behind; this demonstration has now ended them by their pids")
    return cleared and len(left) == len(TREE)


def ended(handle: int) -> bool:
    """Whether the process behind a pidfd ends within a moment of its parent's death."""
    return bool(select.select([handle], [], [], 0.2)[0])


def say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    if sys.argv[1:] == ["grow"]:
        grow()
    beside = Path(sys.executable).parent / "quell"
    quell = str(beside) if beside.exists() else shutil.which("quell")
    if quell is None:
        sys.exit("demo: no quell beside this Python nor on PATH; `make demo` sets it up")
    say("A command starts four processes, three of which try to get away. Then what runs it is killed with SIGKILL.")
    results = []
    for scene in (lambda folder: with_quell(quell, folder), without_quell):
        with tempfile.TemporaryDirectory() as folder:
            results.append(scene(Path(folder)))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
