"""The n-th fault at every call of spawn and stop: nothing leaks, nothing hangs, and the error is clear."""

import ctypes
import gc
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from quell.errors import QuellError
from quell.supervise import PIPE, Box, Receipt, Zygote
from quell.supervise.keeper.crowd import Descent
from quell.supervise.keeper.linux import PR_SET_CHILD_SUBREAPER, become_subreaper
from quell.supervise.keeper.proc import Proc
from quell.testing import Faults
from quell.testing.faults import KINDS

from .conftest import BOUND, own_cgroups, rungs, until

GRACE = 0.2
"""Seconds: a fault may cost a polite signal, and with it the whole grace."""

LADDER = GRACE + 2 + 1
"""Seconds after which a stop has a verdict, whoever does not answer."""

T = TypeVar("T")


@pytest.fixture(autouse=True)
def orphans_are_ours() -> Iterator[None]:
    """Whoever is left without a parent becomes a child of this process, and is seen."""
    become_subreaper()
    yield
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


class Story:
    """A box and commands in it, begun and ended. `wrong` says what should not have happened."""

    def __init__(self, rung: str, ledger: Path, faults: Faults) -> None:
        self.wrong: list[str] = []
        self.receipts: list[Receipt] = []
        self._rung = rung
        self._ledger = ledger
        self._faults = faults
        self._mark = f".{int.from_bytes(os.urandom(4), 'big'):010}"  # in the argv of every command of this story
        self._before = holdings()

    def tell(self, crowded: bool) -> None:
        zygote = self._try(lambda: Zygote(self._rung, pool=int(crowded)))
        if zygote is None:
            return
        box = self._try(zygote.box)
        if box is not None:
            self._tell_of(box, crowded)
        self._try(zygote.close)

    def _tell_of(self, box: Box, crowded: bool) -> None:
        """`crowded`: with a second command beside the first, and a third."""
        sleeper = f"sleep 60{self._mark}"
        command = ["sh", "-c", f"echo up; {sleeper} & {sleeper}; :"]
        first = self._try(lambda: box.spawn(command, stdout=PIPE))
        self._read(first and first.stdout)
        if crowded:
            command[2] = command[2].replace("sleep 60", "sleep 61")
            second = self._try(lambda: box.spawn(command, stdout=PIPE, nice=1))
            self._read(second and second.stdout)
            if second is not None:
                self._judge(self._try(lambda: second.stop(grace=GRACE)), f"sleep 61{self._mark}")
            third = self._try(lambda: box.spawn(["true"]))
            if third is not None:
                self._try(lambda: third.wait(BOUND))
        elif first is not None:
            self._judge(self._try(lambda: first.stop(grace=GRACE)), sleeper)
        self._judge(self._try(lambda: box.stop(grace=GRACE)), self._mark)

    def _try(self, call: Callable[[], T]) -> T | None:
        """Either it works, or it says in a sentence why not; in time."""
        began = time.monotonic()
        try:
            return call()
        except QuellError as error:
            if not re.search(r"zygote|keeper|box|rung|could not be started", str(error)):
                self.wrong.append(f"{error!r} does not say what failed")
        except OSError as error:  # the asker's own descriptors and pipes: only such, and as the kernel says it
            fired = self._faults.fired or ")"
            if fired.endswith(")") or not error.strerror:
                self.wrong.append(f"{error!r} came out, but the fault was {fired}")
        finally:
            if time.monotonic() - began > LADDER + BOUND:
                self.wrong.append(f"a call took {time.monotonic() - began:.1f} s")
        return None

    def _read(self, stream: object) -> None:
        if stream is not None and stream.readline() not in (b"up\n", b""):  # type: ignore[attr-defined]
            self.wrong.append("a command's output was lost")

    def _judge(self, receipt: Receipt | None, mark: str) -> None:
        if receipt is None:
            return
        self.receipts.append(receipt)
        with self._faults.paused():
            unnamed = set(living(mark))
        if not receipt.confirmed:
            unnamed -= set(receipt.survivors)
        if unnamed:
            self.wrong.append(f"{receipt!r} does not name {unnamed}, who live")

    def end(self) -> None:
        """Everybody and everything of it must be gone; whoever is not is ended here."""
        if self._left() and not until(lambda: not self._left(gc.collect())):
            self.wrong.append(f"left behind: {self._left()}")
            for pid in [*living(self._mark), *children()]:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL)
        entries = list(self._ledger.glob("*"))
        if entries and all(receipt.confirmed for receipt in self.receipts):
            self.wrong.append(f"in the ledger of confirmed boxes: {entries}")

    def _left(self, _: object = None) -> list[str]:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return [*holdings() - self._before, *map(str, living(self._mark)), *own_cgroups()]


def children() -> list[int]:
    return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]


def holdings() -> set[str]:
    """The children and the open files of this process."""
    found = {f"child {pid}" for pid in children()}
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the listing's own
            found.add(f"fd {name} of {os.readlink(f'/proc/self/fd/{name}')}")
    return found


def living(mark: str) -> list[int]:
    """The processes that have this in their argv, wherever they are; zombies have none."""
    proc = Proc()
    try:
        return [pid for pid in proc.everybody() if mark in " ".join(proc.argv(pid))]
    finally:
        proc.close()


def tell_all(kind: str, rung: str, ledger: Path, *, crowded: bool) -> None:
    for faults in Faults.each(kind):
        story = Story(rung, ledger, faults)
        try:
            with faults:
                story.tell(crowded)
        finally:
            story.end()
        assert story.wrong == [], f"{kind} {faults.n} on {rung}, fired {faults.fired}"
    print(f"{kind} on {rung}: {faults.n - 1} faults, {faults.calls} calls in a story without any")


@pytest.mark.parametrize("rung", rungs())
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "fd"])
def test_a_fault_at_any_call_leaves_nothing_and_is_told(kind: str, rung: str, state_dir: Path) -> None:
    """H01, H03, H17: whatever the kernel refuses, and wherever, nothing is left, and no stop says what is not so."""
    tell_all(kind, rung, state_dir / "ledger", crowded=True)


@pytest.mark.parametrize("rung", rungs())
def test_a_descriptor_refused_anywhere_leaves_nothing_and_is_told(rung: str, state_dir: Path) -> None:
    """H03, H17: the same for the calls that need a descriptor, of which there are many."""
    tell_all("fd", rung, state_dir / "ledger", crowded=False)


@pytest.mark.soak
@pytest.mark.parametrize("rung", rungs())
def test_a_descriptor_refused_among_several_commands_leaves_nothing(rung: str, state_dir: Path) -> None:
    """H03, H17: with commands beside each other, and keepers below keepers."""
    tell_all("fd", rung, state_dir / "ledger", crowded=True)


def test_rungs_that_need_no_namespace_work_where_there_is_none() -> None:
    """H16: a container that filters system calls refuses even a namespace call that asks for nothing."""
    with Faults("namespace", every=True) as faults, Zygote("subreaper") as zygote:
        assert zygote.box().spawn(["true"]).wait(BOUND) == {"code": 0}
    assert faults.fired is not None


def test_whom_a_keeper_cannot_see_is_not_gone() -> None:
    """H17: without a descriptor to look with, nobody is declared dead."""
    crowd = Descent(Proc())
    with subprocess.Popen(["sleep", "60"]) as child:
        crowd.skip = {1}
        with Faults("fd", every=True):
            assert not crowd.empty()
        child.kill()
    assert crowd.empty()
    crowd.proc.close()


def test_a_stop_without_any_descriptor_says_so_and_what_it_leaves_ends_later(state_dir: Path) -> None:
    """H17: a machine out of descriptors: the verdict is `unconfirmed`; when there are some again, all are ended."""
    calls = stop_without_descriptors(1 << 30)[1]
    receipt, _ = stop_without_descriptors(calls + 1)
    assert not receipt.confirmed and receipt.survivors


def stop_without_descriptors(n: int) -> tuple[Receipt, int]:
    """The receipt, and how many descriptors the keepers had asked for when the stop began."""
    with Faults("fd", n, every=True, within="keepers") as faults:
        zygote = Zygote("subreaper", pool=0)
        tree = zygote.box().spawn(["sleep", "60"])
        calls = faults.calls
        receipt = tree._box.stop(force=True)
        assert receipt.confirmed or tree.pid in receipt.survivors
    zygote.close()
    assert until(lambda: living("sleep 60") == [] or tree.pid not in living("sleep 60"))
    return receipt, calls


def test_what_is_left_behind_and_what_is_not_so_would_be_seen(state_dir: Path) -> None:
    """H56: the story itself is seen to fail."""
    (state_dir / "ledger").mkdir()
    with Faults("fsync") as faults, ExitStack() as stack:
        story = Story("subreaper", state_dir / "ledger", faults)
        sleeper = stack.enter_context(subprocess.Popen(["sleep", f"60{story._mark}"]))
        stack.callback(sleeper.kill)
        untrue = Receipt.from_json(
            '{"version": 1, "reason": "stop", "confirmed": true, "rung": "subreaper", "command": [], "exit": null,'
            ' "processes": [], "survivors": [], "signalled": 0, "phases": {}, "started": ""}'
        )
        assert until(lambda: living(story._mark) != [])
        story._judge(untrue, story._mark)
        story._try(lambda: os.close(-1))
        story._try(unclear)
        assert [text.partition(",")[0] for text in story.wrong] == [
            f"<Receipt confirmed reason='stop' rung=subreaper processes=0> does not name {{{sleeper.pid}}}",
            "OSError(9",
            "QuellError('') does not say what failed",
        ]
        assert f"child {sleeper.pid}" in story._left()


def unclear() -> None:
    raise QuellError("")
