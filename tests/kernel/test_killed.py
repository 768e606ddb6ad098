"""`kill -9` of a working runtime, at any moment: nothing acknowledged is lost, nothing lives on or is done twice."""

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix.safety import Result, Safe

from .killing import ROOT, Killed, lost

QUICK, ALL = 12, 200
"""Moments."""
ROUNDS = 4
"""Deaths on one state folder."""
STARTED = 0.35
"""Seconds from the start of the program, within which a few of the moments are."""
AT_WORK = 0.5
"""Seconds after it was ready, within which most are."""


def kill_often(folder: Path, first: int, count: int) -> Result:
    slowest, in_flight, said = 0.0, 0, 0
    for start in range(first, first + count, ROUNDS):
        killed = Killed(folder / str(start))
        for seed in range(start, start + ROUNDS):
            chance = random.Random(seed)
            at_work = chance.random() < 0.8
            moment = chance.random() * (AT_WORK if at_work else STARTED)
            try:
                killed.run(seed, moment, at_work)
                killed.look()
                # Now and then the next one starts on what this one left, and may die of that.
                if seed == start + ROUNDS - 1 or chance.random() < 0.7:
                    in_flight += killed.start_again()
            except AssertionError as error:
                when = "at work" if at_work else "after its start"
                raise AssertionError(f"seed {seed}, {moment:.3f} s {when}") from error
        slowest = max(slowest, killed.slowest)
        said += len(killed.said)
    return {"slowest": slowest, "in flight": in_flight, "said": said}


def kill_in_a_namespace(folder: Path, first: int, count: int) -> None:
    if os.geteuid() != 0:
        pytest.skip("a PID namespace, in which every process is one of the test's, needs root")
    result = Safe(lambda: kill_often(folder, first, count)).result()
    print(result)
    assert "broken" not in result, result["broken"]
    assert result["in flight"] > count / 4 and result["said"] > count * 20


def test_what_was_acknowledged_survives_kill_and_nothing_else_does(tmp_path: Path) -> None:
    """H23: no process is left within a second, turns in flight are interrupted, messages parked, no effect repeated."""
    kill_in_a_namespace(tmp_path, 0, QUICK)


@pytest.mark.soak
def test_what_was_acknowledged_survives_kill_at_two_hundred_moments(tmp_path: Path) -> None:
    """H23: the same, with other seeds."""
    kill_in_a_namespace(tmp_path, 1000, ALL)


def test_a_lost_acknowledgement_would_be_seen() -> None:
    """H56: the look at what was acknowledged is seen to fail."""
    body = {"kind": "message.user", "seq": 7, "session": "s", "text": "Hello."}
    word = {"ack": "event", "event": body}
    assert lost([word], []) == [f"the event {body}"]
    assert len(lost([{"ack": "receipt", "session": "s", "reason": "r", "confirmed": True}], [])) == 1
    assert len(lost([{"ack": "opened", "session": "s"}], [])) == 1


# -- on disk before it is said


def unsynced(trace: str) -> tuple[int, list[int]]:
    """How many events were acknowledged, and those of them that no sync had put on disk before."""
    written: dict[int, int] = {}  # by the event: the line in which it first went to the -wal
    synced: list[tuple[int, int]] = []  # where a sync of that began and ended
    begun: dict[str, int] = {}
    acknowledged, wrong = 0, []
    for number, line in enumerate(trace.splitlines()):
        pid, _, call = line.partition(" ")
        call = call.strip()
        if re.match(r"pwrite64\(\d+<[^>]*-wal>", call):
            for seq in re.findall(r'\\"seq\\":(\d+)[,}]', call):
                written.setdefault(int(seq), number)
        elif re.match(r"f(?:data)?sync\(\d+<[^>]*-wal>\)\s+= 0", call):
            synced.append((number, number))
        elif re.match(r"f(?:data)?sync\(\d+<[^>]*-wal> <unfinished", call):
            begun[pid] = number
        elif re.match(r"<\.\.\. f(?:data)?sync resumed>\)\s+= 0", call) and pid in begun:
            synced.append((begun.pop(pid), number))
        elif match := re.match(r'write\(1<[^>]*>, "{\\"ack\\":\\"event\\".*?\\"seq\\":(\d+)[,}]', call):
            acknowledged += 1
            put = written.get(int(match[1]))
            if put is None or not any(put < start and end < number for start, end in synced):
                wrong.append(int(match[1]))
    return acknowledged, wrong


def test_a_sync_precedes_each_acknowledgement(tmp_path: Path) -> None:
    """As the kernel saw it: `kill -9` alone cannot show this, since what was written outlives the process anyway."""
    trace, work = tmp_path / "trace", tmp_path / "work"
    work.mkdir()
    strace = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "100000", "-o", str(trace)]
    program = [sys.executable, "-m", "tests.kernel.victim", str(tmp_path / "state"), str(work), "1", "3"]
    calls = "trace=fdatasync,fsync,write,pwrite64"
    subprocess.run([*strace, "-e", calls, *program], cwd=ROOT, capture_output=True, timeout=60, check=True)
    acknowledged, wrong = unsynced(trace.read_text(encoding="utf-8"))
    assert acknowledged > 100
    assert wrong == []


WRITE = '9 pwrite64(5</log.sqlite-wal>, "{\\"kind\\":\\"message.user\\",\\"seq\\":7}", 40, 0) = 40'
SYNC = "9 fdatasync(5</log.sqlite-wal>) = 0"
TOLD = '8 write(1<pipe:[1]>, "{\\"ack\\":\\"event\\",\\"event\\":{\\"seq\\":7}}\\n", 40) = 40'


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ([WRITE, SYNC, TOLD], []),
        ([WRITE, TOLD, SYNC], [7]),
        ([SYNC, WRITE, TOLD], [7]),
        ([SYNC, TOLD], [7]),
        ([WRITE, "9 fdatasync(5</log.sqlite-wal> <unfinished ...>", TOLD, "9 <... fdatasync resumed>) = 0"], [7]),
        ([WRITE, "9 fdatasync(5</log.sqlite-wal> <unfinished ...>", "9 <... fdatasync resumed>) = 0", TOLD], []),
    ],
)
def test_an_acknowledgement_without_its_sync_would_be_seen(lines: list[str], wrong: list[int]) -> None:
    """H56: the look at the trace is seen to fail."""
    assert unsynced("\n".join(lines)) == (1, wrong)
