"""What /proc says about the processes of one PID namespace, and waiting for it to say something."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BOUND = 5.0
"""Seconds that a fact which must come may take on a busy machine."""


class Process(NamedTuple):
    pid: int
    parent: int
    state: str


def everybody() -> list[Process]:
    """Every process in this PID namespace and in those below it, zombies included."""
    found = (process(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [one for one in found if one is not None]


def process(pid: int) -> Process | None:
    stat = _read(pid, "stat")
    if not stat:
        return None
    fields = stat.rsplit(")", 1)[1].split()
    return Process(pid, int(fields[1]), fields[0])


def name(pid: int) -> str:
    return _read(pid, "comm").rstrip("\n")


def describe(one: Process) -> str:
    argv = " ".join(_read(one.pid, "cmdline").replace("\0", " ").split())
    return f"{one.pid} {one.state} (child of {one.parent}) {name(one.pid)}: {argv[:60]}"


def holders(file: Path) -> set[int]:
    """The pids that hold this file open for writing."""
    return {one.pid for one in everybody() if _writes(one.pid, str(file))}


def _writes(pid: int, file: str) -> bool:
    """Looked up twice: between two looks a process may become another program, with other files under its numbers."""
    try:
        links = [entry.path for entry in os.scandir(f"/proc/{pid}/fd") if os.readlink(entry.path) == file]
        for link in links:
            flags = _read(pid, f"fdinfo/{os.path.basename(link)}").partition("flags:")[2].split()
            if flags and int(flags[0], 8) & os.O_ACCMODE != os.O_RDONLY and os.readlink(link) == file:
                return True
    except OSError:
        return False
    return False


def wait_for_state(pid: int, states: str) -> bool:
    """Until it is in one of these states (T: stopped, D: uninterruptible, Z: dead), or gone."""
    return until(lambda: (one := process(pid)) is None or one.state in states)


def until(fact: Callable[[], bool], bound: float = BOUND) -> bool:
    """Wait for the fact; False if it did not come within the bound."""
    end = time.monotonic() + bound
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
