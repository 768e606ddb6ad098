"""A cell with decoys: they look like the box, stand beside it, and are not of it. The box ends, and they live on."""

import os
from pathlib import Path

from tests.matrix.cell import BIRTHS, Cell
from tests.matrix.descendants import DESCENDANTS, Descendant
from tests.matrix.escape import bound, chain_of, command_line, own_uid, state
from tests.matrix.limits import limit
from tests.matrix.oracle import Ear, Oracle
from tests.matrix.plan import Job, Row
from tests.matrix.proc import describe, holders, process, until
from tests.matrix.safety import Program, Result, run_as
from tests.matrix.triggers import TIMEOUT, TRIGGERS


class Decoy:
    """The same argv as the command in the box, with an oracle of its own."""

    def __init__(self, folder: Path, descendant: Descendant) -> None:
        folder.mkdir(parents=True)
        self.name = folder.name
        self.oracle = Oracle(folder / "oracle")
        self._ears = (Ear(folder / "go"), Ear(folder / "act"))  # to which nobody ever says a word
        go, act = (str(ear.path) for ear in self._ears)
        env = {"PATH": os.environ.get("PATH", os.defpath), "QM_FIFO": str(self.oracle.path), "QM_GO": go, "QM_ACT": act}
        self.program = Program(list(descendant.argv), env)
        self._births = descendant.births
        self.pids: set[int] = set()
        self._names: dict[int, str] = {}

    def start(self, row: Row, cgroup: Path | None) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        run_as(row.uid, self.program, null, null, cgroup)
        os.close(null)

    def born(self) -> None:
        def whole() -> bool:
            self.oracle.look()
            return self.oracle.heard("born") >= self._births

        assert until(whole, BIRTHS), f"the decoy {self.name} was not born"
        self.pids = holders(self.oracle.path)
        self._names = {pid: describe(one) for pid in self.pids if (one := process(pid)) is not None}

    def harm(self, stopped: set[int]) -> list[str]:
        """What was done to it."""
        gone = self.pids - holders(self.oracle.path)
        here = [one for pid in self.pids - gone if (one := process(pid)) is not None]
        harm = [f"the decoy {self.name!r} was ended: {self._names.get(pid, pid)}" for pid in gone]
        harm += [f"the decoy {self.name!r} was left stopped: {describe(one)}" for one in here if one.state == "T"]
        return harm + [f"the decoy {self.name!r} was stopped for a while" for _ in self.pids & stopped]


def others(row: Row, job: Job, folder: Path, cgroup: Path | None) -> Result:
    """Before quell, after it, in a session of its own, and quell's own child from before it was quell."""
    trigger, descendant = TRIGGERS[job.trigger], DESCENDANTS[job.descendant]
    before, after, apart, older = (
        Decoy(folder / "decoys" / name, descendant) for name in ("before", "after", "apart", "older child")
    )
    before.start(row, cgroup)
    apart.program.argv.insert(0, "setsid")
    apart.start(row, cgroup)
    command = command_line(row, trigger, folder / "cell", TIMEOUT * 2**job.attempt)
    extra = {"QM_UID": own_uid(row)}
    cell = Cell(folder / "cell", command, descendant, row.uid, cgroup, extra, older.program)
    after.start(row, cgroup)
    decoys = (before, after, apart, older)
    for decoy in decoys:
        decoy.born()
        cell.strangers |= decoy.pids
    chain = chain_of(cell, row, trigger) if cell.born() else None
    if chain is None:
        return {"problems": [f"quell did not start its command: {cell.stderr()}"], "late": trigger.timeout}
    cell.attack(wait=False)
    trigger.act(chain)
    cell.wait(cell.over, bound(row, job))
    problems = [harm for decoy in decoys for harm in decoy.harm(cell.stopped)]
    if not cell.over() and not limit(job.descendant, job.trigger, row):
        problems.append(f"beside decoys, survivors: {state(cell)}")
    return {"problems": problems}
