"""Cells in which a stop cannot be confirmed, or only just: who should end the box, or somebody in it, is held fast.

What is held is let go at the end whatever happens, and must then be gone, as everything else.
"""

import contextlib
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.matrix.cell import Cell, outcome, quell_exec
from tests.matrix.descendants import DESCENDANTS, WRITER
from tests.matrix.plan import Job, Row
from tests.matrix.proc import everybody, holders, name, wait_for_state
from tests.matrix.safety import Result
from tests.matrix.triggers import GRACE, SLACK, Chain, send

FREEZER = Path("/sys/fs/cgroup/freezer")
"""The freezer of cgroup v1: what it holds does not act on SIGKILL, as a stopped process or a frozen v2 cgroup does."""
LADDER = SLACK * (GRACE + 5)
"""Seconds until quell must have said its last word: the grace, the kill, and the wait for those who do not answer."""

Held = AbstractContextManager[set[int]]


@contextlib.contextmanager
def frozen(*pids: int) -> Iterator[set[int]]:
    for pid in pids:
        send(pid, signal.SIGSTOP)
        wait_for_state(pid, "TZ")
    try:
        yield set()
    finally:
        for pid in pids:
            send(pid, signal.SIGCONT)


@contextlib.contextmanager
def in_the_freezer(cell: Cell) -> Iterator[set[int]]:
    """Its sleep cannot be killed."""
    assert cell.wait(lambda: bool(_sleepers(cell)), 5.0), "nobody sleeps"
    [sleeper] = _sleepers(cell)
    group = FREEZER / cell.folder.parent.name
    group.mkdir()
    (group / "cgroup.procs").write_text(str(sleeper))
    (group / "freezer.state").write_text("FROZEN")
    try:
        assert cell.wait(lambda: (group / "freezer.state").read_text() == "FROZEN\n", 5.0), (
            "the freezer does not freeze"
        )
        yield {sleeper}
    finally:
        (group / "freezer.state").write_text("THAWED")
        cell.wait(lambda: not (group / "cgroup.procs").read_text(), 5.0)
        group.rmdir()


@contextlib.contextmanager
def writing_to_a_frozen_disk(cell: Cell) -> Iterator[set[int]]:
    """Its writer waits, uninterruptibly, for a file system that takes no writes."""
    disk = cell.folder.parent / "disk"
    _command("fsfreeze", "--freeze", str(disk))
    try:
        cell.act.tell()
        assert cell.wait(lambda: bool(_writers()), 5.0), "nobody waits for the disk"
        yield _writers()
    finally:
        _command("fsfreeze", "--unfreeze", str(disk))


def make_disk(folder: Path) -> None:
    """A small file system that everybody may write to. Its mount is the cell's own and goes with it."""
    disk, image = folder / "disk", folder / "image"
    disk.mkdir(parents=True)
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    _command("mkfs.ext4", "-q", str(image))
    _command("mount", "-o", "loop", str(image), str(disk))
    disk.chmod(0o777)


def _sleepers(cell: Cell) -> list[int]:
    return [pid for pid in holders(cell.oracle.path) if name(pid) == "sleep"]


def _writers() -> set[int]:
    return {one.pid for one in everybody() if one.state == "D" and name(one.pid) == "sh"}


def _command(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, timeout=20)


Hold = Callable[[Cell, Chain], Held]

HOLDS: dict[str, tuple[bool, Hold]] = {
    # what is held: (whether quell must say `unconfirmed`, how)
    "keeper": (False, lambda cell, chain: frozen(chain.keeper)),
    "keeper and zygote": (True, lambda cell, chain: frozen(chain.keeper, chain.zygote)),
    "a process in the freezer": (True, lambda cell, chain: in_the_freezer(cell)),
    "a process that waits for a disk": (True, lambda cell, chain: writing_to_a_frozen_disk(cell)),
}


def stuck(row: Row, job: Job, folder: Path, cgroup: Path | None) -> Result:
    unconfirmed, hold = HOLDS[job.trigger]
    disk = job.trigger.endswith("disk")
    if disk:
        make_disk(folder)
    descendant = WRITER if disk else DESCENDANTS[job.descendant]
    extra = {"QM_DISK": str(folder / "disk")}
    command = [] if row.rung == "bare" else quell_exec(row, folder / "cell", GRACE)
    cell = Cell(folder / "cell", command, descendant, row.uid, cgroup, extra)
    if row.rung == "bare":
        return _bare(cell, hold)
    chain = cell.chain() if cell.born() else None
    if chain is None:
        return {"problems": [f"quell did not start its command: {outcome(cell.status)} {cell.stderr()}"]}
    box = holders(cell.oracle.path)
    with hold(cell, chain) as held:
        send(cell.quell, signal.SIGTERM)
        cell.wait(lambda: cell.status is not None, LADDER)
        problems = _unconfirmed(cell, held or box) if unconfirmed else _confirmed(cell)
    if not cell.wait(cell.over, LADDER):
        problems.append(f"let go, they are not gone: {cell.survivors()}")
    return {"problems": problems, "stderr": cell.stderr(), "receipt": cell.receipt()}


def _bare(cell: Cell, hold: Hold) -> Result:
    """Without quell: what is held lives on after SIGKILL, and dies of it when let go."""
    assert cell.born()
    with hold(cell, Chain(cell.quell)) as held:
        for pid in {cell.quell} | held:
            send(pid, signal.SIGKILL)
        cell.wait(lambda: False, 0.5)
        problems = [] if {one.pid for one in cell.left()} == held else [f"{held} held, {cell.survivors()} left"]
    if not cell.wait(cell.over, LADDER):
        problems.append(f"let go, they are not gone: {cell.survivors()}")
    return {"problems": problems}


def _unconfirmed(cell: Cell, held: set[int]) -> list[str]:
    """Exit 1, and everybody who could not be ended is named, on stderr and on the receipt."""
    said, receipt = cell.stderr(), cell.receipt()
    named = {int(number) for number in re.findall(r"(\d+) \(", said)}
    problems = [] if cell.status == 1 else [f"quell's end was {outcome(cell.status)}, not exit 1: {said}"]
    if "quell: unconfirmed: " not in said or not held <= named:
        problems.append(f"{sorted(held)} would not end, and quell said: {said or 'nothing'}")
    if receipt.get("verdict") != "unconfirmed" or not held <= set(receipt.get("survivors", ())):
        problems.append(f"{sorted(held)} would not end, and the receipt says {receipt or 'nothing'}")
    return problems


def _confirmed(cell: Cell) -> list[str]:
    said, receipt = cell.stderr(), cell.receipt()
    problems = [] if cell.status not in (None, 1) else [f"quell's end was {outcome(cell.status)}: {said}"]
    if cell.early or not cell.oracle.gone:
        problems.append(f"quell ended before its box was empty: {cell.survivors()}")
    if "unconfirmed" in said or receipt.get("verdict") != "confirmed":
        problems.append(f"all are gone, and quell said: {said}, {receipt}")
    return problems
