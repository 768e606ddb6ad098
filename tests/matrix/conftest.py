"""Limits of the matrix that were tried and never showed are named at the end of a run: perhaps they are none."""

import pytest

from tests.matrix.limits import LIMITS, Limit

TRIED = pytest.StashKey[dict[Limit, list[bool]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TRIED] = {}


@pytest.fixture
def tried(pytestconfig: pytest.Config) -> dict[Limit, list[bool]]:
    """For each limit, whether each of its cells leaked."""
    return pytestconfig.stash[TRIED]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for key, leaks in config.stash[TRIED].items():
        if not any(leaks):
            cell = ", ".join(key)
            terminalreporter.write_line(f"a listed limit never showed in {len(leaks)} cells: {cell} ({LIMITS[key]})")
