"""The driver: `python -S -m tests.matrix.driver` reads a plan, runs its cells, and writes what became of them.

It sets up what the cells share (mounts that only it sees, a cgroup for each), and runs every cell in a PID namespace of
its own, all at the same time. When it ends, or is killed, nothing of them is left.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tests.matrix import cgroups
from tests.matrix.escape import escape
from tests.matrix.others import others
from tests.matrix.plan import Job, Row, needed_folders
from tests.matrix.safety import Result, Safe, die_with_parent, make_reachable, own_mounts
from tests.matrix.stuck import stuck

KINDS: dict[str, Callable[[Row, Job, Path, Path | None], Result]] = {"escape": escape, "others": others, "stuck": stuck}
ATTEMPTS = 4
"""How often a cell is tried whose timeout came before its descendants were born."""


class Running:
    """A cell under way."""

    def __init__(self, row: Row, job: Job, number: int, folder: Path) -> None:
        self.job = job
        name = f"quell-matrix-{os.getpid()}-{number}-{job.attempt}"
        self._cgroup = cgroups.make(name, row.uid) if row.rung == "cgroup" else None
        self._safe = Safe(lambda: KINDS[job.kind](row, job, folder / name, self._cgroup))

    def result(self) -> Result:
        result = self._safe.result()
        if self._cgroup is not None:
            left, removed = cgroups.below(self._cgroup), cgroups.remove(self._cgroup)
            if left and result.get("tidy"):
                result["problems"].append(f"cgroups are left: {left}")
            assert removed, f"the cgroup of the cell, {self._cgroup}, would not go"
        return result


def main() -> None:
    die_with_parent()
    os.umask(0o022)
    plan = json.load(sys.stdin)
    row, folder = Row(**plan["row"]), Path(plan["folder"])
    own_mounts()
    if row.uid != os.getuid():
        make_reachable([*needed_folders(), folder])
    os.chdir("/")
    running = [Running(row, Job(**job), number, folder) for number, job in enumerate(plan["jobs"])]
    results = [one.result() for one in running]
    for attempt in range(1, ATTEMPTS):
        for number, (one, result) in enumerate(zip(running, results, strict=True)):
            if result.get("late"):
                again = Job(one.job.kind, one.job.descendant, one.job.trigger, attempt)
                results[number] = Running(row, again, number, folder).result()
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
