"""What it costs a task to be owned: made and awaited inside a scope, against a loop without a supervisor."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from bench.ending import rungs
from bench.line import Line, lines, more_us, us
from bench.rows.scope import LOOPS, Supervised
from bench.safety import safely
from bench.sampling import Contender, take_turns

EXTRA = 1.2e-6
"""Seconds per task, as the design has it."""
COUNT = 2000
"""Tasks in one turn: so few that a change of the machine's speed meets both sides; 50 rounds make 100,000."""
WAYS = {"inside": "made inside a scope by whomever", "task": "`scope.task`"}


def measure(quick: bool) -> list[Line]:
    rounds = 15 if quick else 50
    return lines([line for loop in LOOPS for line in safely(costs, loop, rounds)])


async def nothing() -> None:
    pass


async def each(make: Callable[[], Awaitable[None]]) -> float:
    """Seconds per task, of this thread's processor time: it waits for nobody, and others' work is not counted."""
    began = time.thread_time()
    for _ in range(COUNT):
        await make()
    return (time.thread_time() - began) / COUNT


async def bare() -> float:
    return await each(lambda: asyncio.create_task(nothing()))


def costs(loop: str, rounds: int) -> list[Line]:
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner, Supervised(loop, rungs()[0]) as ours:
        scope = ours.supervisor.scope("tasks")

        async def inside() -> float:
            return await scope.task(bare())

        async def by_scope() -> float:
            return await each(lambda: scope.task(nothing()))

        contenders: dict[str, Contender] = {
            loop: lambda: runner.run(bare()),
            "inside": lambda: ours.run(inside()),
            "task": lambda: ours.run(by_scope()),
        }
        samples = take_turns(f"tasks on {loop}", contenders, rounds, warm=2)
    found = []
    for way, text in WAYS.items():
        extra = samples.over(way, loop)
        work = f"a task made and awaited on {loop}, {text}"
        target = f"≤ + {EXTRA * 1e6:g} µs"
        figures = us(samples.of(loop)), us(samples.of(way))
        found.append(Line(work, f"{loop} alone", *figures, more_us(extra), target, extra.p50 <= EXTRA))
    return found
