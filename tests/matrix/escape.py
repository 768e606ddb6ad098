"""The cell of the escape matrix: births, a trigger, and then nobody, by the oracle's word and within the bound."""

import sys
import time
from pathlib import Path

from tests.matrix.cell import BIRTHS, Cell, outcome, quell_exec
from tests.matrix.descendants import DESCENDANTS
from tests.matrix.limits import limit
from tests.matrix.plan import OWN_UID, Job, Row
from tests.matrix.safety import Result
from tests.matrix.triggers import TIMEOUT, TRIGGERS, Chain, Trigger

LIMITED = 1.0
"""Seconds for a cell that is a listed limit: enough to see whether it shows."""
HOST = Path(__file__).with_name("host.py")


def escape(row: Row, job: Job, folder: Path, cgroup: Path | None) -> Result:
    trigger = TRIGGERS[job.trigger]
    command = command_line(row, trigger, folder, TIMEOUT * 2**job.attempt)
    cell = Cell(folder, command, DESCENDANTS[job.descendant], row.uid, cgroup, {"QM_UID": own_uid(row)})
    began = time.monotonic()
    if not cell.born():
        return {"problems": [f"not all born: {state(cell)}"], "late": trigger.timeout}
    chain = chain_of(cell, row, trigger)
    if chain is None:
        return {"problems": [f"no zygote and keeper found below quell: {state(cell)}"], "late": trigger.timeout}
    if not trigger.timeout:
        began = time.monotonic()
    cell.attack(wait=job.trigger in ("CMD ends", "timeout"))
    trigger.act(chain)
    cell.wait(cell.over, bound(row, job))
    seconds = (cell.oracle.gone_at or time.monotonic()) - began
    return {
        "problems": _problems(cell, job, trigger),
        "leaked": not cell.oracle.gone,
        "seconds": round(seconds, 3),
        "tidy": not trigger.kills and not cell.descendant.acts,  # nobody of quell was killed: its cgroups must be gone
    }


def bound(row: Row, job: Job) -> float:
    """Seconds from the trigger until all must be gone."""
    trigger = TRIGGERS[job.trigger]
    seconds = LIMITED if limit(job.descendant, job.trigger, row) else trigger.bound
    return seconds + (TIMEOUT * 2**job.attempt if trigger.timeout else 0)


def own_uid(row: Row) -> str:
    """Under whom `kill -9 -1` runs when quell is root and shares its PID namespace with the command."""
    return str(OWN_UID) if row.uid == 0 and row.rung in ("cgroup", "subreaper") else ""


def chain_of(cell: Cell, row: Row, trigger: Trigger) -> Chain | None:
    """Whom the trigger is for. A host's own fork is none of quell's and lives on."""
    if trigger.host:
        note = cell.folder / "home" / "fork"
        assert cell.wait(note.exists, BIRTHS), f"the host did not fork: {cell.stderr()}"
        cell.strangers.add(int(note.read_text()))
    if row.rung == "bare" or trigger.host:
        return Chain(cell.quell, tell_command=cell.go.tell)
    return cell.chain()


def command_line(row: Row, trigger: Trigger, folder: Path, timeout: float) -> list[str]:
    if row.rung == "bare":
        return []
    if trigger.host:
        return [sys.executable, str(HOST), row.rung, str(folder / "home" / "fork")]
    return quell_exec(row, folder, trigger.grace, timeout if trigger.timeout else None)


def _problems(cell: Cell, job: Job, trigger: Trigger) -> list[str]:
    problems = []
    if not cell.oracle.gone:
        problems.append(f"survivors: {state(cell)}")
    elif not cell.over():
        problems.append(f"the descendants are gone, but not all of quell: {state(cell)}")
    if cell.early:
        problems.append(f"quell ended ({outcome(cell.status)}) before its box was empty")
    if "unconfirmed" in cell.stderr():
        problems.append(f"quell said: {cell.stderr()}")
    if not trigger.kills and not cell.descendant.acts:
        expected = {"CMD ends": 0, "timeout": 124}.get(job.trigger, cell.status)
        if cell.status != expected:
            problems.append(f"quell's end was {outcome(cell.status)}, not exit {expected}: {cell.stderr()}")
    if not trigger.kills and job.descendant.startswith("pkill") and cell.status == -9:
        problems.append("quell itself was hit by `pkill -9 -f python`")
    return problems


def state(cell: Cell) -> str:
    lines = [*cell.survivors(), f"quell: {outcome(cell.status)}", f"stderr: {cell.stderr() or 'nothing'}"]
    return f"{len(lines) - 2} processes\n      " + "\n      ".join(lines[-12:])
