"""What the tests of the census share: the line that they stand at, what a leak says, and waiting for a fact."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
import uvloop

from quell.testing.counting import Leak

BOUND = 10.0
"""Seconds within which a fact must come true on a busy machine."""

SHORT = 0.1
"""Seconds that are given to what will not go."""

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def line(further: int = 0) -> str:
    """The caller's line, or one further down, as a leak tells it."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno + further} in "


def until(fact: Callable[[], bool]) -> None:
    bound = time.monotonic() + BOUND
    while not fact():
        assert time.monotonic() < bound, "it did not come true"
        time.sleep(0.005)


def words(leaks: list[Leak]) -> list[str]:
    return [f"{leak.kind} {leak.what}" for leak in leaks]


def end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()


def run(script: str, *before: str) -> list[str]:
    """The lines that a script prints."""
    command = [*before, sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
