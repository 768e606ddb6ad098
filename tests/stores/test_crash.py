"""What was told to be on disk is there after `kill -9`, was synced before it was told, and no number comes twice."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from quell.stores.sqlite import read_rows

PROGRAM = Path(__file__).with_name("appender.py")
ENDLESS = 10**9


def appender(path: Path, seed: int, count: int = ENDLESS) -> list[str]:
    return [sys.executable, str(PROGRAM), str(path), str(seed), str(count)]


def numbers(output: str, word: str) -> list[int]:
    """Of the lines that came out whole."""
    return [int(line.split()[1]) for line in output.splitlines(keepends=True) if re.match(rf"{word} \d+\n", line)]


def run_and_kill(path: Path, seed: int, moment: float) -> str:
    """What it printed from its start until it was killed, a moment after it had opened the log."""
    with subprocess.Popen(appender(path, seed), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        output = os.read(process.stdout.fileno(), 6)
        time.sleep(moment)  # not for luck: it is the moment that the test is about
        process.send_signal(signal.SIGKILL)
        output += process.stdout.read()
    return output.decode()


def test_what_was_told_survives_kill_and_no_number_comes_twice(tmp_path: Path) -> None:
    """A real process, killed at random moments, start after start on the same log."""
    chance = random.Random(4)
    path = tmp_path / "log.db"
    acknowledged: set[int] = set()
    highest = told = shown = 0
    bound = time.monotonic() + 7.0
    for seed in range(30):
        if time.monotonic() > bound:
            break
        output = run_and_kill(path, seed, chance.random() * 0.05)
        (opened,) = numbers(output, "open")
        assert opened >= highest
        seen = numbers(output, "told")
        highest = max([highest, opened, *seen, *numbers(output, "shown")])
        told += len(seen)
        shown += len(numbers(output, "shown"))
        found = {row.seq for row in read_rows(path)}
        if seen:
            acknowledged |= {number for number in found if opened < number <= seen[-1]}
            assert seen[-1] - opened == len([number for number in found if opened < number <= seen[-1]])
        assert acknowledged <= found
    assert told > 100 and shown > 100


def events(trace: str) -> list[str]:
    """What the trace shows, in order: `sync` of the -wal once it has returned, `told N` as it is printed."""
    found, pending = [], set()
    for line in trace.splitlines():
        pid, _, call = line.partition(" ")
        call = call.strip()
        if re.match(r"(fdatasync|fsync)\(\d+<[^>]*-wal>\)\s+= 0", call):
            found.append("sync")
        elif re.match(r"(fdatasync|fsync)\(\d+<[^>]*-wal> <unfinished", call):
            pending.add(pid)
        elif re.match(r"<\.\.\. (fdatasync|fsync) resumed>\)\s+= 0", call) and pid in pending:
            pending.discard(pid)
            found.append("sync")
        elif match := re.match(r'write\(1<[^>]*>, "(told \d+|open \d+)\\n"', call):
            found.append(match[1])
        elif re.match(r"pwrite64\(\d+<[^>]*-wal>", call):
            found.append("write")
    return found


def unsynced(found: list[str]) -> list[str]:
    """The acknowledgements that came before their commit was synced: the n-th needs n of them, each written and synced.

    The loop may print late, when the next commit is under way, so it is counted and not looked for right before.
    """
    wrong, synced, told, dirty = [], 0, 0, False
    for event in found[found.index("open 0") :]:
        if event == "write":
            dirty = True
        elif event == "sync":
            synced += dirty
            dirty = False
        elif event.startswith("told"):
            told += 1
            if told > synced:
                wrong.append(event)
    return wrong


def test_a_sync_precedes_each_acknowledgement(tmp_path: Path) -> None:
    """As the kernel saw it: `kill -9` alone cannot show this, since what was written outlives the process anyway."""
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "-y", "-e", "trace=fdatasync,fsync,write,pwrite64", "-s", "40", "-o", str(trace)]
    done = subprocess.run(
        [*strace, *appender(tmp_path / "log.db", 1, 300)], capture_output=True, text=True, timeout=60, check=True
    )
    found = events(trace.read_text(encoding="utf-8"))
    told = [event for event in found if event.startswith("told")]
    assert told == [line for line in done.stdout.splitlines() if line.startswith("told")]
    assert len(told) >= 10
    assert unsynced(found) == []


@pytest.mark.parametrize(
    "trace", [["write", "told 1"], ["write", "sync", "told 1", "write", "told 2"], ["sync", "told 1"]]
)
def test_an_acknowledgement_without_a_sync_would_be_seen(trace: list[str]) -> None:
    """H56: the look at the trace is seen to fail."""
    assert unsynced(["open 0", *trace]) == [trace[-1]]
