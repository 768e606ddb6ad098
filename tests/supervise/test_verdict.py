"""Nothing is confirmed that was not seen, and one asker's mistake costs nobody else."""

import asyncio
import contextlib
import enum
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.supervise.state import StateFolder

from .conftest import alive, gone
from .loops import LOOPS, outcome, run_on
from .test_control import in_thread

SHORT = quell.Ladder(ask=0.3, term=0.3)


def within(body: Any, **settings: Any) -> quell.Supervisor:
    async def main() -> quell.Supervisor:
        async with quell.Supervisor(ladder=SHORT, **settings) as sup:
            await body(sup)
        return sup

    return run_on(LOOPS["asyncio"], main)


class Reason(enum.StrEnum):
    ENOUGH = "enough"


class Seconds(float):
    pass


def test_reasons_and_graces_of_other_types_end_the_tree_or_are_refused() -> None:
    """H17: a word that cannot be sent is no stop."""

    async def body(sup: quell.Supervisor) -> None:
        for reason, grace in ((Reason.ENOUGH, 0.1), ("x", Seconds(0.1)), ("x", 0)):
            scope = sup.scope("x")
            process = await scope.spawn(["sleep", "60"])
            receipt = await scope.stop(reason=reason, grace=grace)
            assert receipt.confirmed and gone(process.pid) and type(receipt.reason) is str
        process = await sup.spawn(["sleep", "60"])
        for wrong in ("1", float("nan"), -1, True):
            for stop in (sup.stop, process.stop):
                with pytest.raises(quell.UsageError, match="a grace is a number of seconds"):
                    await stop(grace=wrong)  # type: ignore[arg-type]  # what is refused
        with pytest.raises(quell.UsageError, match="a reason is text"):
            await process.stop(reason=3)  # type: ignore[arg-type]  # what is refused
        assert alive(process.pid) and sup.stopping is None

    within(body)


def test_a_fault_of_our_own_in_a_stop_is_no_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    """H17: the trees are ended all the same, nobody waits for ever, and the receipt says what happened."""

    async def body(sup: quell.Supervisor) -> None:
        from quell.supervise.stopping import Stop

        scope = sup.scope("x")
        process = await scope.spawn(["sleep", "60"])

        async def broken(self: Stop, of: quell.Scope) -> None:
            raise RuntimeError("planted")

        with monkeypatch.context() as patched:
            patched.setattr(Stop, "_quiet", broken)
            receipt = await scope.stop()
        assert not receipt.confirmed and gone(process.pid)
        assert [one.name for one in receipt.requests] == ["this stop"]

    within(body)


def test_streams_that_are_not_there_cost_nobody_else() -> None:
    async def body(sup: quell.Supervisor) -> None:
        sibling = await sup.spawn(["sleep", "60"])
        both = await sup.spawn(["sh", "-c", "echo out; echo err >&2"], stdout=quell.PIPE, stderr=quell.STDOUT)
        assert await both.communicate() == (b"out\nerr\n", b"")
        before = len(os.listdir("/proc/self/fd"))
        closed = os.fdopen(os.open("/dev/null", os.O_RDONLY), "rb")
        closed.close()
        for _ in range(3):
            for wrong in (999, closed):
                with pytest.raises(quell.SpawnError, match="true: could not be started"):
                    await sup.spawn(["true"], stdin=wrong, stdout=quell.PIPE)
            for wrong in (quell.STDOUT, -77):
                with pytest.raises(quell.UsageError, match="there is no stream"):
                    await sup.spawn(["true"], stdout=wrong)
        odd: list[dict[str, Any]] = [{"limit": 0}, {"output_cap": -1}]
        for options in odd:
            with pytest.raises(quell.UsageError, match="a number of bytes"):
                await sup.spawn(["true"], **options)
        assert len(os.listdir("/proc/self/fd")) == before
        assert alive(sibling.pid) and not (set(sup.processes) - {sibling, both})  # whose keeper may still be ending

    within(body)


def test_arguments_that_are_not_words_cost_nobody_else() -> None:
    async def body(sup: quell.Supervisor) -> None:
        sibling = await sup.spawn(["sleep", "60"])
        wrong: list[dict[str, Any]] = [
            {"argv": ["sleep", 600]},
            {"argv": ["true"], "umask": "x"},
            {"argv": ["true"], "nice": object()},
            {"argv": ["true"], "rlimits": {"RLIMIT_CPU": ("a", 1)}},
        ]
        for options in wrong:
            with pytest.raises(quell.UsageError, match="cannot be started so"):
                await sup.spawn(**options)
        for options in ({"env": {"A": "\0"}}, {"rlimits": {"BOGUS": (1, 1)}}):
            assert await outcome(sup.spawn(["true"], **options)) == "SpawnError"
        assert await (await sup.spawn([Path("/bin/true"), b"x"])).wait() == 0  # type: ignore[list-item]  # os.PathLike
        assert alive(sibling.pid)

    within(body)


def test_every_closer_is_closed_though_others_end_meanwhile() -> None:
    """H17: none is skipped, and each is on the receipt."""

    async def body(sup: quell.Supervisor) -> None:
        closed: list[str] = []

        @contextlib.asynccontextmanager
        async def noting(name: str, slow: float = 0) -> AsyncIterator[None]:
            await asyncio.sleep(slow)
            try:
                yield
            finally:
                await asyncio.sleep(0.01)
                closed.append(name)

        scope = sup.scope("x")
        asker = scope.task(scope.enter(noting("never", 60)))
        await asyncio.sleep(0)
        for name in "abc":
            await scope.enter(noting(name))
        receipt = await scope.stop()
        assert receipt.confirmed and closed == ["c", "b", "a"] and asker.cancelled() and len(receipt.closers) >= 3

    within(body)


@pytest.mark.parametrize("alone", [True, False], ids=["the process first", "the scope"])
def test_who_cannot_be_ended_is_named_for_a_scope_without_a_box_too(alone: bool) -> None:
    """H17: keeper and zygote are frozen; the second stop does not forget what the first one saw."""
    held: list[int] = []

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        process = await scope.spawn(["sleep", "60"])
        assert process._box is not None
        held.extend((process._box.keeper, process._box.zygote_pid, process.pid))
        for pid in held[:2]:
            os.kill(pid, signal.SIGSTOP)
        try:
            if alone:
                assert (await process.stop(grace=0.1)).survivors == [process.pid]
            receipt = await scope.stop(grace=0.1)
            assert not receipt.confirmed and receipt.survivors == [process.pid] and alive(process.pid)
        finally:
            for pid in held[:2]:
                os.kill(pid, signal.SIGCONT)

    sup = within(body, contain="subreaper")
    assert sup.receipt is not None and not sup.receipt.confirmed  # what was seen then stays said
    assert gone(held[2])


def test_a_box_that_is_still_ending_is_not_forgotten_for_a_new_one() -> None:
    """H06, H17: its keeper is frozen; the next command has another box, and the stop is about both."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x", box=True)
        process = await scope.spawn(["sleep", "60"])
        box = process._box
        assert box is not None
        os.kill(box.keeper, signal.SIGSTOP)
        stopping = asyncio.ensure_future(process.stop(grace=0.1))
        while not box.stopping():  # noqa: ASYNC110  another thread of thought: the box has no event for it
            await asyncio.sleep(0.02)
        other = await scope.spawn(["sleep", "60"])
        receipt = await scope.stop(grace=0.1)
        assert receipt.confirmed and gone(process.pid) and gone(other.pid)
        await stopping

    within(body, contain="subreaper")


def test_starts_at_the_same_time_do_not_take_each_others_folders(state_dir: Path) -> None:
    """H51: in several processes and in several threads."""
    program = "from quell.supervise.state import StateFolder\nfor _ in range(60): StateFolder(None).close()"
    starts = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [one.wait(60) for one in starts] == [0, 0, 0]
    owners: list[StateFolder] = []
    refused: list[Exception] = []

    def take() -> None:
        try:
            owners.append(StateFolder(str(state_dir / "named")))
        except quell.StateInUseError as error:
            refused.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(owners), len(refused)) == (1, 7)
    owners[0].close()


def test_a_state_directory_that_breaks_meanwhile_holds_up_nobody(state_dir: Path) -> None:
    async def body(sup: quell.Supervisor) -> None:
        await sup.spawn(["sleep", "60"])
        ledger = state_dir / "named" / "ledger"
        for entry in ledger.iterdir():
            entry.unlink()
        ledger.rmdir()
        ledger.write_text("")

    sup = within(body, state_dir=state_dir / "named")
    assert sup.receipt is not None and sup.receipt.confirmed


def test_the_shorter_grace_holds_while_the_loop_is_blocked() -> None:
    """H25: a tree that was given a long grace before."""

    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        slow = asyncio.ensure_future(process.stop(grace=60))
        await asyncio.sleep(0.05)
        asked = in_thread(lambda: quell.ask_stop(sup.state_dir, grace=0.2))
        end = time.monotonic() + 20
        while not asked.done() and time.monotonic() < end:
            time.sleep(0.02)  # noqa: ASYNC251  the loop is blocked on purpose
        assert asked.done() and not alive(process.pid)
        await asyncio.wait([slow])

    within(body)


def test_who_stops_the_scope_of_its_own_block_goes_on() -> None:
    """No cancel that nobody sent: the host is no member, and what it does afterwards is not the scope's."""

    async def body(sup: quell.Supervisor) -> None:
        async with sup.scope("block") as scope:
            await scope.stop()
            assert await asyncio.to_thread(lambda: 1) == 1
            assert await asyncio.create_task(asyncio.sleep(0, 2)) == 2
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.sleep(0))
        await sup.stop()
        assert await asyncio.to_thread(lambda: 3) == 3

    within(body)


def test_a_fault_in_the_thread_for_stops_is_answered_and_costs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sleep", "60"])
        monkeypatch.setattr(sup, "plan_stop", lambda *_: 1 / 0)
        with pytest.raises(quell.UsageError, match="the stop could not be begun: ZeroDivisionError"):
            await asyncio.wrap_future(in_thread(lambda: quell.ask_stop(sup.state_dir)))
        monkeypatch.undo()
        assert alive(process.pid)
        assert (await asyncio.wrap_future(in_thread(lambda: quell.ask_stop(sup.state_dir)))).confirmed

    within(body)


LEAVING = """
import os, quell, signal, sys, threading
try:
    with quell.supervise(ladder=quell.Ladder(ask=0.2, term=2), state_dir=sys.argv[1]) as s:
        process = s.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
        s.do(process._process.stdout.readline())
        for seconds in (0.3, 0.4):
            threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
except KeyboardInterrupt:
    print("gone" if not os.path.exists(f"/proc/{process.pid}") else "alive", s.receipt.verdict)
with quell.supervise(state_dir=sys.argv[1]):
    print("again")
"""


def test_ctrl_c_while_a_script_leaves_its_block_ends_everything(tmp_path: Path) -> None:
    """H22, H61."""
    done = subprocess.run([sys.executable, "-c", LEAVING, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.stdout == "gone confirmed\nagain\n", done.stderr


def test_a_killed_zygote_costs_no_descriptors_for_good() -> None:
    """H09."""

    async def body(sup: quell.Supervisor) -> None:
        counts = []
        for _ in range(5):
            process = await sup.spawn(["sleep", "60"])
            assert process._box is not None
            os.kill(process._box.zygote_pid, signal.SIGKILL)
            await outcome(process.wait())
            await (await sup.spawn(["true"])).wait()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[-1] - counts[1] <= 3, counts

    within(body)
