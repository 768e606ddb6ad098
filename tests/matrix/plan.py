"""The plan: which rungs are tried as whom, and how a test hands a group of cells to the driver."""

import dataclasses
import functools
import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
USER = 4242
"""The unprivileged user: a uid that is in no table. Not 65534, which hides faults."""
OWN_UID = 4343
"""A uid of its own for the command that kills everything it may, where quell is root."""
GROUP_LIMIT = 120.0
"""Seconds for one group of cells, everything included: a driver that takes longer is broken."""


@dataclass(frozen=True)
class Row:
    """One rung under one user."""

    rung: str
    uid: int
    quell: list[str] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.rung} as {'root' if self.uid == 0 else self.uid}"


@dataclass(frozen=True)
class Job:
    """One cell of a row."""

    kind: str
    descendant: str
    trigger: str
    attempt: int = 0


def rows() -> list[Row]:
    """Every rung as root and as the unprivileged user; without root, as whoever runs the tests."""
    quell = [str(Path(sysconfig.get_path("scripts")) / "quell")]
    if os.getuid() == 0:
        pairs = [("pidns", 0), ("userns", 0), ("userns", USER), ("cgroup", 0), ("cgroup", USER)]
        pairs += [("subreaper", 0), ("subreaper", USER)]
    else:
        pairs = [(rung, os.getuid()) for rung in ("userns", "cgroup", "subreaper")]
    return [Row(rung, uid, quell) for rung, uid in pairs]


@functools.cache
def lacking(rung: str) -> str | None:
    """Why this machine does not give the rung, found without asking Quell; None where it does."""
    if rung == "cgroup":
        from tests.matrix.cgroups import available

        return None if available() else "no cgroup (v2) may be made here"
    if rung == "userns":
        try:
            limit = int(Path("/proc/sys/user/max_user_namespaces").read_text())
        except FileNotFoundError:
            limit = 0
        return None if limit > 0 else "this kernel gives no user namespaces"
    return None


def run(row: Row, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """The results of these cells, in their order. They run at the same time, each in its own safety namespace."""
    with tempfile.TemporaryDirectory(prefix="quell-matrix-") as folder:
        os.chmod(folder, 0o711)
        plan = {"row": dataclasses.asdict(row), "jobs": [dataclasses.asdict(job) for job in jobs], "folder": folder}
        ended = subprocess.run(
            [sys.executable, "-S", "-m", "tests.matrix.driver"],
            input=json.dumps(plan),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=GROUP_LIMIT,
            check=False,
        )
    assert ended.returncode == 0, f"the driver failed ({ended.returncode}):\n{ended.stderr}"
    results: list[dict[str, Any]] = json.loads(ended.stdout)
    return results


def failures(row: Row, jobs: Sequence[Job], results: Sequence[dict[str, Any]]) -> list[str]:
    """What each cell did wrong, under the cell's name."""
    lines = []
    for job, result in zip(jobs, results, strict=True):
        problems = [f"the harness broke: {result['broken']}"] if "broken" in result else result["problems"]
        lines += [f"[{row.name} | {job.trigger} | {job.descendant}] {problem}" for problem in problems]
    return lines


def needed_folders() -> list[Path]:
    """What a quell of another uid must be able to read: Python, its packages, and the checkout."""
    executable = Path(sys.executable)
    folders = [Path(sys.base_prefix), executable.resolve().parent.parent, executable.parent.parent]
    return list(dict.fromkeys([*folders, ROOT / "src", ROOT / "tests"]))
