"""Thousands of starts and stops on one supervisor leave what was there before, and memory that does not grow."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import quell

from .cycles import CYCLES, cycles
from .holdings import at_rest, baseline, memory

ROOT = Path(__file__).parents[2]
COUNT = int(os.environ.get("QUELL_CYCLES", "10000"))
SETTLED = 1000
"""Cycles after which memory is flat: by then every path was taken, and every pool is as large as it gets."""

SLACK = 512 << 10
"""Bytes by which memory moves once: the allocators take it from the kernel in pieces of this order."""
PER_CYCLE = 30
"""Bytes per cycle that are no leak: pages are counted, not objects."""


def leaks(before: dict[str, int], after: dict[str, int], count: int) -> list[str]:
    """Whose memory grew more than chance explains, in words."""
    bound = SLACK + PER_CYCLE * count
    more = {name: after[name] - before[name] for name in before}
    return [f"{name} grew by {size} bytes in {count} cycles" for name, size in more.items() if size > bound]


async def soak() -> None:
    async with quell.Supervisor() as sup:
        await cycles(sup, 0, len(CYCLES))
        before = await baseline(sup)
        await cycles(sup, len(CYCLES), SETTLED)
        flat = memory()
        await cycles(sup, SETTLED, COUNT)
        now = memory()
        print({name: now[name] - flat[name] for name in flat}, "bytes more in", COUNT - SETTLED, "cycles")
        assert await at_rest(sup, before) == []
        assert leaks(flat, now, COUNT - SETTLED) == []


@pytest.mark.soak
def test_thousands_of_cycles_leave_nothing_and_memory_is_flat() -> None:
    """H03, H09: fds, threads, processes, state and maps as before, and memory as after the first 1000 cycles."""
    assert COUNT > SETTLED, f"QUELL_CYCLES must be more than {SETTLED}"
    # In a process of its own: pytest's heap, and the notes of its census, move too.
    program = "import asyncio; from tests.supervise.test_soak import soak; asyncio.run(soak())"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stderr


def test_a_leak_of_a_hundred_bytes_per_cycle_is_found() -> None:
    """H56: the bound is not so wide that nothing is beyond it."""
    flat = {"this process": 20 << 20, "quell-zygote": 4 << 20}
    assert leaks(flat, {**flat, "quell-zygote": flat["quell-zygote"] + 100 * 9000}, 9000) == [
        "quell-zygote grew by 900000 bytes in 9000 cycles"
    ]
    assert leaks(flat, {name: size + SLACK for name, size in flat.items()}, 9000) == []
