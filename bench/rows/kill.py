"""KILL until the last of a mixed crowd is gone: plain, own session, ignoring TERM, stopped, orphaned."""

import os
import signal
import subprocess
import time
from functools import partial

from bench.cgroups import Cgroup
from bench.ending import Ours, Peer, rungs
from bench.line import Ceiling, Line, compared, lines, ms
from bench.safety import safely
from bench.sampling import Contender, spread, take_turns

TARGET = Ceiling(2, also=", 0 survivors")
ROUNDS = {1: 25, 10: 15, 100: 9, 1000: 3}
QUICK_ROUNDS = {1: 5, 10: 3, 100: 2, 1000: 1}
PEERS_COUNT = 100


class Psutil(Peer):
    """The recipe of psutil's documentation: all children, recursively, then the parent."""

    def kill(self, group: Cgroup, command: "subprocess.Popen[bytes]") -> float:
        import psutil

        began = time.perf_counter()
        parent = psutil.Process(command.pid)
        family = [*parent.children(recursive=True), parent]
        for one in family:
            one.kill()
        psutil.wait_procs(family, timeout=5)
        return time.perf_counter() - began


class Killpg(Peer):
    def kill(self, group: Cgroup, command: "subprocess.Popen[bytes]") -> float:
        began = time.perf_counter()
        os.killpg(command.pid, signal.SIGKILL)
        command.wait()
        return time.perf_counter() - began


def measure(quick: bool) -> list[Line]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    measured = [line for count in rounds for line in safely(crowd, count, rounds[count])]
    return lines([*measured, *safely(peers)])


def crowd(count: int, rounds: int) -> list[Line]:
    ours = {rung: Ours(rung) for rung in rungs()}
    contenders: dict[str, Contender] = {"`cgroup.kill`": partial(Peer().end, "mixed", count)}
    contenders |= {rung: partial(one.end, "mixed", count) for rung, one in ours.items()}
    samples = take_turns(f"kill {count}", contenders, rounds, warm=1 if count < 1000 else 0)
    found = []
    for rung, one in ours.items():
        one.close()
        line = compared(f"KILL → last of {count} mixed gone, {rung}", samples, rung, "`cgroup.kill`", TARGET)
        found.append(judged(line, one))
    return found


def judged(line: Line, one: Ours) -> Line:
    """No time counts where somebody survived."""
    if one.clean == one.stops:
        return line._replace(ours=f"{line.ours} (kill phase {ms(spread(one.phases))}), 0 survivors")
    return line._replace(ours=f"{line.ours}, survivors in {one.stops - one.clean} of {one.stops}", met=False)


def peers() -> list[Line]:
    found = []
    with_ours = Ours(rungs()[0])
    with_ours.end("mixed", PEERS_COUNT)
    with_ours.close()
    kept = "0 %" if with_ours.clean else "some"
    for name, peer in (("psutil children(recursive=True)", Psutil()), ("killpg", Killpg())):
        peer.end("mixed", PEERS_COUNT)
        share = f"{peer.left[0] * 100:.0f} % survive"
        work = f"survivors of {PEERS_COUNT} mixed, {rungs()[0]}"
        found.append(Line(work, name, share, f"{kept} survive", "–", "0 survivors", bool(with_ours.clean)))
    return found
