"""The n-th fault at every call of a supervisor's start, spawn and stop: nothing leaks, and the error is clear."""

import asyncio
import contextlib
import os
from functools import partial

import pytest

import quell
from quell.errors import QuellError
from quell.testing import Faults, census
from quell.testing.faults import KINDS

from .conftest import gone, own_cgroups, rungs, until
from .loops import LOOPS, run_on

QUICK = quell.Ladder(ask=0.3, term=0.3)


async def life(rung: str, pids: list[int]) -> list[quell.Receipt]:
    """A supervisor's whole life, with a box of the supervisor and one of a scope."""
    receipts = []
    async with quell.Supervisor(contain=rung, ladder=QUICK) as sup:
        process = await sup.spawn(["cat"], stdin=quell.PIPE, stdout=quell.PIPE)
        pids.append(process.pid)
        scope = sup.scope("boxed", box=True)
        pids.append((await scope.spawn(["sleep", "60"], stdout=quell.PIPE)).pid)
        alone = await scope.spawn(["sleep", "60"], stdin=quell.PTY)
        pids.append(alone.pid)
        await alone.stop(grace=0.1)
        with open(os.devnull, "wb") as sink:  # noqa: ASYNC230  it is no disk
            pids.append((await scope.spawn(["sleep", "60"], stdout=sink, stderr=quell.STDOUT)).pid)
        await scope.enter(contextlib.AsyncExitStack())
        await process.tree()
        await process.communicate(b"x")
        receipts.append(await scope.stop())
    if sup.receipt is not None:
        receipts.append(sup.receipt)
    return receipts


async def under(faults: Faults, rung: str, pids: list[int]) -> str:
    """What was said of a life with this fault in it; the loop itself was made before."""
    loop = asyncio.get_running_loop()

    def turn() -> None:
        """asyncio drops a wake-up from a thread whose write to its own pipe fails: the loop must turn by itself."""
        loop.call_later(0.02, turn)

    turn()
    with faults:
        try:
            receipts = await life(rung, pids)
        except (QuellError, OSError) as error:
            return f"{type(error).__name__}: {error}"
        return str([receipt.sentence() for receipt in receipts if not receipt.confirmed])


# Every kind on the best rung; what differs on the others is the keepers' part, which test_faults.py has on each.
CASES = [*((kind, rungs()[0]) for kind in KINDS), ("cgroup", "cgroup"), ("spawn", "cgroup"), ("write", "subreaper")]


@pytest.mark.parametrize(("kind", "rung"), [case for case in CASES if case[1] in rungs()])
def test_a_fault_at_any_call_leaves_nothing(kind: str, rung: str) -> None:
    """H03: whatever fails, everything is as it was. H17: a stop says what it saw."""
    fired = 0
    for faults in Faults.each(kind):
        before = census(kinds=("task", "thread", "fd", "socket", "descendant"))
        pids: list[int] = []
        said = run_on(LOOPS["asyncio"], partial(under, faults, rung, pids))
        where = f"{faults.fired} ({said})"
        assert said.startswith("[") or len(said.partition(": ")[2]) > 10, where
        assert all(gone(pid) for pid in pids), where
        assert [str(leak) for leak in before.leaks(settle=10.0)] == [], where
        assert until(lambda: own_cgroups() == []), where
        fired += faults.fired is not None
    meets = {"namespace": rung == "pidns", "cgroup": rung == "cgroup", "fsync": False}  # nothing here is synced
    assert fired or not meets.get(kind, True), "the faults were never met"
