"""Every public coroutine of the library, cancelled before every step of any task, once and twice: nothing is left."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import quell
from quell.supervise.scope import Scope
from quell.supervise.supervisor import Supervisor
from quell.testing import Leak, cancel_everywhere

from .loops import LOOPS

QUICK = quell.Ladder(ask=0.3, term=0.2)
BUDGET = 3.0
"""Seconds for each: all single points, and as many pairs as fit. QUELL_CANCEL_BUDGET gives more; `make soak` does."""

Target = Callable[[], Awaitable[object]]
Scenario = Callable[[], contextlib.AbstractAsyncContextManager[Target]]


@contextlib.asynccontextmanager
async def supervised() -> AsyncIterator[quell.Supervisor]:
    """With its box made and its pool full, so that nothing of these is taken for the target's."""
    async with quell.Supervisor(ladder=QUICK) as sup:
        await (await sup.spawn(["true"])).wait()
        zygote = sup._shared.hub.zygote
        while len(zygote._spare) < zygote._pool or not all(box.settled() for box in zygote._spare):
            await asyncio.sleep(0.001)
            zygote.refill()
        yield sup


@contextlib.asynccontextmanager
async def connection() -> AsyncIterator[str]:
    helper = asyncio.ensure_future(asyncio.sleep(60))
    try:
        await asyncio.sleep(0)
        yield "open"
    finally:
        helper.cancel()
        await asyncio.gather(helper, return_exceptions=True)


def spawn() -> contextlib.AbstractAsyncContextManager[Target]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async with supervised() as sup:
            yield lambda: sup.spawn(["sleep", "60"], stdin=quell.PIPE, stdout=quell.PIPE)

    return scenario()


def spawn_refused() -> contextlib.AbstractAsyncContextManager[Target]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async with supervised() as sup:

            async def target() -> None:
                with contextlib.suppress(quell.SpawnError):
                    await sup.spawn(["no-such-command"], stdout=quell.PIPE)

            yield target

    return scenario()


def spawn_in_a_new_box() -> contextlib.AbstractAsyncContextManager[Target]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async def target() -> None:
            async with quell.Supervisor(ladder=QUICK) as sup:
                async with sup.scope("boxed", box=True) as scope:
                    await scope.spawn(["sleep", "60"], stdout=quell.PIPE)

        yield target

    return scenario()


def enter() -> contextlib.AbstractAsyncContextManager[Target]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async with supervised() as sup:
            yield lambda: sup.enter(connection())

    return scenario()


def of_process(call: Callable[[quell.Process], Awaitable[object]], *argv: str) -> Scenario:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async with supervised() as sup:
            process = await sup.spawn(argv or ["sleep", "0.05"], stdin=quell.PIPE, stdout=quell.PIPE)
            yield lambda: call(process)
            await process.stop(force=True)

    return scenario


STUBBORN = ("sh", "-c", "trap '' TERM; exec sleep 60")


def of_scope(call: Callable[[Scope], Awaitable[object]]) -> Scenario:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        async with supervised() as sup:
            outer = sup.scope("outer")
            inner = outer.scope("inner")
            await inner.spawn(["sleep", "60"], stdout=quell.PIPE)
            await outer.enter(connection())
            outer.task(asyncio.sleep(60))
            yield lambda: call(outer)
            await outer.stop()

    return scenario


async def stopped_by_another(scope: Scope) -> None:
    asyncio.get_running_loop().call_later(0.02, lambda: scope.begin_stop("another", None, True))
    await scope.stopped()


async def block(scope: Scope) -> None:
    async with scope.scope("block") as inner:
        process = await inner.spawn(["cat"], stdin=quell.PIPE, stdout=quell.PIPE)
        await process.communicate(b"text")


async def whole() -> None:
    async with quell.Supervisor(ladder=QUICK) as sup:
        await sup.spawn(["sleep", "60"])
        sup.task(asyncio.sleep(60))
        await sup.enter(connection())
        await sup.stop()


def whole_supervisor() -> contextlib.AbstractAsyncContextManager[Target]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Target]:
        yield whole

    return scenario()


SCENARIOS: dict[str, Scenario] = {
    "Scope.spawn": spawn,
    "Scope.spawn refused": spawn_refused,
    "Scope.spawn in a new box": spawn_in_a_new_box,
    "Scope.enter": enter,
    "Scope.stop": of_scope(lambda scope: scope.stop()),
    "Scope.stop forced": of_scope(lambda scope: scope.stop(force=True)),
    "Scope.stopped": of_scope(stopped_by_another),
    "Scope.__aenter__ Scope.__aexit__": of_scope(block),
    "Process.wait": of_process(lambda process: process.wait()),
    "Process.communicate": of_process(lambda process: process.communicate(b"x"), "cat"),
    "Process.tree": of_process(lambda process: process.tree(), "sleep", "60"),
    "Process.stop": of_process(lambda process: process.stop(), *STUBBORN),
    "Supervisor.__aenter__ Supervisor.__aexit__ Supervisor.stop": whole_supervisor,
}


def of_others(leak: Leak) -> bool:
    """Whoever else runs on this machine makes cgroups too."""
    return leak.kind == "cgroup" and f"quell-{os.getpid()}-" not in leak.what


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_left_wherever_it_is_cancelled(name: str, loop: str) -> None:
    """H01, H02, H03, H05, H08: once, and again during clean-up."""
    coverage = cancel_everywhere(
        SCENARIOS[name], name=f"{name}-{loop}", loop_factory=LOOPS[loop], budget=BUDGET, ignore=of_others
    )
    assert coverage.findings == []


def coroutines(of: type[Any]) -> set[str]:
    """The public coroutines of a class."""
    return {
        f"{of.__name__}.{name}"
        for name, member in vars(of).items()
        if asyncio.iscoroutinefunction(member) and (not name.startswith("_") or name in ("__aenter__", "__aexit__"))
    }


def test_every_public_coroutine_has_its_scenario() -> None:
    """H56: a coroutine that is added later cannot be left out."""
    covered = " ".join(SCENARIOS)
    public = coroutines(Scope) | coroutines(Supervisor) | coroutines(quell.Process)
    assert len(public) >= 10
    assert [name for name in sorted(public) if name not in covered] == []
