"""Ctrl+C on an asyncio program with a supervisor: however often, at any moment, nothing is left and nothing hangs."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from .conftest import gone

PROGRAM = """
import asyncio, quell, sys
async def main():
    async with quell.Supervisor(ladder=quell.Ladder(ask=0.2, term=0.3)) as sup:
        async def lingers():
            try:
                await asyncio.sleep(600)
            finally:
                await asyncio.sleep(0.05)
        scope = sup.scope("x")
        processes = [await scope.spawn(["sh", "-c", "trap '' TERM; echo; sleep 600; sleep 600"], stdout=quell.PIPE)]
        await processes[0].stdout.readline()
        processes.append(await sup.scope("boxed", box=True).spawn(["sleep", "600"]))
        scope.task(lingers())
        print(*(one.pid for one in processes), flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.parametrize("presses", [1, 2, 3, 6])
def test_ctrl_c_again_and_again_leaves_nothing_and_ends(presses: int) -> None:
    """H22, H61: a second interrupt raises in the middle of whatever runs, our own clean-up included."""
    rhythm = random.Random(presses)
    for _ in range(4):
        program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        assert len(pids) == 2
        for _ in range(presses):
            if program.poll() is None:
                os.kill(program.pid, signal.SIGINT)
            time.sleep(rhythm.choice([0, 0.001, 0.01, 0.1]))
        _, errors = program.communicate(timeout=30)
        assert b"KeyboardInterrupt" in errors and b"never retrieved" not in errors, errors.decode()
        assert all(gone(pid) for pid in pids)


@pytest.mark.parametrize("after", [0.0, 0.03, 0.06, 0.1, 0.15, 0.2])
def test_ctrl_c_while_it_starts_leaves_nothing(after: float) -> None:
    """H22: the boot window."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(after)
    for _ in range(2):
        os.kill(program.pid, signal.SIGINT)
    out, _ = program.communicate(timeout=30)
    assert all(gone(int(pid)) for pid in out.split())
