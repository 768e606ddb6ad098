"""SIGKILL of the runtime, alone or together with the keeper: how long until nobody of ten is left."""

import os
import shutil
import signal
import subprocess
import sys
import time

from bench.cgroups import Cgroup
from bench.ending import LATE, rungs
from bench.line import Line, lines, ms, times
from bench.oracle import Oracle
from bench.safety import safely
from bench.sampling import Contender, take_turns

COUNT = 10
TARGET = 0.020
NAMESPACES = ("pidns", "userns")
PEER = "`bwrap --die-with-parent`"
PATIENCE = 1.0
"""Seconds that what asyncio left has to go by itself."""


class Death:
    def __init__(self, way: str, keeper_too: bool = False) -> None:
        self.way = way
        self.keeper_too = keeper_too
        self.deaths = 0
        self.survived = 0

    def once(self) -> float:
        with Oracle() as oracle:
            host, keeper = start_host(self.way, oracle)
            began = time.perf_counter()
            if self.keeper_too:
                os.kill(keeper, signal.SIGKILL)
            host.kill()
            seconds = oracle.seconds_until_gone(began, LATE)
            host.wait()
        self.deaths += 1
        self.survived += seconds is None
        return LATE if seconds is None else seconds


def start_host(way: str, oracle: Oracle) -> "tuple[subprocess.Popen[bytes], int]":
    """A runtime with its crowd complete, and the pid of its keeper."""
    argv = [sys.executable, "-m", "bench.host", way, *oracle.paths, str(COUNT)]
    host = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert host.stdout is not None
    with host.stdout:
        keeper = int(host.stdout.readline())
    oracle.await_complete()
    return host, keeper


def measure(quick: bool) -> list[Line]:
    return lines([*safely(deaths, 3 if quick else 15), *safely(asyncio_leaves)])


def deaths(rounds: int) -> list[Line]:
    ours = {rung: Death(rung) for rung in rungs()}
    ours |= {f"{rung} with its keeper": Death(rung, keeper_too=True) for rung in rungs() if rung in NAMESPACES}
    contenders: dict[str, Contender] = {name: death.once for name, death in ours.items()}
    if shutil.which("bwrap"):
        contenders[PEER] = Death("bwrap").once
    samples = take_turns("death", contenders, rounds, warm=0)
    found = []
    for name, death in ours.items():
        figure = samples.of(name)
        who, target = ("runtime and keeper", "0 survivors") if death.keeper_too else ("runtime", "≤ 20 ms")
        work = f"{who} SIGKILLed → all {COUNT} gone, {death.way}"
        says = f"{ms(figure)}, survivors in {death.survived} of {death.deaths}"
        met = death.survived == 0 and (death.keeper_too or figure.p50 <= TARGET)
        peer, ratio = ("–", "–"), "–"
        if PEER in contenders:
            peer, ratio = (PEER, ms(samples.of(PEER))), times(samples.ratio(name, PEER))
        found.append(Line(work, *peer, says, ratio, target, met))
    return found


def asyncio_leaves() -> list[Line]:
    """The same death of a runtime that spawned with asyncio alone."""
    with Oracle() as oracle, Cgroup() as group:
        (group.path / "cgroup.procs").write_text("0")  # the cgroup counts who is left; this process leaves it again
        host, _ = start_host("asyncio", oracle)
        (group.path.parent / "cgroup.procs").write_text("0")
        host.kill()
        host.wait()
        oracle.seconds_until_gone(time.perf_counter(), PATIENCE)
        left = group.members()
    work = f"runtime SIGKILLed, {COUNT} below it, after {PATIENCE:g} s"
    return [Line(work, "asyncio", f"{left} survive", "0, see above")]
