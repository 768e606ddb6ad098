"""After any number of starts and stops a supervisor holds what it held before."""

import asyncio
import os
from collections.abc import Callable

import pytest

import quell

from .conftest import rungs
from .cycles import CYCLES, cycles
from .holdings import at_rest, baseline, grown, holdings
from .loops import LOOPS, run_on

COUNT = 200
WARM = len(CYCLES)


def hold_what_was_held(loop_factory: Callable[[], asyncio.AbstractEventLoop], rung: str) -> None:
    async def main() -> None:
        async with quell.Supervisor(contain=rung) as sup:
            await cycles(sup, 0, WARM)
            before = await baseline(sup)
            await cycles(sup, WARM, WARM + COUNT)
            assert await at_rest(sup, before) == []

    run_on(loop_factory, main)


@pytest.mark.parametrize("rung", rungs())
def test_nothing_grows_with_the_number_of_starts_and_stops(rung: str) -> None:
    """H03, H09: open files, threads, processes, cgroups, state and every map are back to their size."""
    hold_what_was_held(LOOPS["asyncio"], rung)


def test_nothing_grows_on_uvloop_either() -> None:
    """H03, H09: open files, threads, processes, cgroups, state and every map are back to their size."""
    hold_what_was_held(LOOPS["uvloop"], "auto")


def test_what_grows_is_named() -> None:
    """H56: a kept scope, an open file, a command that lives on and an entry in a map are seen."""

    async def main() -> None:
        async with quell.Supervisor() as sup:
            await (await sup.spawn(["true"])).wait()
            before = await baseline(sup)
            kept = sup.scope("kept")
            await kept.stop()
            sup.hosts.add(asyncio.ensure_future(asyncio.sleep(0)))
            fd = os.open("/dev/null", os.O_RDONLY)
            await sup.spawn(["sleep", "600"])
            left = "\n".join(grown(before, holdings(sup)))
            os.close(fd)
        for name in ("objects Scope", "open /dev/null", "process sleep", "in Supervisor.hosts", "in Box._trees"):
            assert f"{name}: " in left, f"{name} is not among what grew:\n{left}"

    run_on(LOOPS["asyncio"], main)
