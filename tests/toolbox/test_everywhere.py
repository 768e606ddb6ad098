"""Wherever a call of a tool is cancelled, its process, its pipes and its tasks are gone once its session is."""

from pathlib import Path

from quell.testing import cancel_everywhere
from quell.toolbox.jobs import Jobs, JobsTool
from quell.toolbox.shell import Shell

from .callers import sessions

BUDGET = 3.0
"""Seconds for each: single points first, and as many pairs as fit. QUELL_CANCEL_BUDGET gives more."""


def test_a_command_in_the_foreground_is_cancelled_anywhere(tmp_path: Path) -> None:
    """H01, H02, H08: once or twice, at any step."""

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            assert await session.call(Shell(), {"command": "echo hello; exit 1"}) == "hello\n[exit 1]"

    assert cancel_everywhere(target, budget=BUDGET).points_covered > 10


def test_a_job_is_cancelled_anywhere_from_its_start_to_its_end(tmp_path: Path) -> None:
    """H01, H02, H03, H08: once or twice, at any step."""

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            jobs = Jobs()
            await session.call(Shell(jobs), {"command": "sleep 600", "background": True})
            await session.call(JobsTool(jobs), {"action": "end", "job": "job-1"})

    assert cancel_everywhere(target, budget=BUDGET).points_covered > 10
