"""Runs on both loops."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from quell.testing.cancelling import Coverage
from tests.testing.cancelling.covering import SHORT, Cover, everywhere


@pytest.fixture(scope="session", autouse=True)
def libuv() -> None:
    """With its first loop, libuv opens a pipe that it keeps for the whole process."""
    uvloop.new_event_loop().close()


@pytest.fixture(autouse=True)
def no_budget_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test here says how long it looks."""
    monkeypatch.delenv("QUELL_CANCEL_BUDGET", raising=False)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop_factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


@pytest.fixture
def cover(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> Cover:
    """What was covered and found, on this loop."""

    def covering(scenario: Callable[..., Any], **wishes: Any) -> Coverage:
        return everywhere(scenario, **({"loop_factory": loop_factory, "raises": False, "patience": SHORT} | wishes))

    return covering
