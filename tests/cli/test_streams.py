"""stdin, stdout and stderr are CMD's own: the same descriptors, no byte taken, none added, none left open."""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.command import BOUND, QUELL, RUNGS, need, quell

everywhere = pytest.mark.parametrize("rung", RUNGS)
EVERY_BYTE = bytes(range(256)) * 100

# Every open descriptor and what it is, the one that lists the folder left out; written where the test says.
LIST = """
import json, os, sys
found = {}
for name in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        found[name] = [os.readlink("/proc/self/fd/" + name), os.get_inheritable(int(name))]
    except OSError:
        pass
with open(sys.argv[1], "w") as out:
    json.dump(found, out)
"""


@everywhere
def test_every_byte_goes_through_both_ways(rung: str) -> None:
    need(rung)
    ended = quell("exec", "--contain", rung, "--", "sh", "-c", "tee /dev/stderr", given=EVERY_BYTE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, EVERY_BYTE, EVERY_BYTE)


def test_a_hundred_megabytes_go_through_a_pipe() -> None:
    block = os.urandom(1 << 20)
    with subprocess.Popen([QUELL, "exec", "--", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        source = running.stdin

        def write() -> None:
            for _ in range(100):
                source.write(block)
            source.close()

        writer = threading.Thread(target=write)
        writer.start()
        seen, size = hashlib.sha256(), 0
        while got := running.stdout.read(1 << 20):
            seen.update(got)
            size += len(got)
        writer.join()
        assert running.wait(BOUND) == 0
    assert size == 100 << 20
    assert seen.digest() == hashlib.sha256(block * 100).digest()


@everywhere
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-", "3</dev/null 7>/dev/null"])
def test_the_command_has_the_descriptors_that_it_has_without_quell(rung: str, closed: str, tmp_path: Path) -> None:
    """H03: no socket, pipe or log of quell's reaches the command, and what was handed down on purpose does."""
    need(rung)
    seen = []
    for words in ([], [str(QUELL), "exec", "--contain", rung, "--"]):
        found = tmp_path / "found"
        subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *words, sys.executable, "-I", "-c", LIST, str(found)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=BOUND, check=True,
        )  # fmt: skip
        seen.append(found.read_text())
        found.unlink()
    assert seen[1] == seen[0]


@everywhere
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_changes_neither_the_exit_code_nor_the_clean_up(rung: str, closed: str, tmp_path: Path) -> None:
    need(rung)
    words = [str(QUELL), "exec", "--contain", rung, "--receipt", str(tmp_path / "receipt"), "--"]
    script = "sleep 1009 >/dev/null 2>&1 & exit 9"
    ended = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *words, "sh", "-c", script],
        capture_output=True, timeout=BOUND, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (9, b"")
    assert b"Traceback" not in ended.stderr
    assert (tmp_path / "receipt").stat().st_size > 0


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_full_disk_is_the_commands_own_matter(stream: str) -> None:
    redirect = {"stdout": ">/dev/full", "stderr": "2>/dev/full"}[stream]
    for words in ([], [str(QUELL), "exec", "--"]):
        script = f'"$@" sh -c "echo text >&{1 if stream == "stdout" else 2}" {redirect}; echo $?'
        ended = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, timeout=BOUND, check=False)
        assert ended.stdout != b"0\n"
        assert b"Traceback" not in ended.stderr


def test_the_line_on_a_full_stderr_costs_nobody_the_exit_code() -> None:
    script = 'exec "$@" 2>/dev/full'
    words = [str(QUELL), "exec", "--", "sh", "-c", "sleep 1010 >/dev/null 2>&1 & exit 8"]
    ended = subprocess.run(["sh", "-c", script, "sh", *words], capture_output=True, timeout=BOUND, check=False)
    assert ended.returncode == 8


def test_output_is_not_held_back() -> None:
    """What the command writes is there at once: nothing of ours sits between it and the reader."""
    words = [str(QUELL), "exec", "--", "sh", "-c", "echo now; read x; echo $x"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        assert running.stdout.readline() == b"now\n"
        running.stdin.write(b"then\n")
        running.stdin.flush()
        assert running.stdout.readline() == b"then\n"


@everywhere
def test_a_leftover_that_holds_the_output_open_does_not_hold_up_the_reader(rung: str) -> None:
    """Without quell the reader waits as long as any child holds the pipe; with it, till the command ends."""
    need(rung)
    ended = quell("exec", "--quiet", "--contain", rung, "--", "sh", "-c", "sleep 1011 & echo out", timeout=10)
    assert (ended.returncode, ended.stdout) == (0, b"out\n")
