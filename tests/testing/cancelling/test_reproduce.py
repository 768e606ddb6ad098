"""What was covered is said, and the command that is printed shows the finding again."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quell.errors import UsageError
from quell.testing.cancelling import LeakFound
from tests.testing.cancelling import plants
from tests.testing.cancelling.covering import clean_up_of_one_step, everywhere, three_steps
from tests.testing.cancelling.plants import marked


def test_findings_are_raised_with_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(LeakFound) as raised:
        everywhere(plants.swallow, name="a name")
    assert raised.value.coverage.swallowed
    text = str(raised.value)
    assert marked(plants.swallow) in text and "before step 2 (its own step)" in text
    printed = capsys.readouterr().out
    assert re.fullmatch(
        r"cancel_everywhere a-name: 2 of 2 points at 2 lines, 0 of 0 pairs, 0 leaks, 1 swallowed, \d\.\d s\n", printed
    )


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert everywhere(three_steps, quiet=True).complete
    assert capsys.readouterr().out == ""


def test_the_environment_sets_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUELL_CANCEL_BUDGET", "0")
    found = everywhere(three_steps)
    assert found.points_covered == 0 and "the budget of 0 s is used up" in str(found)
    monkeypatch.setenv("QUELL_CANCEL_BUDGET", "much")
    with pytest.raises(UsageError, match="seconds"):
        everywhere(three_steps)


def test_the_least_is_tried_though_the_budget_is_used_up() -> None:
    async def target() -> None:
        try:
            for _ in range(9):
                await asyncio.sleep(0)
        finally:
            for _ in range(9):
                await asyncio.sleep(0)

    found = everywhere(target, budget=0.0, least=3)
    assert (found.points_covered, found.pairs_covered) == (3, 3)
    assert found.points_found > 3 and found.pairs_found > 3


@pytest.mark.parametrize(
    ("asked", "points", "pairs"),
    [("2", 1, 0), ("clean_up_of_one_step:2", 1, 0), ("clean_up_of_one_step:1+,3", 0, 1), ("another:2", 0, 0)],
)
def test_the_environment_asks_for_one_point(
    monkeypatch: pytest.MonkeyPatch, asked: str, points: int, pairs: int
) -> None:
    monkeypatch.setenv("QUELL_CANCEL_AT", asked)
    found = everywhere(clean_up_of_one_step)
    assert (found.points_covered, found.pairs_covered) == (points, pairs)


def test_a_point_that_makes_no_sense_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUELL_CANCEL_AT", "name:soon")
    with pytest.raises(UsageError, match="NAME:STEP"):
        everywhere(three_steps)


FAULTY = """
import asyncio, os
from quell.testing.cancelling import cancel_everywhere

async def target():
    fd = os.open("/dev/null", os.O_RDONLY)
    try:
        await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)  # a second cancel here
        os.close(fd)

def test_of_a_descriptor():
    cancel_everywhere(target, settle=0.1, kinds=["fd"])
    cancel_everywhere(lambda: asyncio.sleep(0), kinds=["fd"])

if __name__ == "__main__":
    test_of_a_descriptor()
"""


@pytest.mark.parametrize("program", [["-m", "pytest", "-p", "no:cacheprovider", "tests"], ["tests/test_fault.py"]])
@pytest.mark.parametrize("folder", [".", "tests"])
def test_the_command_that_is_printed_shows_the_leak_again(tmp_path: Path, program: list[str], folder: str) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_fault.py").write_text(FAULTY)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    program = [os.path.relpath(part, folder) if part.startswith("tests") else part for part in program]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    settings: dict[str, Any] = {"cwd": tmp_path / folder, "env": environment, "text": True, "timeout": 60}
    first = subprocess.run([sys.executable, *program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings)
    (command,) = set(re.findall(r"again: (QUELL_CANCEL_AT=target:2,3 .+)", first.stdout))
    second = subprocess.run(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **settings)
    assert second.returncode == 1
    leak = r"leak: .+test_fault\.py:10 in target\n(.+\n)*.+fd \d+ of /dev/null, made at .+test_fault\.py:6 in target"
    assert re.search(leak, first.stdout) and re.search(leak, second.stdout), second.stdout
    assert "1 of 1 pairs" in second.stdout
