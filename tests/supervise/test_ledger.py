"""A start after a crash ends what the crash left, and nothing else."""

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from quell.supervise import Ledger, Zygote
from quell.supervise.ledger import Entry, boot_id
from quell.supervise.ledger import state_dir as default_state_dir

from .conftest import alive, gone, until

HOST = """
import os, sys
from quell.supervise import Zygote
zygote = Zygote({rung!r}, pool=0)
box = zygote.box()
tree = box.spawn(["sh", "-c", "setsid sleep 600 & echo $! >&2; exec sleep 600"], stderr=2)
parent = lambda pid: int(open(f"/proc/{{pid}}/stat").read().rpartition(")")[2].split()[1])
upper = parent(box.keeper)
print(tree.pid, box.keeper, upper, parent(upper), flush=True)
sys.stdin.read()
"""


@contextmanager
def crashed(rung: str) -> Iterator[tuple[int, int]]:
    """A host that was killed at one moment with everything that would have ended its box: the command's pids."""
    with subprocess.Popen(
        [sys.executable, "-c", HOST.format(rung=rung)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as host:
        assert host.stdout is not None and host.stderr is not None
        pids = [int(word) for word in host.stdout.readline().split()]
        escapee = int(host.stderr.readline())
        for pid in (host.pid, *pids[1:]):
            os.kill(pid, signal.SIGSTOP)
        for pid in (host.pid, *pids[1:]):
            os.kill(pid, signal.SIGKILL)
        host.wait()
    try:
        yield pids[0], escapee
    finally:
        for pid in (pids[0], escapee):
            if alive(pid):
                os.kill(pid, signal.SIGKILL)


def entries(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "ledger"))


@pytest.fixture
def ledger(state_dir: Path) -> Iterator[Ledger]:
    ledger = Ledger()
    yield ledger
    ledger.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a writable cgroup")
def test_what_a_crash_left_in_a_cgroup_is_ended_escapees_included(ledger: Ledger, state_dir: Path) -> None:
    """H23: the next start finds the box by its cgroup."""
    with crashed("cgroup") as (root, escapee):
        assert alive(root) and alive(escapee)
        found = ledger.reconcile()
        assert [(box["rung"], box["survivors"]) for box in found] == [("cgroup", [])] and found[0]["ended"] >= 2
        assert gone(root) and gone(escapee)
    assert entries(state_dir) == []


def test_what_a_crash_left_below_a_subreaper_is_ended_as_far_as_it_descends(ledger: Ledger, state_dir: Path) -> None:
    """H23: by pid, start time and boot; an escapee that no longer descends from the command is the listed limit."""
    with crashed("subreaper") as (root, escapee):
        assert alive(root)
        found = ledger.reconcile()
        assert found[0]["survivors"] == [] and found[0]["ended"] >= 1
        assert gone(root)
        assert gone(escapee)  # it still descended from the command
    assert entries(state_dir) == []


def test_what_has_a_live_owner_is_never_touched(ledger: Ledger) -> None:
    """H13, H23: a second start beside a living one leaves its boxes alone."""
    with Zygote("subreaper", pool=0) as zygote:
        box = zygote.box()
        tree = box.spawn(["sleep", "600"])
        assert ledger.reconcile() == []
        assert alive(tree.pid)
        box.stop(force=True)


def test_a_reused_pid_is_not_mistaken_for_what_a_crash_left(ledger: Ledger, state_dir: Path) -> None:
    """H13: the number alone is never enough."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        write_entry(state_dir, processes=f"process {stranger.pid} 1")
        assert ledger.reconcile()[0]["ended"] == 0
        assert alive(stranger.pid)
        stranger.kill()
    assert entries(state_dir) == []


@pytest.mark.parametrize(
    ("facts", "kept"),
    [({"boot": "another"}, False), ({"namespace": "1"}, True)],
    ids=["of another boot", "of another PID namespace"],
)
def test_numbers_that_mean_others_are_not_used(
    ledger: Ledger, state_dir: Path, facts: dict[str, str], kept: bool
) -> None:
    """H13: pids and start times hold within one boot and one PID namespace only."""
    with subprocess.Popen(["sleep", "600"]) as stranger:
        start = Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19]
        write_entry(state_dir, processes=f"process {stranger.pid} {start}", **facts)
        assert ledger.reconcile() == []
        assert alive(stranger.pid)
        stranger.kill()
    assert bool(entries(state_dir)) == kept


def test_a_broken_entry_is_left_alone(ledger: Ledger, state_dir: Path) -> None:
    for number, text in enumerate(["", "quell-ledger 99\n", "quell-ledger 1\nboot x\n", "\0\xff"]):
        (state_dir / "ledger" / f"{number}.box").write_text(text)
    assert ledger.reconcile() == []
    assert len(entries(state_dir)) == 4


def test_a_full_disk_neither_stops_nor_ends_a_command(ledger: Ledger, state_dir: Path) -> None:
    entry = Entry("/dev/full", {"rung": [["subreaper"]]})
    entry.write([])
    entry.add([[1, 2]])
    write_entry(state_dir, processes="process 12")  # cut off in the middle
    assert [box["ended"] for box in ledger.reconcile()] == [0]


def test_the_ledger_is_private_and_empty_after_a_confirmed_stop(state_dir: Path) -> None:
    """H03: a box is entered before it exists, and removed when its stop is confirmed."""
    with Zygote("subreaper", pool=0) as zygote:
        box = zygote.box()
        tree = box.spawn(["sleep", "600"])
        (name,) = entries(state_dir)
        text = (state_dir / "ledger" / name).read_text()
        assert f"process {tree.pid} " in text and f"owner {os.getpid()} " in text
        assert stat.S_IMODE((state_dir / "ledger").stat().st_mode) == 0o700
        assert stat.S_IMODE((state_dir / "ledger" / name).stat().st_mode) == 0o600
        assert box.stop().confirmed
        assert entries(state_dir) == []


def test_the_state_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUELL_STATE_DIR", "/a")
    assert default_state_dir() == "/a"
    monkeypatch.delenv("QUELL_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", "/b")
    assert default_state_dir() == "/b/quell"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", "/c")
    assert default_state_dir() == "/c/.local/state/quell"


def write_entry(state_dir: Path, processes: str, boot: str | None = None, namespace: str | None = None) -> None:
    here = str(os.stat("/proc/self/ns/pid").st_ino)
    facts = [
        "quell-ledger 1",
        f"boot {boot or boot_id()}",
        f"namespace {namespace or here}",
        "owner 4194304 1",
        "rung subreaper",
        processes,
    ]
    (state_dir / "ledger" / "entry.box").write_text("\n".join(facts) + "\n")
    assert until(lambda: (state_dir / "ledger" / "entry.box").exists())
