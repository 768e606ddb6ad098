"""Watching idle children: threads and memory that they cost the process that owns them."""

import json
import subprocess
import sys
from typing import Any

from bench.ending import rungs
from bench.line import Line
from bench.safety import safely
from bench.sampling import tell


def measure(quick: bool) -> list[Line]:
    count = 100 if quick else 1000
    theirs = safely(owner, "asyncio", count)
    rung = rungs()[0]  # the owner does the same on every rung
    own, scope = watched(rung, count), watched("supervisor", count)
    return [
        line(f"watch {count} idle trees in one box, {rung}", theirs, own, 0),
        line(f"watch {count} idle trees in one scope on asyncio, {rung}", theirs, scope, 1),  # the supervisor's thread
    ]


def watched(way: str, count: int) -> dict[str, float]:
    tell(f"watch: {count} trees, {way}")
    found: dict[str, float] = safely(owner, way, count)
    return found


def line(work: str, theirs: dict[str, float], ours: dict[str, float], threads: int) -> Line:
    ratio = f"{ours['mb'] / theirs['mb']:.2f}× the memory" if theirs["mb"] > 0 else "–"
    return Line(work, "asyncio", shown(theirs), shown(ours), ratio, "no thread per child", ours["threads"] <= threads)


def owner(way: str, count: int) -> Any:
    argv = [sys.executable, "-m", "bench.owner", way, str(count)]
    return json.loads(subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)


def shown(cost: dict[str, float]) -> str:
    threads = f"{cost['threads']:.0f} thread{'' if cost['threads'] == 1 else 's'}"
    return f"{threads}, {cost['mb']:.1f} MB"
