"""A process gives its streams, its end and its tree, and waits for nobody but itself."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import quell

from .conftest import alive, gone
from .loops import LOOPS, outcome, run_on, until

Body = Callable[[quell.Supervisor], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def within(body: Body) -> None:
        async def main() -> None:
            async with quell.Supervisor(ladder=quell.Ladder(ask=0.3, term=0.5)) as sup:
                await body(sup)

        run_on(LOOPS[request.param], main)

    return within


def test_streams_are_asyncio_streams(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        script = "read line; echo out $line; echo err $line >&2"
        process = await sup.spawn(["sh", "-c", script], stdin=quell.PIPE, stdout=quell.PIPE, stderr=quell.PIPE)
        assert isinstance(process.stdin, asyncio.StreamWriter)
        assert isinstance(process.stdout, asyncio.StreamReader) and isinstance(process.stderr, asyncio.StreamReader)
        process.stdin.write(b"hello\n")
        await process.stdin.drain()
        assert (await process.stdout.readline(), await process.stderr.readline()) == (b"out hello\n", b"err hello\n")
        assert await process.wait() == 0 == process.returncode
        assert await process.stdout.read() == b""
        process.stdin.close()
        await process.stdin.wait_closed()

    run(body)


def test_much_goes_in_and_comes_out_with_flow_control(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        data = os.urandom(1 << 20) * 3
        process = await sup.spawn(["cat"], stdin=quell.PIPE, stdout=quell.PIPE)
        assert process.stdin is not None and process.stdout is not None

        async def feed(writer: asyncio.StreamWriter) -> None:
            for start in range(0, len(data), 100_000):
                writer.write(data[start : start + 100_000])
                await writer.drain()
            writer.close()

        feeding = sup.task(feed(process.stdin))
        assert await process.stdout.read() == data
        await feeding
        assert await process.wait() == 0

    run(body)


def test_a_reader_that_does_not_read_holds_its_process_and_nobody_else(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn([sys.executable, "-c", "print('x' * 10_000_000)"], stdout=quell.PIPE)
        other = await sup.spawn(["echo", "on"], stdout=quell.PIPE)
        assert (await other.communicate())[0] == b"on\n"
        assert process.returncode is None
        assert process.stdout is not None
        assert len(await process.stdout.read()) == 10_000_001
        assert await process.wait() == 0

    run(body)


def test_output_past_the_cap_is_cut_with_a_marker(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        script = "print('a' * 100_000, end='', flush=True)"
        process = await sup.spawn([sys.executable, "-c", script], stdout=quell.PIPE, output_cap=10)
        out, _ = await process.communicate()
        assert out == b"aaaaaaaaaa\n[quell: output cut here, after 10 bytes]\n"
        assert process.dropped == 99_990 and process.returncode == 0
        short = await sup.spawn(["echo", "short"], stdout=quell.PIPE, output_cap=6)
        assert (await short.communicate())[0] == b"short\n" and short.dropped == 0

    run(body)


def argv_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")[:-1]


def test_wait_does_not_wait_for_a_pipe_that_a_grandchild_holds(run: Run) -> None:
    """H08."""

    async def body(sup: quell.Supervisor) -> None:
        began = time.monotonic()
        process = await sup.spawn(["sh", "-c", "sleep 60 & echo $!"], stdout=quell.PIPE)
        assert await process.wait() == 0
        assert process.stdout is not None
        grandchild = (await process.stdout.readline()).strip()
        assert grandchild and time.monotonic() - began < 10
        [left] = await process.tree()
        assert await until(lambda: argv_of(left.pid) == ["sleep", "60"]) and alive(left.pid)
        assert (await process.stop()).confirmed
        assert gone(left.pid)
        assert await process.stdout.read() == b""

    run(body)


def test_communicate_does_not_either(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sh", "-c", "sleep 60 & cat; echo end >&2"], stdin=quell.PIPE, stdout=quell.PIPE)
        assert await asyncio.wait_for(process.communicate(b"text"), 20) == (b"text", b"")

    run(body)


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15), ("exit 255", 255)]
)
def test_the_exit_code_is_the_commands_own(run: Run, script: str, code: int) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sh", "-c", script])
        assert [await process.wait(), await process.wait(), process.returncode] == [code] * 3

    run(body)


def test_a_signal_goes_to_the_command_alone(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        script = "trap 'echo got; exit 3' USR1; echo ready; while :; do sleep 0.02; done"
        process = await sup.spawn(["sh", "-c", script], stdout=quell.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        process.signal(signal.SIGUSR1)
        assert await process.stdout.readline() == b"got\n"
        assert await process.wait() == 3
        process.signal(signal.SIGUSR1)  # nothing happens

    run(body)


def test_a_terminal_is_given_and_resized(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        script = "import os; input(); print(os.get_terminal_size())"
        process = await sup.spawn([sys.executable, "-c", script], stdin=quell.PTY)
        assert process.stdin is not None and process.stdout is not None
        process.resize(11, 77)
        process.stdin.write(b"\n")
        text = await process.stdout.read()
        assert b"columns=77, lines=11" in text
        assert await process.wait() == 0
        assert await until(lambda: process.over.known)
        with pytest.raises(ValueError, match="no terminal, or has ended"):
            process.resize(1, 1)

    run(body)


def test_a_process_is_stopped_alone_politely_then_by_force(run: Run) -> None:
    """H10: the tree, not the pid. H12: who ignores SIGTERM is killed after the grace. H15."""

    async def body(sup: quell.Supervisor) -> None:
        other = await sup.spawn(["sleep", "60"])
        stubborn = "trap '' TERM; setsid sleep 60 & echo ready; sleep 60; sleep 60"
        process = await sup.spawn(["sh", "-c", stubborn], stdout=quell.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        pids = [one.pid for one in await process.tree()]
        receipt = await process.stop(grace=0.2)
        assert receipt.confirmed and receipt.phases["ask"] >= 0.15 and receipt.command[0] == "sh"
        assert all(gone(pid) for pid in pids) and alive(other.pid)
        assert process.returncode == -9
        again = await process.stop()
        assert again is receipt

    run(body)


def test_stopping_one_that_has_ended_says_so(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["true"])
        await process.wait()
        assert await until(lambda: process.over.known)
        receipt = await process.stop()
        assert receipt.confirmed and receipt.processes == [] and receipt.exit == {"code": 0}

    run(body)


def test_a_stop_is_joined_and_a_force_cuts_it_short(run: Run) -> None:
    """H15. H22: a second stop forces."""

    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
        assert process.stdout is not None
        await process.stdout.readline()
        began = time.monotonic()
        first = sup.task(process.stop(grace=60))
        await asyncio.sleep(0.05)
        second = await process.stop(force=True)
        assert await first is second and second.confirmed and time.monotonic() - began < 20

    run(body)


def test_cancelling_who_waits_changes_nothing(run: Run) -> None:
    """H02."""

    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["sh", "-c", "sleep 0.3; exit 4"], stdout=quell.PIPE)
        for ask in (process.wait, process.tree, process.communicate):
            asker = asyncio.ensure_future(ask())
            await asyncio.sleep(0)
            asker.cancel()
            assert await outcome(asker) in ("cancelled", "done")
        assert await process.wait() == 4
        stubborn = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
        assert stubborn.stdout is not None
        await stubborn.stdout.readline()
        asker = asyncio.ensure_future(stubborn.stop(grace=0.2))
        await asyncio.sleep(0)
        asker.cancel()
        assert await outcome(asker) == "cancelled"
        assert await stubborn.wait() == -9  # the stop went on

    run(body)


def test_writing_to_a_command_that_has_ended_is_an_error_of_the_stream(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        process = await sup.spawn(["true"], stdin=quell.PIPE)
        await process.wait()
        assert process.stdin is not None
        assert await until(lambda: process.over.known)
        process.stdin.write(b"x")
        with pytest.raises(ConnectionError):
            await process.stdin.drain()

    run(body)
