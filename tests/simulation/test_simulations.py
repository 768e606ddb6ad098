"""Whatever people, models, tools, plugins and disks do, at whatever moment: every promise of the kernel holds.

`QUELL_SEEDS` is the number of seeds, `QUELL_SEED` one of them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .simulate import command, digest, report, simulate, tell

SEEDS = int(os.environ.get("QUELL_SEEDS", "320"))
MANY = int(os.environ.get("QUELL_SEEDS", "2000"))
PARTS = 8
ROOT = Path(__file__).parents[2]


def failures(seeds: range) -> list[str]:
    return [report(world) for world in map(simulate, seeds) if world.offences]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_simulations(part: int) -> None:
    """H18, H19, H21, H23, H27, H35, H65, H66: the fence, the queue, admission, crashes, deletes, one end for each."""
    found = failures(range(part, SEEDS, PARTS))
    assert not found, f"{len(found)} simulations failed\n" + "\n\n".join(found[:5])


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
def test_every_promise_holds_in_many_simulations(part: int) -> None:
    """H18, H19, H21, H23, H27, H35: the same for longer, and other seeds than the daily ones."""
    found = failures(range(SEEDS + part, SEEDS + MANY, PARTS))
    assert not found, f"{len(found)} simulations failed\n" + "\n\n".join(found[:5])


def test_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    """With `QUELL_SEED=N`: that one, and its whole story."""
    world = simulate(int(os.environ.get("QUELL_SEED", "0")))
    if world.offences:
        tell(world)
        print(capsys.readouterr().out)
    assert not world.offences, report(world)


def test_a_failure_names_the_command_that_shows_it_again() -> None:
    world = simulate(3)
    world.offences = ["it failed"]
    assert "seed 3" in report(world) and command(3) in report(world)


def test_the_same_seed_gives_the_same_course_in_any_process() -> None:
    seeds = [str(seed) for seed in range(20, 26)]
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation.simulate", "--digest", *seeds],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    once = [digest(simulate(int(seed))) for seed in seeds]
    again = [digest(simulate(int(seed))) for seed in seeds]
    assert once == again == there
    assert len(set(once)) == len(seeds)


def test_simulations_see_what_they_are_made_for() -> None:
    """H56: simulations in which nothing happens would always pass."""
    worlds = [simulate(seed) for seed in range(60)]
    kinds = {row.kind for world in worlds for row in world.disk.written}
    missing = {
        *(
            "turn.started",
            "turn.ended",
            "model.failed",
            "tool.started",
            "tool.refused",
            "tool.ended",
            "process.spawned",
        ),
        *("approval.asked", "approval.answered", "approval.withdrawn", "stop.receipt"),
        *(
            "queue.parked",
            "queue.released",
            "queue.discarded",
            "session.forked",
            "session.deleted",
            "session.closed",
            "admission.closed",
            "admission.reopened",
        ),
        *("plugin.loaded", "plugin.removed", "plugin.error", "config.changed", "runtime.stopped"),
    } - kinds
    assert not missing
    told = "\n".join(line for world in worlds for line in world.told)
    for words in ("crash", "the disk fails", "stopped from outside", "walked away", "its start was cancelled"):
        assert words in told
