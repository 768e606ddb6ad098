"""What people do in a terminal, one function each; it gives the visible facts, which quell must not change.

`$Q` stands before each command: empty for the run without quell. bash shows a job by its source text, so the
transcripts of both runs have the same letters.
"""

import re
import shutil
from collections.abc import Callable

import pytest

from tests.cli.terminal import Terminal

Scenario = Callable[[Terminal], object]
SCENARIOS: dict[str, Scenario] = {}

# Counts each signal it gets, and says so: a signal delivered twice is a difference that programs see.
COUNT = (
    "import os, signal, sys, time; "
    "show = lambda n, f: os.write(1, ('got ' + signal.Signals(n).name + '\\n').encode()); "
    "[signal.signal(getattr(signal, name), show) for name in sys.argv[1:]]; "
    "os.write(1, b'up\\n'); "
    "[time.sleep(0.05) for _ in iter(int, 1)]"
)


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def shown(t: Terminal) -> str:
    """The whole transcript, with job pids replaced by a word."""
    return masked(t.text)


def masked(text: str) -> str:
    """The text with the pids that bash shows (`[1] 4711`, `[1]+  4711 Stopped`) replaced by a word."""
    return re.sub(r"^(\[\d+\][+ -]?) +\d+", r"\1 PID", text, flags=re.MULTILINE)


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def up(t: Terminal, then: str) -> None:
    """Start a command that says `up` when it runs, so that a key never comes before it."""
    t.run(f"up() {{ $Q sh -c 'echo up; {then}'; }}")
    t.line("up")
    t.expect("up\n")
