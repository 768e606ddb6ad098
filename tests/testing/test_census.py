"""A census finds a leak of every kind and names it with the line that made it."""

import asyncio
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from quell.errors import UsageError
from quell.testing.counting import KINDS, census, tracking

from .counting import BOUND, SHORT, line, run, words
from .leftovers import PLANTS, Planted

pytestmark = pytest.mark.usefixtures("libuv", "temporary")


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.removeprefix("plant_"))
def test_a_leak_of_every_kind_is_found_named_and_traced_to_its_line(
    plant: Callable[[ExitStack], Planted], cleanup: ExitStack
) -> None:
    """H03: what a test leaves behind is found, whatever it is. H56: each kind is seen to be found."""
    with tracking():
        before = census()
        kind, what, made = plant(cleanup)
        found = [leak for leak in before.leaks(settle=SHORT) if leak.kind == kind and what in leak.what]
        assert len(found) == 1
        assert found[0].made is not None and found[0].made.startswith(made)
        assert str(found[0]) == f"{kind} {found[0].what}, made at {found[0].made}"
        cleanup.close()
        assert words(before.leaks()) == []


def test_there_is_a_plant_for_every_kind() -> None:
    """H56: a kind that nothing plants would never be seen to be found."""
    found = set()
    for plant in PLANTS:
        with ExitStack() as one:
            found.add(plant(one)[0])
    assert found == set(KINDS)


# -- descendants that are harder to know

ORPHAN = """
import subprocess, sys
from quell.supervise.keeper.linux import become_subreaper
from quell.testing.counting import census, tracking
become_subreaper()
with tracking():
    before = census(kinds="descendant")
    child = subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & echo $!"], stdout=subprocess.PIPE, text=True)
    orphan = int(child.stdout.readline())
    child.wait()
    child.stdout.close()
    leaks = before.leaks(settle=0.1)
print(orphan, *leaks, sep="\\n")
import os, signal
os.kill(orphan, signal.SIGKILL)
os.waitpid(orphan, 0)
assert before.leaks() == []
"""


def test_an_orphan_that_came_to_its_subreaper_is_found() -> None:
    """Its parent is gone, so it hangs below us; the group that it is in tells who made it."""
    pid, leak = run(ORPHAN)
    assert leak == f"descendant {pid} 'sleep 600', made at <string>:8 in <module>"


SAME_PID = """
import os, subprocess, time
from pathlib import Path
from quell.testing.counting import census
first = subprocess.Popen(["sleep", "600"])
before = census(kinds="descendant")
first.kill()
first.wait()
time.sleep(2 / os.sysconf("SC_CLK_TCK"))  # start times are in ticks
while True:
    Path("/proc/sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    second = subprocess.Popen(["sleep", "601"])
    if second.pid == first.pid:
        break
    second.kill()
    second.wait()
leaks = [leak.what for leak in before.leaks(settle=0.1)]
assert leaks == [f"{first.pid} 'sleep 601'"], leaks
second.kill()
second.wait()
"""


def test_a_pid_that_is_used_again_is_another_process() -> None:
    """H13: a process is known by its pid and its start time."""
    run(SAME_PID, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


# -- numbers that are used again


def test_a_number_that_leads_elsewhere_is_another_descriptor() -> None:
    first = os.open("/dev/null", os.O_RDONLY)
    before = census()
    os.close(first)
    second = os.open("/dev/zero", os.O_RDONLY)
    assert first == second
    assert words(before.leaks(settle=0)) == [f"fd {second} of /dev/zero"]
    os.close(second)


def test_a_number_that_is_used_again_has_the_line_of_its_latest_use() -> None:
    with tracking():
        before = census()
        first, _ = os.pipe()
        os.close(first)
        again, made = os.open("/dev/null", os.O_RDONLY), line()
        assert again == first
        found = [leak.made for leak in before.leaks(settle=0) if leak.what.startswith(f"{again} ")]
        assert found[0] is not None and found[0].startswith(made)
        os.close(again)
        os.close(_)


# -- choosing


def test_only_the_kinds_that_are_asked_for_are_counted() -> None:
    before = census(kinds=["thread", "socket"])
    ours, theirs = socket.socketpair()
    with ours, theirs, open("/dev/null"):
        assert {thing.kind for thing in census(kinds=["thread", "socket"])} == {"thread", "socket"}
        assert [leak.kind for leak in before.leaks(settle=0)] == ["socket", "socket"]


def test_a_kind_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no kind 'threads': choose among task, thread"):
        census(kinds=["threads"])


@pytest.mark.parametrize("ignore", ["fd * of /dev/null", ["no *", "*null"], lambda leak: leak.what.endswith("null")])
def test_what_is_ignored_is_no_leak_and_is_not_waited_for(ignore: str) -> None:
    before = census(ignore=ignore)
    with open("/dev/null"):
        start = time.monotonic()
        assert words(before.leaks(settle=BOUND)) == []
        assert time.monotonic() - start < BOUND / 2
        with open("/dev/zero"):
            assert len(before.leaks(settle=0)) == 1


def test_two_censuses_are_compared_without_waiting() -> None:
    before = census(kinds="fd")
    with open("/dev/null") as file:
        after = census(kinds="fd")
        number = file.fileno()
    assert words(before.leaks(after)) == [f"fd {number} of /dev/null"]
    assert f"fd {number} of /dev/null" in [str(thing) for thing in after]
    assert len(after) == len(before) + 1


def test_a_census_is_quick(cleanup: ExitStack) -> None:
    for _ in range(50):
        cleanup.callback(os.close, os.open("/dev/null", os.O_RDONLY))
    start = time.perf_counter()
    for _ in range(10):
        census()
    assert (time.perf_counter() - start) / 10 < 0.02  # measured: below 1 ms


def test_things_that_come_and_go_while_they_are_listed_do_no_harm() -> None:
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            os.close(os.open("/dev/null", os.O_RDONLY))
            os.rmdir(tempfile.mkdtemp())
            subprocess.run(["true"], check=True)
            asyncio.run(asyncio.sleep(0))

    with tracking():
        before = census()
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(churn) for _ in range(2)]
            bound = time.monotonic() + 1
            while time.monotonic() < bound:
                before.leaks(settle=0)
            over.set()
            assert [future.result() for future in futures] == [None, None]
        assert words(before.leaks()) == []
