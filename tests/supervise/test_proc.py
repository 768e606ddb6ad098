"""Walking /proc finds every descendant, with and without the kernel's `children` files."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from quell.supervise.keeper.freeze import Freeze
from quell.supervise.keeper.proc import Proc

from .conftest import gone, until


@pytest.fixture(params=[True, False], ids=["children files", "every stat"])
def proc(request: pytest.FixtureRequest) -> Iterator[Proc]:
    proc = Proc()
    assert proc.has_children_files
    proc.has_children_files = request.param
    yield proc
    proc.close()


def test_descendants_come_parents_first_and_skips_hold_for_all_below(proc: Proc) -> None:
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 600; :' ; :"]) as outer:
        assert until(lambda: len(list(proc.descendants(outer.pid))) == 2)
        middle, leaf = proc.descendants(outer.pid)
        assert list(proc.descendants(outer.pid, skip={middle})) == []
        assert list(proc.descendants(outer.pid, skip={leaf})) == [middle]
        assert [one.argv for one in proc.see(middle)] == [["sleep", "600"]]
        stat = proc.stat(leaf)
        assert stat is not None and stat.parent == middle and proc.alive(leaf, stat.start)
        assert not proc.alive(leaf, stat.start + 1)
        for pid in (outer.pid, middle, leaf):
            os.kill(pid, 9)
        assert gone(leaf)


def test_a_freeze_holds_everybody_below_and_kills_them(proc: Proc) -> None:
    """H11, H13: parents first, each by a pidfd; also on a kernel without `children` files."""
    bystander = subprocess.Popen(["sleep", "600"])
    with subprocess.Popen(["sh", "-c", "setsid sleep 600 & sleep 600; :"]) as outer:
        assert until(lambda: len(list(proc.descendants(outer.pid))) == 2)
        below = {outer.pid, *proc.descendants(outer.pid)}
        with Freeze(proc, skip={bystander.pid}) as frozen:
            assert set(frozen.held) == below
            assert {stat.state for pid in below if (stat := proc.stat(pid))} == {"T"}
            frozen.kill()
        assert all(gone(pid) for pid in below)
    assert proc.alive(bystander.pid)
    bystander.kill()
    bystander.wait()


def test_children_of_every_thread_are_found() -> None:
    code = (
        "import subprocess, threading, sys\n"
        "t = threading.Thread(target=lambda: subprocess.Popen(['sleep', '600']).wait())\n"
        "t.start(); t.join()"
    )
    proc = Proc()
    with subprocess.Popen([sys.executable, "-c", code]) as host:
        assert until(lambda: [one.argv for one in proc.see(host.pid)] == [["sleep", "600"]])
        (child,) = proc.descendants(host.pid)
        os.kill(host.pid, 9)
        os.kill(child, 9)
        assert gone(child)
    proc.close()


def test_a_zombie_is_not_alive() -> None:
    """H13: gone is decided by the kernel's word on that process, not by whether a number answers."""
    proc = Proc()
    child = subprocess.Popen(["true"])
    assert until(lambda: not proc.alive(child.pid))
    os.kill(child.pid, 0)  # the number still answers
    child.wait()
    proc.close()
