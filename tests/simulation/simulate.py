"""One seed, one simulation: `python -m tests.simulation.simulate SEED` tells the whole story of a failure."""

from __future__ import annotations

import hashlib
import logging
import sys
import warnings

from quell.testing import virtual

from .script import play
from .verdict import judge
from .world import World

STEP = 0.0002
"""Seconds that a turn of the loop takes at most, so that clocks come due in the middle of things."""
TURNS = 200_000
"""Turns of the loop that no simulation needs."""


def simulate(seed: int, *, shuffle: bool = False) -> World:
    """The world after a simulation, with all that was found wrong in `offences`."""
    world = World(seed)
    log = logging.getLogger("quell")
    level, log.level = log.level, logging.CRITICAL + 1  # what is told there is told to the world too
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            virtual.run(lambda: play(world), seed, step=STEP, shuffle=shuffle, turns=TURNS)
            world.offences = judge(world)
        except virtual.Stuck as stuck:
            world.offences.append(f"{type(stuck).__name__}: {stuck}")
        finally:
            log.setLevel(level)
    world.offences += [f"{one.category.__name__}: {one.message}" for one in warned]
    return world


def report(world: World) -> str:
    """For whoever has to find the fault."""
    return "\n".join([f"seed {world.seed}:", *world.offences, "", f"to see it again: {command(world.seed)}"])


def digest(world: World) -> str:
    """Of the whole course: the same for the same seed, always and everywhere."""
    course = [*world.told, *(row.body.decode() for row in world.disk.written), str(world.disk.safe)]
    return hashlib.sha256("\n".join(course).encode()).hexdigest()


def command(seed: int) -> str:
    return f"QUELL_SEED={seed} .venv/bin/python -m pytest tests/simulation -k one_seed"


def tell(world: World) -> None:
    """The script, everything that was written (`-`: and is not on disk at the end), and what was wrong."""
    kept = {row.seq for row in world.disk.rows}
    print(*world.told, sep="\n")
    for row in world.disk.written:
        print(f"{row.seq:5} {' ' if row.seq in kept else '-'} {row.at - virtual.EPOCH:12.6f} {row.body.decode()[:300]}")
    print(report(world))


if __name__ == "__main__":
    if sys.argv[1] == "--digest":
        print(*(digest(simulate(int(number))) for number in sys.argv[2:]))
    else:
        for number in sys.argv[1:]:
            tell(simulate(int(number)))
