"""Spawn `true` through a supervisor until its exit is seen, on asyncio and uvloop, beside what each loop has itself."""

import asyncio
import contextvars
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, ExitStack
from types import TracebackType
from typing import TypeVar

import uvloop

from bench.command import popen
from bench.ending import rungs
from bench.line import Line, compared, lines
from bench.rows.spawn import PAUSE, SPAWN, fill_heap, on_loop
from bench.safety import safely
from bench.sampling import Contender, Samples, take_turns
from quell import Scope, Supervisor

T = TypeVar("T")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
PLACES = {"new": "a new box from the pool", "reused": "a reused box"}


def measure(quick: bool) -> list[Line]:
    rounds = 15 if quick else 80
    return lines([*safely(small, rounds), *safely(large, rounds // 2)])


class Supervised:
    """A loop with a supervisor that lives from round to round."""

    def __init__(self, loop: str, rung: str) -> None:
        self._runner = asyncio.Runner(loop_factory=LOOPS[loop])
        self._exits = AsyncExitStack()
        self._rung = rung

    def __enter__(self) -> "Supervised":
        self.supervisor = self.run(self._exits.enter_async_context(Supervisor(contain=self._rung)))
        self.box = self.supervisor.scope("reused", box=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(self._exits.aclose())
        self._runner.close()

    def run(self, coroutine: Coroutine[None, None, T]) -> T:
        """In a context of its own: the task of a round is not one of the supervisor's."""
        return self._runner.run(coroutine, context=contextvars.Context())

    def in_new_box(self) -> float:
        """The box is stopped outside of the time that counts, as in the row `spawn`."""

        async def once() -> float:
            began = time.perf_counter()
            scope = self.supervisor.scope("new", box=True)
            await spawn(scope)
            seconds = time.perf_counter() - began
            await scope.stop(force=True)
            await asyncio.sleep(PAUSE)
            return seconds

        return self.run(once())

    def in_box(self) -> float:
        async def once() -> float:
            began = time.perf_counter()
            await spawn(self.box)
            seconds = time.perf_counter() - began
            await asyncio.sleep(PAUSE)  # the loop turns on, so that what is left to hear is on nobody's account
            return seconds

        return self.run(once())


async def spawn(scope: Scope) -> None:
    await (await scope.spawn(["true"])).wait()


# -- lines


def small(rounds: int) -> list[Line]:
    return found("through a scope", rounds)


def large(rounds: int) -> list[Line]:
    """With 1 GB of heap, where a fork in the owner's process would copy its page tables."""
    heap = fill_heap()
    lines = found("through a scope with 1 GB of heap", rounds)
    heap.clear()
    return lines


def found(how: str, rounds: int) -> list[Line]:
    rung = rungs()[0]  # the row `spawn` has the others
    with ExitStack() as exits:
        own: dict[str, Contender] = {}
        ours: dict[str, Contender] = {}
        for loop, factory in LOOPS.items():
            own[loop] = on_loop(exits.enter_context(asyncio.Runner(loop_factory=factory)), ["true"])
            supervised = exits.enter_context(Supervised(loop, rung))
            ours[f"{loop} new"] = supervised.in_new_box
            ours[f"{loop} reused"] = supervised.in_box
        # uvloop forks, and the next spawn is slower for it, whoever's it is: that one is not shown.
        contenders = {"asyncio": own["asyncio"], **ours, "uvloop": own["uvloop"], "after uvloop": popen(["true"])}
        samples = take_turns(f"spawn {how}", contenders, rounds, warm=2, pause=PAUSE)
    return [
        line(f"spawn `true` → exit seen, {how} on {loop}, {text}, {rung}", samples, f"{loop} {place}", peer)
        for loop in LOOPS
        for place, text in PLACES.items()
        for peer in dict.fromkeys((loop, "asyncio"))
    ]


def line(work: str, samples: Samples, ours: str, peer: str) -> Line:
    return compared(work, samples, ours, peer, SPAWN)
