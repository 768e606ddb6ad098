"""Many tasks spawn, stop, enter, nest and are cut off by timeouts, all at once and at random: nothing is left.

What a scenario does not think of, chance does: this found a block that waited for the stop that waited for it.
"""

import asyncio
import contextlib
import os
import random
import time
from collections.abc import AsyncIterator

import pytest

import quell

from .conftest import rungs
from .loops import LOOPS, run_on

SCRIPTS = (
    "sleep 60", "trap '' TERM; sleep 60", "setsid sleep 60 & sleep 60", "true", "exit 3", "sleep 0.05",
    "setsid sh -c 'sleep 60' & true", "sleep 60 & sleep 60 & wait", "kill -9 $PPID; sleep 60", "yes | head -c 100000",
)  # fmt: skip
SECONDS = float(os.environ.get("QUELL_STORM", "1.5"))


@contextlib.asynccontextmanager
async def connection(chance: random.Random) -> AsyncIterator[None]:
    helper = asyncio.ensure_future(asyncio.sleep(60))
    try:
        await asyncio.sleep(chance.random() * 0.01)
        yield
        await asyncio.sleep(chance.random() * 0.01)
    finally:
        helper.cancel()


async def command(scope: quell.Scope, chance: random.Random) -> None:
    spawn = scope.spawn(
        ["sh", "-c", chance.choice(SCRIPTS)], stdin=quell.NULL, stdout=chance.choice([quell.PIPE, quell.NULL])
    )
    process = await asyncio.wait_for(spawn, chance.choice([0.001, 0.003, 0.01, 5]))
    match chance.randrange(4):
        case 0:
            await asyncio.wait_for(process.wait(), chance.random() * 0.05)
        case 1:
            await asyncio.wait_for(process.stop(grace=chance.choice([0, 0.05])), chance.choice([0.001, 0.01, 5]))
        case 2:
            await asyncio.wait_for(process.tree(), 0.05)


async def actor(scope: quell.Scope, chance: random.Random, depth: int) -> None:
    while True:
        try:
            match chance.randrange(12):
                case 0 | 1 | 2 | 3 | 4:
                    await command(scope, chance)
                case 5:
                    await asyncio.wait_for(scope.enter(connection(chance)), chance.random() * 0.02)
                case 6:
                    scope.task(asyncio.sleep(chance.random() * 0.1))
                case 7 | 8 if depth < 3:
                    async with scope.scope("nested", box=chance.random() < 0.4) as inner:
                        inner.task(actor(inner, chance, depth + 1))
                        await asyncio.sleep(chance.random() * 0.15)
                case 9:
                    await asyncio.to_thread(time.sleep, chance.random() * 0.02)
                case 10 if depth:
                    await asyncio.wait_for(
                        scope.stop(grace=0.05, force=chance.random() < 0.3), chance.choice([0.001, 1])
                    )
                case _:
                    await asyncio.sleep(chance.random() * 0.01)
        except quell.ScopeStoppedError:
            return
        except (TimeoutError, quell.QuellError):
            continue


async def storm(rung: str, seed: int) -> None:
    chance = random.Random(seed)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        async with quell.Supervisor(contain=rung, ladder=quell.Ladder(ask=0.5, term=0.1)) as sup:
            for _ in range(chance.randint(1, 4)):
                sup.task(actor(sup, chance, 0))
            await asyncio.sleep(chance.random() * 0.5)
        assert sup.receipt is not None and sup.receipt.confirmed, sup.receipt and sup.receipt.sentence()
        assert not sup.processes and not sup.members() and not sup.nested()
        assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rung", [rung for rung in rungs() if rung != "userns"])
def test_nothing_is_left_of_a_storm(rung: str, loop: str) -> None:
    """H01, H02, H03, H08, H10, H11, H12."""
    run_on(LOOPS[loop], lambda: storm(rung, 7))
