"""A box holds several commands; each can be ended alone, and ending the box ends all."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from quell.errors import BoxLostError, SpawnError
from quell.supervise import NULL, PIPE, Box, Receipt, Zygote

from .conftest import alive, gone, number_in, until

DAEMONISE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    middle = os.getpid()
    if os.fork() == 0:
        while os.getppid() == middle:
            time.sleep(0.001)
        open(sys.argv[1], "w").close()
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


def test_a_command_runs_and_its_end_is_seen(box: Box) -> None:
    tree = box.spawn(["sh", "-c", "echo out; echo err >&2; exit 7"], stdin=NULL, stdout=PIPE, stderr=PIPE)
    assert tree.stdout is not None and tree.stderr is not None
    assert tree.wait(10) == {"code": 7}
    assert (tree.stdout.read(), tree.stderr.read()) == (b"out\n", b"err\n")


def test_the_end_of_a_command_is_seen_while_its_grandchild_holds_the_pipe(box: Box) -> None:
    """H08: waiting for a command never waits for whoever inherited its output."""
    tree = box.spawn(["sh", "-c", "sleep 600 & exit 3"], stdout=PIPE)
    assert tree.wait(10) == {"code": 3}
    assert not box.over()


def test_a_later_command_sees_and_can_kill_an_earlier_background_job(box: Box, tmp_path: Path) -> None:
    first = box.spawn(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/job"])
    assert first.wait(10) == {"code": 0}
    job = number_in(tmp_path / "job")
    assert box.spawn(["kill", "-0", str(job)]).wait(10) == {"code": 0}
    assert box.spawn(["kill", "-9", str(job)]).wait(10) == {"code": 0}
    seen = box.spawn(["sh", "-c", f"while kill -0 {job} 2>/dev/null; do sleep 0.01; done"])
    assert seen.wait(10) == {"code": 0}


def test_stopping_one_tree_ends_its_escapees_and_leaves_the_others(box: Box, tmp_path: Path) -> None:
    """H10, H11: one tree is ended alone, with what it daemonised, by descent."""
    keep = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    doomed = box.spawn([sys.executable, "-c", DAEMONISE, str(tmp_path / "up")])
    assert until(lambda: (tmp_path / "up").exists())
    receipt = doomed.stop(grace=2)
    assert receipt.confirmed and receipt.survivors == []
    assert {one.argv[0] for one in receipt.processes if one.argv} == {sys.executable}
    assert len(receipt.processes) == 2
    assert alive(keep.pid) and not alive(doomed.pid)
    assert box.spawn(["true"]).wait(10) == {"code": 0}
    whole = box.stop(grace=2)
    assert whole.confirmed and sorted(one.argv for one in whole.processes if one.argv) == [["sleep", "600"]] * 2


def test_the_first_tree_can_be_stopped_while_a_second_lives(box: Box) -> None:
    first = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    second = box.spawn(["sleep", "600"])
    assert first.stop(grace=2).confirmed
    assert not alive(first.pid) and alive(second.pid)


def test_ending_the_box_ends_every_tree(box: Box) -> None:
    trees = [box.spawn(["sh", "-c", "trap '' TERM; setsid sleep 600 & while :; do sleep 600; done"]) for _ in range(4)]
    began = time.monotonic()
    receipt = box.stop(grace=0.3)
    assert receipt.confirmed and time.monotonic() - began < 5
    assert not any(alive(tree.pid) for tree in trees)
    assert {tree.pid for tree in trees} <= {one.pid for one in receipt.processes}


def test_a_killed_lower_keeper_takes_only_its_own_tree_along(box: Box, tmp_path: Path) -> None:
    """H10: `kill -9 $PPID` in one command does not free it, and does not end the others."""
    keep = box.spawn(["sleep", "600"])
    go = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"
    killer = box.spawn(["sh", "-c", f"{go}; kill -9 $PPID; setsid sleep 600 & exec sleep 600"])
    (tmp_path / "go").touch()
    assert gone(killer.pid)
    assert alive(keep.pid)
    receipt = box.stop(force=True)
    assert receipt.confirmed and not alive(keep.pid)


def test_a_lower_keeper_killed_at_once_leaves_nothing_and_nobody_waiting(box: Box) -> None:
    """H01, H08: the asker hears of a start that was cut off; what it started is gone."""
    keep = box.spawn(["sleep", "600"])
    with suppress(SpawnError):  # or not: whether its start was heard of is a race
        box.spawn(["sh", "-c", "kill -9 $PPID; setsid sleep 600 & exec sleep 600"])
    assert box.until(lambda: len(box._trees) == 1, 10)
    assert alive(keep.pid)
    receipt = box.stop(force=True)
    assert receipt.confirmed and not alive(keep.pid)


def test_a_grace_is_not_waited_out_when_all_are_gone(box: Box) -> None:
    """H15: each phase ends as soon as all are gone."""
    box.spawn(["sleep", "600"])
    began = time.monotonic()
    receipt = box.stop(grace=60)
    assert receipt.confirmed and time.monotonic() - began < 10
    assert receipt.phases["kill"] == 0.0


def test_what_ignores_term_is_killed_after_the_grace(box: Box, tmp_path: Path) -> None:
    """H12, H15: TERM, a grace, then KILL; the times are on the receipt."""
    tree = box.spawn(["sh", "-c", f"trap '' TERM; touch {tmp_path}/up; while :; do sleep 600; done"])
    assert until(lambda: (tmp_path / "up").exists())
    receipt = box.stop(grace=0.4)
    assert receipt.confirmed and receipt.phases["ask"] >= 0.4 and receipt.phases["kill"] > 0
    assert receipt.processes[0].end in ("signal 9", "gone") and not alive(tree.pid)


def test_a_stopped_process_gets_the_chance_to_end_on_term(box: Box) -> None:
    tree = box.spawn(["sleep", "600"])
    tree.signal(signal.SIGSTOP)
    assert until(lambda: Path(f"/proc/{tree.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    receipt = box.stop(grace=30)
    assert [one.end for one in receipt.processes] == ["signal 15"]


def test_a_second_stop_joins_and_force_cuts_short(box: Box) -> None:
    box.spawn(["sh", "-c", "trap '' TERM; while :; do sleep 600; done"])
    box.ask_stop("first", 600)
    began = time.monotonic()
    receipt = box.stop(force=True)
    assert receipt.confirmed and receipt.reason == "first" and time.monotonic() - began < 10
    assert box.stop() is receipt


def test_an_asker_that_is_interrupted_again_and_again_changes_nothing(box: Box, tmp_path: Path) -> None:
    """H02: the ladder runs in the keeper; whoever waits for it may be torn away any number of times."""
    trap = f"trap '' TERM; touch {tmp_path}/up; setsid sleep 600 & while :; do sleep 600; done"
    tree = box.spawn(["sh", "-c", trap])
    assert until(lambda: (tmp_path / "up").exists())

    def torn(number: int, frame: object) -> None:
        raise InterruptedError(number)

    before = signal.signal(signal.SIGALRM, torn)
    try:
        for _ in range(10):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            with pytest.raises(InterruptedError):
                box.stop(grace=0.6)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gone(tree.pid)
    assert box.stop().confirmed


def test_nothing_is_spawned_in_a_box_that_is_stopping(box: Box) -> None:
    box.stop()
    with pytest.raises(BoxLostError, match="stopped"):
        box.spawn(["true"])


def test_a_command_that_does_not_start_says_why_and_leaves_nothing(box: Box, tmp_path: Path) -> None:
    """H01, H03: a failed spawn leaves no tree, no process and no descriptor."""
    (tmp_path / "data").write_text("not a program")
    for argv, code in ([["no-such-command"], 127], [[str(tmp_path / "data")], 126], [[str(tmp_path)], 126]):
        with pytest.raises(SpawnError) as error:
            box.spawn(argv, stdout=PIPE)  # type: ignore[arg-type]
        assert error.value.code == code and str(argv[0]) in str(error.value)  # type: ignore[index]
    with pytest.raises(SpawnError):
        box.spawn(["true"], cwd=str(tmp_path / "missing"))
    assert box.spawn(["true"]).wait(10) == {"code": 0}


def test_a_command_that_does_not_start_in_time_ends_the_box(zygote: Zygote) -> None:
    """H05: a start that hangs is not waited for, and nothing of it is left."""
    box = zygote.box()
    os.kill(box.keeper, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(SpawnError, match="did not start within"):
        box.spawn(["sleep", "600"], timeout=0.2)
    assert time.monotonic() - began < 20
    assert box.receipt is not None and box.receipt.confirmed and gone(box.keeper)


def test_a_stop_takes_effect_while_a_spawn_is_under_way(zygote: Zygote) -> None:
    """H05: a stop right behind a spawn request, before its answer, ends what was spawned."""
    box = zygote.box()
    spec = {"argv": ["sleep", "600"], "env": dict(os.environ), "session": True}
    tree = box.ask_spawn(spec, [])
    receipt = box.stop(force=True)
    assert receipt.confirmed and tree.pid and not alive(tree.pid)


def test_boxes_stop_in_parallel(plain: Zygote) -> None:
    """H24: the time of stopping ten boxes that ignore TERM does not grow with their number."""
    boxes = [plain.box() for _ in range(10)]
    for box in boxes:
        box.spawn(["sh", "-c", "trap '' TERM; while :; do sleep 600; done"])
    began = time.monotonic()
    for box in boxes:
        box.ask_stop("all", 0.5)
    receipts: list[Receipt] = [box.stop(grace=0.5) for box in boxes]
    assert all(receipt.confirmed for receipt in receipts)
    assert time.monotonic() - began < 4


def test_a_killed_keeper_is_finished_by_the_zygote(box: Box) -> None:
    """H17, H23: the end of a box whose keeper was killed is observed by the zygote, not assumed."""
    tree = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    os.kill(box.keeper, signal.SIGKILL)
    assert box.until(box.over, 10)
    assert box.receipt is not None and box.receipt.confirmed and box.receipt.reason == "keeper died"
    assert not alive(tree.pid)


def test_a_killed_zygote_ends_its_boxes(zygote: Zygote) -> None:
    """H23: whoever dies, the rest end the box; the guard above the zygote sees the last of it."""
    box = zygote.box()
    tree = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    os.kill(_zygote_of(box), signal.SIGKILL)
    assert box.until(box.over, 10)
    assert box.receipt is not None and box.receipt.confirmed and not alive(tree.pid)
    box.stop()


def test_a_zygote_and_a_keeper_killed_together_leave_nothing(zygote: Zygote) -> None:
    """H23: the guard sweeps what both of them kept."""
    box = zygote.box()
    tree = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
    upper = _zygote_of(box)
    os.kill(upper, signal.SIGKILL)
    os.kill(box.keeper, signal.SIGKILL)
    assert box.until(box.over, 10)
    assert box.receipt is not None and box.receipt.confirmed and not alive(tree.pid)
    box.stop()


def test_a_killed_owner_leaves_nothing(zygote: Zygote, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """H23: kill -9 of the owner ends every tree within a second."""
    rung = request.node.callspec.params["zygote"]
    host = f"""
import os, sys
from quell.supervise import Zygote
zygote = Zygote({rung!r})
box = zygote.box()
a = box.spawn(["sh", "-c", "setsid sleep 600 & exec sleep 600"])
b = box.spawn(["sh", "-c", "trap '' TERM; exec sleep 600"])
print(a.pid, b.pid, box.keeper, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", host], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        assert len(pids) == 3 and all(map(alive, pids))
        owner.kill()
        owner.wait()
        assert until(lambda: not any(map(alive, pids)), 3)


def test_after_many_commands_a_box_holds_nothing_of_them(box: Box) -> None:
    """H09: per-command state cleans itself, on both sides."""
    for _ in range(20):
        assert box.spawn(["true"]).wait(10) == {"code": 0}
    assert box.until(lambda: not box._trees, 10)


def _zygote_of(box: Box) -> int:
    text = Path(f"/proc/{box.keeper}/stat").read_text()
    parent = int(text.rpartition(")")[2].split()[1])
    assert Path(f"/proc/{parent}/comm").read_text().strip() == "quell-zygote"
    return parent
