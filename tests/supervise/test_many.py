"""Hundreds of trees, half of them deaf to SIGTERM, are stopped at once: in the time that one of them takes."""

import asyncio
import os
import resource
import time
from pathlib import Path

import pytest

import quell
from tests.matrix.safety import Result, Safe

from .loops import until

COUNT = 500
GRACE = 1.0
TARGET = GRACE + 2.0
SECONDS = "1234567"
POLITE = ["sleep", SECONDS]
DEAF = ["sh", "-c", f"trap '' TERM; exec sleep {SECONDS}"]


@pytest.mark.parametrize("box", [True, False], ids=["a box each", "one box"])
def test_five_hundred_trees_are_stopped_within_the_grace_and_two_seconds(box: bool) -> None:
    """H12, H24: scopes stop in parallel; the time does not grow with their number."""
    if os.geteuid() != 0:
        pytest.skip("a PID namespace around so many processes needs root")
    said = Safe(lambda: asyncio.run(stop_many(box))).result()
    assert "broken" not in said, said["broken"]
    assert said["confirmed"] and said["left"] == 0
    assert GRACE <= said["seconds"] <= TARGET


async def stop_many(box: bool) -> Result:
    """In a PID namespace of its own, where every process that is seen is of this test."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with quell.Supervisor() as sup:
        everything = sup.scope("everything")
        for number in range(COUNT):
            scope = everything.scope(str(number), box=box)
            await scope.spawn(DEAF if number % 2 else POLITE, stdin=quell.NULL)
        assert await until(lambda: sleepers() == COUNT), f"{sleepers()} of {COUNT} sleep"
        began = time.monotonic()
        receipt = await everything.stop(grace=GRACE)
        seconds = time.monotonic() - began
        return {"seconds": seconds, "confirmed": receipt.confirmed, "left": sleepers()}


def sleepers() -> int:
    """Those that are the sleep that they become: the deaf ones are deaf by then."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += path.read_bytes().split(b"\0")[:2] == [b"sleep", SECONDS.encode()]
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
