"""Ctrl+C on a program with a runtime, at any moment: it ends, nothing is left, and the next start works at once."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import quell
from quell.kernel.runtime import LOG
from quell.testing.checking import check_log
from tests.matrix.safety import Result, Safe

from .killing import ROOT, everybody, hear, words_of

QUICK, ALL = 12, 100
"""Moments."""
STARTED = 0.3
"""Seconds from its first line within which they are: imports, and a little more than the runtime takes to be ready."""
BOUND = 10.0
"""Seconds for the program to end."""
GONE = 1.0
"""Seconds after that for what it was torn away from: the death of a runtime is a stop."""
A_PRESS = 0.02
"""Seconds between two presses of a quick hand. Closer ones can lose a callback in asyncio itself, and hang it."""

PROGRAM = """
print("begun", flush=True)
import asyncio, sys, quell
async def main():
    async with quell.Runtime(state_dir=sys.argv[1], settings=quell.Settings(ask=0.3, term=0.2)) as rt:
        print("ready", flush=True)
        if len(sys.argv) == 2:
            await asyncio.sleep(60)
        else:
            session = await rt.open(cwd=".")
            async for event in session.send(sys.argv[2]):
                if event.kind == "process.spawned":
                    print("at work", flush=True)
asyncio.run(main())
"""
DEAF = "$ trap '' TERM; setsid sleep 601 & while :; do sleep 602; done"


class Program:
    """It runs in a namespace in which everything else is known. Ended by signals of ours, or by itself."""

    def __init__(self, state: Path, *words: str) -> None:
        self._others = everybody()
        self._heard = b""
        argv = [sys.executable, "-c", PROGRAM, str(state), *words]
        self.process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said(b"begun\n")  # a Ctrl+C before that is Python's own matter

    def said(self, word: bytes) -> None:
        """Until it has said this, lately or before."""
        assert self.process.stdout is not None
        if word not in self._heard:
            self._heard += hear(self.process.stdout.fileno(), BOUND, word)
        assert word in self._heard, self._heard

    def press(self) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> None:
        """Ended as Python ends by Ctrl+C, or in order; and alone."""
        try:
            _, errors = self.process.communicate(timeout=BOUND)
        finally:
            self.process.kill()
        code, words = self.process.returncode, errors.decode()
        assert code in (0, -signal.SIGINT), f"exit {code}: {words}"
        assert not words or words.rstrip().endswith("KeyboardInterrupt"), words  # nothing, where Python itself ends
        assert "never retrieved" not in words and "was never awaited" not in words and "destroyed" not in words, words
        ended = time.monotonic()
        while (
            left := everybody() - self._others - {self.process.pid}
        ):  # a second press may have torn it out of its stop
            assert time.monotonic() - ended < GONE, f"left: {[words_of(pid) for pid in left]}"
            time.sleep(0.002)


def next_start(state: Path) -> None:
    """It works at once, and the log is sound after it."""

    async def main() -> None:
        async with quell.Runtime(state_dir=state) as rt:
            assert (await (await rt.open(cwd=state)).send("Hello.")).end == "completed"

    state.mkdir(parents=True, exist_ok=True)
    asyncio.run(main())
    check_log(state / LOG)


def during_start(folder: Path, first: int, count: int) -> Result:
    for seed in range(first, first + count):
        chance = random.Random(seed)
        state, moment, again = folder / str(seed), chance.random() * STARTED, chance.random() < 0.3
        try:
            program = Program(state)
            time.sleep(moment)  # not for luck: it is the moment that the test is about
            program.press()
            if again:
                time.sleep(A_PRESS + chance.random() * 0.05)
                program.press()
            program.end()
            next_start(state)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {moment:.3f} s, {'twice' if again else 'once'}") from error
    return {}


def during_turn(folder: Path, first: int, count: int, least: float) -> Result:
    """Two presses, `least` seconds apart or more."""
    for seed in range(first, first + count):
        chance = random.Random(seed)
        state = folder / str(seed)
        try:
            program = Program(state, DEAF)
            program.said(b"at work\n")
            time.sleep(chance.random() * 0.02)  # not for luck: it is the moment that the test is about
            program.press()
            time.sleep(least + chance.choice([chance.random() * 0.004, 0.01, 0.1]))
            program.press()
            program.end()
            next_start(state)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    return {}


def in_a_namespace(job: object) -> None:
    if os.geteuid() != 0:
        pytest.skip("a PID namespace, in which every process is one of the test's, needs root")
    result = Safe(job).result()  # type: ignore[arg-type]  # one of the two above
    assert "broken" not in result, result["broken"]


def test_ctrl_c_while_it_starts_leaves_nothing_and_the_next_start_works(tmp_path: Path) -> None:
    """H22: the boot window."""
    in_a_namespace(lambda: during_start(tmp_path, 0, QUICK))


@pytest.mark.soak
def test_ctrl_c_at_a_hundred_moments_of_a_start_leaves_nothing(tmp_path: Path) -> None:
    """H22: the same, with other seeds."""
    in_a_namespace(lambda: during_start(tmp_path, 1000, ALL))


def test_ctrl_c_twice_in_a_turn_ends_what_ignores_sigterm(tmp_path: Path) -> None:
    """H12, H22: and the turn has its end in the log, if only at the next start."""
    in_a_namespace(lambda: during_turn(tmp_path, 0, 5, A_PRESS))


@pytest.mark.soak
def test_ctrl_c_twice_at_a_hundred_moments_of_a_turn_ends_it(tmp_path: Path) -> None:
    """H12, H22: the same, with other seeds and no time between the presses."""
    in_a_namespace(lambda: during_turn(tmp_path, 1000, ALL, 0.0))
