"""A stop needs no event loop: it comes by the control socket, and a thread sees to it while the loop is blocked."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

import quell

from .conftest import alive, gone, until
from .loops import LOOPS, run_on
from .loops import until as comes_true

SHORT = quell.Ladder(ask=0.3, term=0.3)


def in_thread(call: Callable[[], quell.Receipt]) -> "Future[quell.Receipt]":
    result: Future[quell.Receipt] = Future()

    def run() -> None:
        try:
            result.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised again by who asks for it
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return result


@pytest.mark.parametrize("ask", [3e7, 1e300])
def test_a_patience_of_years_is_no_fault(ask: float) -> None:
    """A poll cannot be told of more than some days; the thread that stops rely on has to outlive that."""

    async def slow_to_go() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.3)

    async def main() -> None:
        async with quell.Supervisor(ladder=quell.Ladder(ask=ask, term=0.3)) as sup:
            for name in ("one", "other"):
                scope = sup.scope(name)
                await scope.spawn(["sleep", "60"])
                scope.task(slow_to_go(), name="slow")
                await asyncio.sleep(0)
                receipt = await asyncio.wait_for(asyncio.to_thread(quell.ask_stop, sup.state_dir, scope=name), 10)
                assert receipt.confirmed

    asyncio.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_trees_are_stopped_on_time_while_the_loop_is_blocked(loop: str) -> None:
    """H25: something in the loop sleeps for 30 s; the trees are gone within the ladder, and the line is named."""
    blocking = 30.0

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            polite = await sup.spawn(["sleep", "60"])
            deaf = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
            boxed = await sup.scope("boxed", box=True).spawn(["sh", "-c", "setsid sleep 60 & sleep 60"])
            assert deaf.stdout is not None
            await deaf.stdout.readline()
            began = time.monotonic()
            asked = in_thread(lambda: quell.ask_stop(sup.state_dir, reason="from outside"))

            def released() -> bool:
                return asked.done() or time.monotonic() > began + blocking

            while not released():
                time.sleep(0.05)  # noqa: ASYNC251  the loop is blocked on purpose
            receipt = asked.result(0)
            seconds = time.monotonic() - began
            assert seconds < 10, "the ladder is 0.3 + 0.3 s"
            assert all(not alive(process.pid) for process in (polite, deaf, boxed))
            assert receipt.reason == "from outside" and not receipt.confirmed and receipt.survivors == []
            assert len(receipt.processes) >= 5
            [loop_part] = [one for one in receipt.tasks if one.name == "the event loop"]
            assert loop_part.end == "alive" and loop_part.where is not None and __file__ in loop_part.where
            final = await sup.stopped()
            assert final.confirmed and final.reason == "from outside"

    run_on(LOOPS[loop], main)


def test_a_stop_that_the_loop_began_goes_on_when_something_then_blocks_it() -> None:
    """H25: a task's clean-up blocks the loop in the middle of a stop."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            process = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
            assert process.stdout is not None
            await process.stdout.readline()
            seen: list[bool] = []

            async def blocks() -> None:
                try:
                    await asyncio.sleep(60)
                finally:
                    end = time.monotonic() + 15
                    while alive(process.pid) and time.monotonic() < end:
                        time.sleep(0.02)  # noqa: ASYNC251  the loop is blocked on purpose
                    seen.append(alive(process.pid))

            sup.task(blocks())
            await asyncio.sleep(0)
            receipt = await sup.stop()
            assert seen == [False] and receipt.confirmed

    run_on(LOOPS["asyncio"], main)


def test_what_a_stop_joins_is_on_its_receipt_while_the_loop_is_blocked() -> None:
    """H17, H25: the processes of a stop that was under way are named by the one that found it."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            inner = sup.scope("outer").scope("inner", box=True)
            deaf = await inner.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
            assert deaf.stdout is not None
            await deaf.stdout.readline()
            inner.begin_stop("of the inner one")
            began = time.monotonic()
            asked = in_thread(lambda: quell.ask_stop(sup.state_dir, scope="outer", reason="of the outer one"))
            while not asked.done() and time.monotonic() < began + 20:
                time.sleep(0.05)  # noqa: ASYNC251  the loop is blocked on purpose
            receipt = asked.result(0)
            assert deaf.pid in [one.pid for one in receipt.processes] and receipt.survivors == []
            assert not alive(deaf.pid)

    run_on(LOOPS["asyncio"], main)


def test_a_scope_is_stopped_by_its_path_and_the_others_live_on() -> None:
    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            inner = sup.scope("outer").scope("inner")
            process, other = await inner.spawn(["sleep", "60"]), await sup.spawn(["sleep", "60"])
            receipt = await asyncio.to_thread(quell.ask_stop, sup.state_dir, scope="outer/inner")
            assert receipt.confirmed and receipt.scope == "outer/inner" and gone(process.pid) and alive(other.pid)
            assert inner.receipt == receipt
            with pytest.raises(quell.UsageError, match="there is no scope 'outer/inner'"):
                await asyncio.to_thread(quell.ask_stop, sup.state_dir, scope="outer/inner")
            with pytest.raises(quell.UsageError, match="a grace is a number of seconds"):
                await asyncio.to_thread(quell.ask_stop, sup.state_dir, grace=-1)

    run_on(LOOPS["asyncio"], main)


def test_a_stop_from_outside_is_forced_by_a_second_one() -> None:
    async def main() -> None:
        async with quell.Supervisor() as sup:
            process = await sup.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60; sleep 60"], stdout=quell.PIPE)
            assert process.stdout is not None
            await process.stdout.readline()
            began = time.monotonic()
            folder = sup.state_dir
            first = in_thread(lambda: quell.ask_stop(folder, grace=60))
            assert await comes_true(lambda: sup.stopping is not None)
            second = in_thread(lambda: quell.ask_stop(folder, force=True))
            receipt = await sup.stopped()
            assert receipt.confirmed and time.monotonic() - began < 20
            assert await asyncio.wrap_future(first) == receipt == await asyncio.wrap_future(second)

    run_on(LOOPS["asyncio"], main)


def test_who_asks_where_nobody_listens_gets_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(quell.NoSupervisorError, match="no supervisor listens in"):
        quell.ask_stop(str(tmp_path))
    with pytest.raises(quell.NoSupervisorError, match="no supervisor listens in"):
        quell.ask_stop(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("sent", [b"nonsense\n", b"[]\n", b'{"op": "dance"}\n', b"x" * 100_000, b"", b"{"])
def test_nonsense_on_the_socket_harms_nobody(sent: bytes) -> None:
    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            with socket.socket(socket.AF_UNIX) as client:
                folder = os.open(sup.state_dir, os.O_PATH)
                client.connect(f"/proc/self/fd/{folder}/control.sock")
                os.close(folder)
                client.settimeout(10)
                try:
                    client.sendall(sent)
                    client.shutdown(socket.SHUT_WR)
                    answer = await asyncio.to_thread(client.recv, 1000)
                except ConnectionError:
                    answer = b""
                assert answer == b"" or "error" in json.loads(answer)
            assert sup.stopping is None and await (await sup.spawn(["true"])).wait() == 0

    run_on(LOOPS["asyncio"], main)


def test_the_socket_is_for_its_owner_alone() -> None:
    async def main() -> None:
        async with quell.Supervisor() as sup:
            paths = (sup.state_dir, f"{sup.state_dir}/control.sock")
            assert [os.stat(path).st_mode & 0o777 for path in paths] == [0o700, 0o600]

    run_on(LOOPS["asyncio"], main)


# -- one owner


SECOND = """
import quell, sys
try:
    quell.supervise(state_dir=sys.argv[1]).__enter__()
except quell.StateInUseError as error:
    print(error)
"""


def test_a_second_supervisor_on_one_state_directory_is_refused(tmp_path: Path) -> None:
    """H51: in the same process and in another; the sentence says by whom it is used."""

    async def main() -> None:
        async with quell.Supervisor(state_dir=tmp_path) as sup:
            with pytest.raises(quell.StateInUseError, match=rf"is in use by process {os.getpid()} \("):
                async with quell.Supervisor(state_dir=tmp_path):
                    pass
            process = await sup.spawn([sys.executable, "-c", SECOND, str(tmp_path)], stdout=quell.PIPE)
            out, _ = await process.communicate()
            assert b"is in use by" in out and process.returncode == 0
            assert await (await sup.spawn(["true"])).wait() == 0  # nothing was taken from the first
            assert (await asyncio.wrap_future(in_thread(lambda: quell.ask_stop(str(tmp_path))))).confirmed
        async with quell.Supervisor(state_dir=tmp_path) as sup:  # it is free again
            assert sup.state_dir == str(tmp_path)

    run_on(LOOPS["asyncio"], main)


HOLDER = """
import asyncio, os, quell, sys
async def main():
    async with quell.Supervisor(state_dir=sys.argv[1]) as sup:
        process = await sup.spawn(["sleep", "600"])
        child = os.fork()  # holds every descriptor of the owner, as a worker of multiprocessing does
        if child == 0:
            os.write(1, b"%d %d\\n" % (os.getpid(), process.pid))
            while True:
                __import__("time").sleep(60)
        await asyncio.sleep(600)
asyncio.run(main())
"""


def test_the_lock_dies_with_its_holder(tmp_path: Path) -> None:
    """H51, H23, H62: kill -9 leaves neither process nor lock, though a forked child holds every descriptor."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    child, tree = map(int, holder.stdout.readline().split())
    try:
        holder.kill()
        holder.wait()
        assert gone(tree) and alive(child)

        async def main() -> None:
            async with quell.Supervisor(state_dir=tmp_path) as sup:
                assert await (await sup.spawn(["true"])).wait() == 0

        run_on(LOOPS["asyncio"], main)
    finally:
        os.kill(child, 9)
        holder.stdout.close()
    assert gone(child)


def test_folders_of_those_who_were_killed_are_removed_by_the_next(state_dir: Path) -> None:
    text = HOLDER.replace("state_dir=sys.argv[1]", "").replace("child = os.fork()", "child = 1")
    text = text.replace("await asyncio.sleep(600)", "print(sup.state_dir, flush=True); await asyncio.sleep(600)")
    holder = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    folder = Path(holder.stdout.readline().decode().strip())
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert folder.exists()

    async def main() -> None:
        async with quell.Supervisor():
            pass

    run_on(LOOPS["asyncio"], main)
    assert until(lambda: not folder.exists())


def test_a_state_directory_that_cannot_be_used_is_a_sentence(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")

    async def main() -> None:
        with pytest.raises(quell.UsageError, match=r"the state directory .* cannot be used: Not a directory"):
            async with quell.Supervisor(state_dir=blocked / "below"):
                pass
        with pytest.raises(quell.UsageError, match="there is no rung"):
            quell.Supervisor(contain="nothing")

    run_on(LOOPS["asyncio"], main)
