"""Every test of the library runs on each rung that root gets, unless it asks for one by name."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quell.supervise import RUNGS, Box, Zygote
from quell.supervise.contain import cgroup_home, why_not

BOUND = 10.0
"""Seconds within which a fact must come true on a busy machine."""


def rungs() -> list[str]:
    return list(RUNGS) if os.geteuid() == 0 else ["subreaper", "userns"]


@pytest.fixture(params=rungs())
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    with Zygote(request.param) as zygote:
        yield zygote
    assert until(lambda: own_cgroups() == []), "a box left its cgroup behind (H03)"


def own_cgroups() -> list[str]:
    """The cgroups of boxes of this process that are there."""
    if why_not("cgroup") is not None:
        return []
    return [name for name in os.listdir(cgroup_home()) if name.startswith(f"quell-{os.getpid()}-")]


@pytest.fixture
def box(zygote: Zygote) -> Iterator[Box]:
    box = zygote.box()
    yield box
    box.stop(force=True)


@pytest.fixture
def plain() -> Iterator[Zygote]:
    """The rung that every machine has."""
    with Zygote("subreaper") as zygote:
        yield zygote


def until(fact: Callable[[], bool], bound: float = BOUND) -> bool:
    """Wait for a fact. Whether it came true."""
    end = time.monotonic() + bound
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def alive(pid: int) -> bool:
    """Whether that process of the test's own runs; a zombie does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int) -> bool:
    return until(lambda: not alive(pid))


def number_in(path: Path) -> int:
    """A pid that a command writes to a file, once it is there whole."""
    assert until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())
