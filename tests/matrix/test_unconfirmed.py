"""A stop that cannot be confirmed says so: exit 1, with the pids; and it is said only when it is true."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.matrix.plan import Job, Row, failures, lacking, rows, run
from tests.matrix.stuck import FREEZER, HOLDS


def possible_holds() -> list[str]:
    return [hold for hold in HOLDS if possible(hold)]


def possible(hold: str) -> bool:
    """Whether this machine can hold a process so. Where there is no freezer, a frozen file system does."""
    if hold.endswith("freezer"):
        return os.access(FREEZER / "cgroup.procs", os.W_OK)
    if hold.endswith("disk"):
        tools = all(shutil.which(tool) for tool in ("mkfs.ext4", "fsfreeze", "mount"))
        return tools and os.getuid() == 0 and os.path.exists("/dev/loop-control")
    return True


Results = dict[tuple[str, str], list[str]]


@pytest.fixture(scope="module")
def failed() -> Results:
    """What each cell did wrong. They mostly wait, so all rows run at the same time."""

    def run_row(row: Row) -> Results:
        jobs = [Job("stuck", "plain", hold) for hold in possible_holds()]
        results = run(row, jobs)
        return {
            (row.name, job.trigger): failures(row, [job], [result]) for job, result in zip(jobs, results, strict=True)
        }

    given = [row for row in rows() if not lacking(row.rung)]
    with ThreadPoolExecutor(len(given)) as pool:
        return {cell: lines for results in pool.map(run_row, given) for cell, lines in results.items()}


@pytest.mark.parametrize("hold", possible_holds())
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_what_would_not_end_is_named_and_what_did_is_not(row: Row, hold: str, failed: Results) -> None:
    """H17: a stop reports what it observed: `unconfirmed` with pids when somebody is held fast, and never otherwise."""
    if reason := lacking(row.rung):
        pytest.skip(reason)
    assert not failed[row.name, hold], "\n".join(failed[row.name, hold])
