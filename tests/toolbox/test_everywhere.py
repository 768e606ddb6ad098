"""Wherever a call of a tool is cancelled, its process, its pipes and its tasks are gone once its session is."""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.errors import ToolError
from quell.ports import Tool
from quell.testing import cancel_everywhere
from quell.toolbox import agent, fetch, files, remember, shell
from quell.toolbox.fetch import Fetch
from quell.toolbox.files import Edit, Read, Write
from quell.toolbox.jobs import Jobs, JobsTool
from quell.toolbox.remember import Recall, Remember
from quell.toolbox.search import Glob, Grep
from quell.toolbox.shell import Shell
from tests.simulation.containment import Host, SimSupervisor

from .callers import Session, sessions

BUDGET, LEAST = 2.0, 8
"""Seconds for each, and the single points and the pairs that are tried in any case. QUELL_CANCEL_BUDGET gives more."""
SMALL_BUDGET = 0.6
"""For those that start no process."""


def cancelled(target: Callable[[], Awaitable[None]], name: str, budget: float = BUDGET) -> None:
    """Wherever it stands, once and twice."""
    coverage = cancel_everywhere(target, name=f"tool {name}", budget=budget, least=LEAST)
    assert coverage.findings == [] and coverage.points_found > 10
    assert coverage.points_covered + coverage.not_reached >= LEAST and coverage.points_covered > LEAST // 2
    assert coverage.pairs_covered > LEAST // 4


def test_a_command_in_the_foreground_is_cancelled_anywhere(tmp_path: Path) -> None:
    """H01, H02, H08: once and twice, at any step."""

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            assert await session.call(Shell(), {"command": "echo hello; exit 1"}) == "hello\n[exit 1]"

    cancelled(target, "shell")


def test_a_job_is_cancelled_anywhere_from_its_start_to_its_end(tmp_path: Path) -> None:
    """H01, H02, H03, H08: once and twice, at any step."""

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            jobs = Jobs()
            await session.call(Shell(jobs), {"command": "echo up; exec sleep 600", "background": True})
            for action in ("list", "read", "end"):
                said = await session.call(JobsTool(jobs), {"action": action, "job": "job-1"})
                assert said.startswith("job-1, pid ")

    cancelled(target, "jobs")


INSIDE: dict[str, tuple[Callable[[], Tool], dict[str, Any]]] = {
    "read": (Read, {"path": "file"}),
    "write": (Write, {"path": "new/file", "text": "whole"}),
    "edit": (Edit, {"path": "file", "old": "a", "new": "a b"}),
    "remember": (Remember, {"text": "a"}),
    "recall": (Recall, {"query": "a"}),
}
"""In a thread, or the loop."""
APART: dict[str, tuple[Callable[[], Tool], dict[str, Any]]] = {
    "glob": (Glob, {"pattern": "**"}),
    "grep": (Grep, {"pattern": "a"}),
    "fetch": (Fetch, {"url": "http://127.0.0.1/"}),
}
"""In a process; all in the same way."""


@pytest.mark.parametrize("name", INSIDE)
def test_a_tool_is_cancelled_anywhere(tmp_path: Path, name: str) -> None:
    """H02, H03, H26: once and twice, at any step; a file is as it was or whole, and no other is left beside it."""
    (tmp_path / "file").write_text("a")
    make, arguments = INSIDE[name]
    host = Host(random.Random(1), lambda: 0, [])

    async def target() -> None:
        async with SimSupervisor(host, quell.Ladder(ask=0.3, term=0.03)) as sup:
            await Session(sup.scope("one"), "one", str(tmp_path)).call(make(), arguments)

    cancelled(target, name, SMALL_BUDGET)
    assert {path.name for path in tmp_path.rglob("*")} <= {"file", "new"}
    assert {path.read_text().replace(" b", "") for path in tmp_path.rglob("file")} <= {"a", "whole"}


@pytest.mark.parametrize("name", APART)
def test_a_tool_with_a_process_is_cancelled_anywhere(tmp_path: Path, name: str) -> None:
    """H01, H02, H03, H08: once and twice, at any step."""
    make, arguments = APART[name]

    async def target() -> None:
        async with sessions(tmp_path, "one") as (session,):
            with suppress(ToolError):  # an address that is not public
                await session.call(make(), arguments)

    cancelled(target, name)


def test_every_tool_of_the_toolbox_has_its_scenario() -> None:
    """H56: one that is added later cannot be left out."""
    tools: set[str] = set()

    class Context:
        def tool(self, tool: Tool) -> None:
            tools.add(tool.spec.name)

    for module in (agent, fetch, files, remember, shell):
        setup: Callable[[Context], None] = module.plugin.setup
        setup(Context())
    assert tools == {
        *INSIDE,
        *APART,
        "shell",
        "jobs",
        "agent",
    }  # `agent` only waits for a session: tests/kernel/test_everywhere.py
