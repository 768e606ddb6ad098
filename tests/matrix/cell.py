"""One cell: one quell over one descendant, watched by an oracle. Runs as the first process of a safety namespace."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.matrix.descendants import Descendant
from tests.matrix.oracle import Ear, Oracle
from tests.matrix.plan import Row
from tests.matrix.proc import BOUND, Process, describe, everybody, until
from tests.matrix.safety import Program, run_as
from tests.matrix.triggers import LONG, Chain, find_chain

STEP = 0.01
"""Seconds between two looks for the dead; the oracle's own news come at once."""
BIRTHS = 20.0
"""Seconds that the slowest birth may take on a busy machine. Not a promise of Quell's: only a bound."""


class Cell:
    """A command under quell, its oracle, and what became of it."""

    def __init__(
        self,
        folder: Path,
        command: list[str],
        descendant: Descendant,
        uid: int,
        cgroup: Path | None = None,
        extra: dict[str, str] | None = None,
        older_child: Program | None = None,
    ) -> None:
        self.descendant = descendant
        self.folder = folder
        self.status: int | None = None
        """How quell ended, once it did: its exit code, or minus the signal."""
        self.early = False
        """Quell ended by itself while a descendant still held the oracle."""
        self.strangers: set[int] = set()
        """Processes that are here but not of this quell."""
        self.stopped: set[int] = set()
        """Children of the first process that somebody stopped."""
        folder.mkdir(parents=True)
        for name in ("home", "state"):
            (folder / name).mkdir()
            os.chown(folder / name, uid, -1)
        self.oracle = Oracle(folder / "oracle")
        self.go, self.act = Ear(folder / "go"), Ear(folder / "act")
        self._unread, stdout = os.pipe()  # nobody reads it: who floods stdout must not hold a stop up
        stderr = os.open(folder / "stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        program = Program([*command, *descendant.argv], self.environment() | (extra or {}))
        self.quell = run_as(uid, program, stdout, stderr, cgroup, older_child)
        os.close(stdout)
        os.close(stderr)

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(self.folder / "home"),
            "QUELL_STATE_DIR": str(self.folder / "state"),
            "QM_FIFO": str(self.oracle.path),
            "QM_GO": str(self.go.path),
            "QM_ACT": str(self.act.path),
        }

    def look(self, seconds: float = STEP) -> None:
        """Take in news of the oracle, and bury the dead, as the first process of a namespace must."""
        self.oracle.look(seconds)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSTOPPED(status):
                self.stopped.add(pid)
            elif pid == self.quell:
                self.oracle.look()
                self.status = os.waitstatus_to_exitcode(status)
                self.early = self.status >= 0 and not self.oracle.gone and "unconfirmed" not in self.stderr()

    def wait(self, fact: Callable[[], bool], bound: float) -> bool:
        end = time.monotonic() + bound
        while not fact():
            if time.monotonic() > end:
                return False
            self.look()
        return True

    def born(self, bound: float = BIRTHS) -> bool:
        """All descendants are there."""
        wanted = self.descendant.births
        self.wait(lambda: self.oracle.heard("born") >= wanted or (self.status is not None and not self.left()), bound)
        return self.oracle.heard("born") >= wanted

    def attack(self, wait: bool) -> None:
        """Tell a descendant that attacks to do so now; with `wait`, until it did or is gone."""
        if self.descendant.acts:
            self.act.tell()
            if wait:
                self.wait(lambda: self.oracle.heard("acted") > 0 or self.over(), 0.5)

    def chain(self) -> Chain | None:
        """Quell's own processes, as soon as they are all there."""
        found: list[Chain] = []

        def whole() -> bool:
            chain = find_chain(self.quell, self.go.tell)
            found.extend([chain] if chain else [])
            return bool(found)

        until(whole, BOUND)
        return found[0] if found else None

    def left(self) -> list[Process]:
        """Everybody in the safety namespace but its first process and strangers."""
        return [one for one in everybody() if one.pid != 1 and one.pid not in self.strangers]

    def over(self) -> bool:
        """The oracle says that all descendants are gone, and nothing of quell is left either."""
        return self.oracle.gone and self.status is not None and not self.left()

    def survivors(self) -> list[str]:
        return [describe(one) for one in self.left()]

    def stderr(self) -> str:
        return (self.folder / "stderr").read_text(errors="replace").strip()

    def receipt(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "home" / "receipt").read_text())
        except FileNotFoundError:
            return {}
        return found


def quell_exec(row: Row, folder: Path, grace: float = LONG, timeout: float | None = None) -> list[str]:
    """The beginning of the argv of a quell that writes its receipt into the cell's folder."""
    limit = [] if timeout is None else ["--timeout", str(timeout)]
    receipt = str(folder / "home" / "receipt")
    return [*row.quell, "exec", "--contain", row.rung, "--grace", str(grace), *limit, "--receipt", receipt, "--"]


def outcome(status: int | None) -> str:
    if status is None:
        return "still running"
    return f"exit {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"
