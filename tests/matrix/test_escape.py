"""The escape matrix: whatever a command leaves below it, however quell comes to its end, on every rung: 0 survivors.

A test is one trigger on one rung under one user; its cells are the descendants, all at the same time, each in a safety
PID namespace of its own. Survivors are counted by the oracle (a FIFO that every descendant holds), never by Quell.

Three descendants attack, and whom they can reach depends on the rung:

- On `pidns` and `userns` they run as quell's own user, root or not. They see and reach their box only; the keeper is
  its init, which the kernel shields. `kill -9 $PPID` is aimed at the keeper.
- On `cgroup` and `subreaper` they share the PID namespace with quell. As root, `kill -9 -1` runs under a uid of its
  own, as a command that dropped its rights does, and quell must end it. As the unprivileged user it has quell's uid,
  reaches quell, zygote and keeper at once, and is a limit. (With root's own rights it would be the same limit.)
- `kill -9 $PPID` and `pkill -9 -f python` run as quell's user everywhere: the first kills the keeper, the second nobody
  of quell, whose names do not match.

The attack and the trigger are let go at the same moment, except before `CMD ends` and `timeout`, where it comes first.
"""

import os

import pytest

from tests.matrix.descendants import DESCENDANTS, NOTHING
from tests.matrix.limits import Limit, limit
from tests.matrix.plan import Job, Row, failures, lacking, rows, run
from tests.matrix.triggers import TRIGGERS

REPEATS = int(os.environ.get("QUELL_REPEATS", "1"))

every_row = pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
every_trigger = pytest.mark.parametrize("trigger", TRIGGERS)


@every_trigger
@every_row
def test_nothing_survives(row: Row, trigger: str, tried: dict[Limit, list[bool]]) -> None:
    """H10, H11, H12, H13, H23: what descends from the command is ended, also when quell is killed."""
    if reason := lacking(row.rung):
        pytest.skip(reason)
    failed = failing_cells(row, trigger, tried)
    assert not failed, "\n".join(failed)


@pytest.mark.soak
@every_trigger
@every_row
def test_nothing_survives_again_and_again(row: Row, trigger: str, tried: dict[Limit, list[bool]]) -> None:
    """H10, H11, H12, H13, H23: the same, QUELL_REPEATS times: what is a race is lost sooner or later."""
    if reason := lacking(row.rung):
        pytest.skip(reason)
    failed = [f"run {n + 1}: {line}" for n in range(REPEATS) for line in failing_cells(row, trigger, tried)]
    assert not failed, "\n".join(failed)


def failing_cells(row: Row, trigger: str, tried: dict[Limit, list[bool]]) -> list[str]:
    """What each cell that does not keep the promise did. A cell in LIMITS may leak."""
    descendants = [name for name, one in DESCENDANTS.items() if one.heeds or not TRIGGERS[trigger].heeded]
    jobs = [Job("escape", descendant, trigger) for descendant in descendants if descendant != NOTHING]
    results = run(row, jobs)
    for job, result in zip(jobs, results, strict=True):
        if "leaked" in result and (listed := limit(job.descendant, trigger, row)) is not None:
            tried.setdefault(listed, []).append(result["leaked"])
            result["problems"] = []
    return failures(row, jobs, results)
