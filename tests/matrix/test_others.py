"""Others are never touched: decoys with the same argv, user, cgroup and process group live through every trigger."""

import pytest

from tests.matrix.plan import Job, Row, failures, lacking, rows, run
from tests.matrix.triggers import TRIGGERS


@pytest.mark.parametrize("descendant", ["plain", "kill -9 $PPID"])
@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_decoy_lives_and_is_never_stopped(row: Row, descendant: str) -> None:
    """H11, H13: what is ended is found by descent, never by argv, user, process group or cgroup of the caller."""
    if reason := lacking(row.rung):
        pytest.skip(reason)
    jobs = [Job("others", descendant, trigger) for trigger, one in TRIGGERS.items() if not one.heeded]
    failed = failures(row, jobs, run(row, jobs))
    assert not failed, "\n".join(failed)
