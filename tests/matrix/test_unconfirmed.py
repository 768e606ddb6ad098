"""A stop that cannot be confirmed says so: exit 1, with the pids; and it is said only when it is true."""

import os
import shutil

import pytest

from tests.matrix.plan import Job, Row, lacking, rows, run
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


@pytest.mark.parametrize("hold", possible_holds())
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_what_would_not_end_is_named_and_what_did_is_not(row: Row, hold: str) -> None:
    """H17: a stop reports what it observed: `unconfirmed` with pids when somebody is held fast, and never otherwise."""
    if reason := lacking(row.rung):
        pytest.skip(reason)
    [result] = run(row, [Job("stuck", "plain", hold)])
    assert "broken" not in result, result["broken"]
    assert result["problems"] == [], result
