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
    tell(f"watch: {count} trees, {rung}")
    ours = safely(owner, rung, count)
    ratio = f"{ours['mb'] / theirs['mb']:.2f}× the memory" if theirs["mb"] > 0 else "–"
    work = f"watch {count} idle trees in one box, {rung}"
    met = ours["threads"] == 0
    return [Line(work, "asyncio", shown(theirs), shown(ours), ratio, "no thread per child", met)]


def owner(way: str, count: int) -> Any:
    argv = [sys.executable, "-m", "bench.owner", way, str(count)]
    return json.loads(subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout)


def shown(cost: dict[str, float]) -> str:
    return f"{cost['threads']:.0f} threads, {cost['mb']:.1f} MB"
