"""Ending one crowd, by Quell or by the kernel, timed from the request to the news that all are gone."""

import subprocess
import sys
import time
from pathlib import Path

from bench.cgroups import Cgroup
from bench.oracle import Oracle
from quell.supervise import NULL, RUNGS, Zygote
from quell.supervise.contain import why_not

PROGRAM = [sys.executable, "-I", "-S", str(Path(__file__).with_name("crowd.py"))]
SETTLE = 0.5
"""Seconds that those who were killed have to be gone, before survivors are counted."""
LATE = 2.0
"""Seconds after which somebody who is still there counts as a survivor."""


def rungs() -> list[str]:
    return [rung for rung in RUNGS if why_not(rung) is None]


class Ours:
    """One rung. `clean` of `stops` left nobody when the receipt came, as the oracle saw it.

    `phases` are the kill phases that the receipts tell.
    """

    def __init__(self, rung: str) -> None:
        self._zygote = Zygote(rung)
        self.stops = 0
        self.clean = 0
        self.phases: list[float] = []

    def end(self, kind: str, count: int) -> float:
        with Oracle() as oracle:
            box = self._zygote.box()
            box.spawn([*PROGRAM, *oracle.paths, kind, str(count)], stdin=NULL)
            oracle.await_complete()
            began = time.perf_counter()
            receipt = box.stop(force=True)
            seconds = time.perf_counter() - began
            self.stops += 1
            self.phases.append(receipt.phases["kill"])
            self.clean += receipt.confirmed and oracle.gone()
            return seconds

    def close(self) -> None:
        self._zygote.close()


class Peer:
    """A crowd in a cgroup of its own, as a safety net and as the one who counts."""

    def __init__(self) -> None:
        self.left: list[float] = []

    def end(self, kind: str, count: int) -> float:
        with Oracle() as oracle, Cgroup() as group:
            command = start(oracle, group, kind, count)
            seconds = self.kill(group, command)
            if group.members():
                time.sleep(SETTLE)
            self.left.append(group.members() / count)
            group.kill()
            command.wait()
            return seconds

    def kill(self, group: Cgroup, command: "subprocess.Popen[bytes]") -> float:
        """The peer's way; `cgroup.kill` here."""
        return group.kill()


def start(oracle: Oracle, group: Cgroup, kind: str, count: int) -> "subprocess.Popen[bytes]":
    argv = [*PROGRAM, *oracle.paths, kind, str(count), str(group.path)]
    command = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
    oracle.await_complete()
    return command
