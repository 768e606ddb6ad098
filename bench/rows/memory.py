"""The memory that supervision takes per tree: PSS of keepers, zygote and guard, not of the commands."""

import subprocess
import sys
from pathlib import Path

from bench.ending import rungs
from bench.line import Line
from bench.safety import safely
from quell.supervise import NULL, Zygote

TARGET = 1.1
HELPER = "import subprocess; subprocess.Popen(['sleep', '1000']).wait()"
"""What people write to supervise one command from a process of its own."""


def measure(quick: bool) -> list[Line]:
    count = 20 if quick else 100
    theirs = safely(helpers, count)
    lines = []
    for rung in (rung for rung in rungs() if rung != "userns"):
        ours = safely(boxes, count, rung)
        work = f"memory per supervised tree at {count} boxes (PSS), {rung}"
        figures = f"{theirs:.1f} MB", f"{ours:.2f} MB"
        lines.append(
            Line(work, "a Python helper each", *figures, f"{ours / theirs:.2f}×", f"≤ {TARGET} MB", ours <= TARGET)
        )
    return lines


def boxes(count: int, rung: str) -> float:
    with Zygote(rung) as zygote:
        for _ in range(count):
            zygote.box().spawn(["sleep", "1000"], stdin=NULL)
        return sum(pss(pid) for pid in everybody() if name(pid).startswith("quell-")) / count


def helpers(count: int) -> float:
    started = [subprocess.Popen([sys.executable, "-I", "-c", HELPER]) for _ in range(count)]
    while sum(name(pid) == "sleep" for pid in everybody()) < count:
        pass
    return sum(pss(one.pid) for one in started) / count


def everybody() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def pss(pid: int) -> float:
    """In MB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
