"""The three reports that this library comes from: the form that people write leaves a survivor, ours leaves nobody."""

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from acp.core import AgentSideConnection

import quell

from .conftest import alive, gone
from .loops import LOOPS, outcome, run_on, until
from .owned import AT_ONCE, AnyTask, forever

GRACE = 0.5
LADDER = quell.Ladder(ask=1.0, term=GRACE)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, None]]], None]:
    """Runs a test on each loop."""

    def within(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        run_on(LOOPS[request.param], main)

    return within


Run = Callable[[Callable[[], Coroutine[Any, Any, None]]], None]


@contextlib.contextmanager
def ended_by_the_test(*pids: int) -> Iterator[None]:
    """What only the test knows of is held from now on, so that nobody else is hit, and killed in the end."""
    held = [os.pidfd_open(pid) for pid in pids]
    try:
        yield
    finally:
        for fd in held:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
            os.close(fd)
    assert all(gone(pid) for pid in pids)


# -- a spawn that is cancelled before the command has bound its socket


RUNNER = """
import os, signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(os.getpid(), flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen()
time.sleep(600)
"""
"""Binds its socket once it is told to, and does not end when it is asked to."""


class Place:
    """Where a runner binds its socket."""

    def __init__(self, folder: Path) -> None:
        self.socket, self.go = folder / "socket", folder / "go"

    def command(self) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", RUNNER, str(self.socket), str(self.go)]

    async def bound(self) -> None:
        assert await until(self.socket.exists, 600)


class NaiveManager:
    """Enters a runner in its list once it is there."""

    def __init__(self, place: Place) -> None:
        self.entries: dict[str, asyncio.subprocess.Process] = {}
        self.born: list[asyncio.subprocess.Process] = []  # so that the test can end what the manager lost
        self.place = place

    async def get(self, key: str) -> None:
        process = await self.spawn()
        await self.place.bound()
        self.entries[key] = process

    async def spawn(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(*self.place.command(), stdout=asyncio.subprocess.PIPE)
        self.born.append(process)
        return process

    async def release(self, key: str) -> None:
        process = self.entries.pop(key, None)
        if process is not None:
            process.kill()
            await process.wait()


class MendedManager(NaiveManager):
    """Cleans up after a cancel, as long as no second one comes."""

    async def get(self, key: str) -> None:
        process = await self.spawn()
        try:
            await self.place.bound()
        except BaseException:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), GRACE)
            except TimeoutError:
                process.kill()
                await process.wait()
            raise
        self.entries[key] = process


class Manager:
    """Ours: the runner is the scope's before it exists; whoever waits for its socket only waits."""

    def __init__(self, sup: quell.Supervisor, place: Place) -> None:
        self.entries: dict[str, quell.Scope] = {}
        self.born: list[quell.Process] = []  # so that the test sees what there was
        self.sup, self.place = sup, place

    async def get(self, key: str) -> None:
        scope = self.entries[key] = self.sup.scope(key)
        try:
            self.born.append(await scope.spawn(self.place.command(), stdout=quell.PIPE))
            await self.place.bound()
        except BaseException:
            await scope.stop()
            raise

    async def release(self, key: str) -> quell.Receipt:
        return await self.entries.pop(key).stop(force=True)


async def started(manager: NaiveManager | Manager) -> int:
    """Until the runner runs, and has bound nothing yet: its pid."""
    assert await until(lambda: len(manager.born) == 1)
    out = manager.born[0].stdout
    assert out is not None and await out.readline()
    return manager.born[0].pid


async def cancel(task: AnyTask, times: int) -> None:
    """Each cancel lands in what the one before it made the task do."""
    for _ in range(times):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.mark.parametrize(("kind", "cancels"), [(NaiveManager, 1), (MendedManager, 2)])
def test_a_spawn_cancelled_before_the_bind_leaves_the_naive_manager_a_survivor(
    run: Run, tmp_path: Path, kind: type[NaiveManager], cancels: int
) -> None:
    """H01: it was entered after it existed. H02: the second cancel abandoned the clean-up. H08: nobody ends it."""

    async def main() -> None:
        manager = kind(Place(tmp_path))
        turn = asyncio.create_task(manager.get("session"))
        pid = await started(manager)
        with ended_by_the_test(pid):
            await cancel(turn, cancels)
            assert await outcome(turn) == "cancelled"
            await manager.release("session")
            assert alive(pid)
        await manager.born[0].wait()

    run(main)


def test_one_cancel_is_what_the_mended_manager_was_mended_for(run: Run, tmp_path: Path) -> None:
    """H56: the second cancel above is what leaves the survivor."""

    async def main() -> None:
        manager = MendedManager(Place(tmp_path))
        turn = asyncio.create_task(manager.get("session"))
        pid = await started(manager)
        await cancel(turn, 1)
        assert await outcome(turn) == "cancelled" and gone(pid)

    run(main)


@pytest.mark.parametrize("cancels", [1, 2, 5])
def test_a_spawn_cancelled_before_the_bind_leaves_nothing(run: Run, tmp_path: Path, cancels: int) -> None:
    """H01: owned before it exists. H02: any number of cancels. H05: a stop does not wait for the bind. H08."""

    async def main() -> None:
        async with quell.Supervisor(ladder=LADDER) as sup:
            manager = Manager(sup, Place(tmp_path))
            turn = asyncio.get_running_loop().create_task(manager.get("session"))
            pid = await started(manager)
            began = time.monotonic()
            await cancel(turn, cancels)
            assert await outcome(turn) == "cancelled"
            receipt = await manager.entries["session"].stop()
            assert receipt.confirmed and not alive(pid)
            assert time.monotonic() - began < GRACE + AT_ONCE
            assert [one.end for one in receipt.processes] == ["signal 9"]
            assert sup.nested() == []

    run(main)


def test_a_session_that_is_deleted_while_it_starts_is_gone_at_once(run: Run, tmp_path: Path) -> None:
    """H05: the one who deletes waits neither for the bind nor for the one who waits for it."""

    async def main() -> None:
        async with quell.Supervisor(ladder=LADDER) as sup:
            manager = Manager(sup, Place(tmp_path))
            turn = asyncio.get_running_loop().create_task(manager.get("session"))
            pid = await started(manager)
            began = time.monotonic()
            receipt = await manager.release("session")
            assert receipt.confirmed and not alive(pid) and time.monotonic() - began < AT_ONCE
            turn.cancel()
            assert await outcome(turn) == "cancelled"

    run(main)


def test_a_runner_that_binds_is_there(run: Run, tmp_path: Path) -> None:
    """H56: the runner of these tests does bind, once it may."""

    async def main() -> None:
        async with quell.Supervisor(ladder=LADDER) as sup:
            place = Place(tmp_path)
            place.go.touch()
            manager = Manager(sup, place)
            await asyncio.wait_for(manager.get("session"), 10)
            assert (await manager.release("session")).confirmed and gone(manager.born[0].pid)

    run(main)


# -- Stop All


CALLS = {
    "a shell that waits": "sleep 600 & echo $!; wait",
    "one that ignores SIGTERM": "trap '' TERM; sleep 600 & echo $!; wait; wait",
    "one whose child has a session of its own": "setsid sleep 600 & echo $!; wait",
    "both": "trap '' TERM; setsid sleep 600 & echo $!; wait; wait",
}


def by_pid(process: asyncio.subprocess.Process) -> None:
    process.kill()


def by_group(process: asyncio.subprocess.Process) -> None:
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("stop", "call"),
    [
        (by_pid, "a shell that waits"),
        (by_pid, "one that ignores SIGTERM"),
        (by_pid, "one whose child has a session of its own"),
        (by_group, "one that ignores SIGTERM"),
        (by_group, "one whose child has a session of its own"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_stop_all_leaves_the_naive_form_a_survivor(
    run: Run, stop: Callable[[asyncio.subprocess.Process], None], call: str
) -> None:
    """H10: one pid was signalled. H11: the group was signalled. H12: SIGTERM was ignored."""

    async def main() -> None:
        pipe = asyncio.subprocess.PIPE
        shells = [
            await asyncio.create_subprocess_exec("sh", "-c", CALLS[call], stdout=pipe, start_new_session=True)
            for _ in range(2)
        ]
        sleepers = [await told(shell.stdout) for shell in shells]
        with ended_by_the_test(*sleepers, *(shell.pid for shell in shells)):
            if "session" in call:
                assert await until(lambda: all(os.getsid(pid) == pid for pid in sleepers))
            for shell in shells:
                stop(shell)
            if stop is by_pid:  # asyncio itself waits for the pipe that the survivor holds
                assert all(gone(shell.pid) for shell in shells)
            await asyncio.sleep(0.1)  # what a SIGTERM ends has ended by now
            assert all(alive(pid) for pid in sleepers)
        for shell in shells:
            await shell.communicate()

    run(main)


async def told(stream: asyncio.StreamReader | None) -> int:
    """The pid that a command writes first."""
    assert stream is not None
    return int(await asyncio.wait_for(stream.readline(), 10))


def test_stop_all_ends_every_tool_call_of_every_session(run: Run) -> None:
    """H10: the tree. H11: escapees too. H12: SIGTERM, the grace, SIGKILL. H24: all sessions at once."""

    async def main() -> None:
        async with quell.Supervisor(ladder=LADDER) as sup:
            calls: list[quell.Process] = []

            async def turn(session: quell.Scope) -> None:
                for script in CALLS.values():
                    calls.append(await session.spawn(["sh", "-c", script], stdout=quell.PIPE))
                    await told(calls[-1].stdout)
                await asyncio.gather(*(call.wait() for call in calls))

            for number in range(3):
                session = sup.scope(f"session{number}", box=True)
                session.task(turn(session), name="turn")
            assert await until(lambda: len(calls) == 3 * len(CALLS))
            pids = [member.pid for call in calls for member in await members(call, 2)]
            assert len(pids) == 2 * 3 * len(CALLS)

            began = time.monotonic()
            receipt = await sup.stop(reason="Stop All")
            seconds = time.monotonic() - began
        assert receipt.confirmed and receipt.survivors == []
        assert not any(alive(pid) for pid in pids)
        assert {one.pid for one in receipt.processes} >= set(pids)
        assert [one.end for one in receipt.tasks if one.name == "turn"] == ["cancelled"] * 3
        assert GRACE <= receipt.phases["ask"] + receipt.phases["kill"] < 2 * GRACE + 2
        assert seconds < GRACE + AT_ONCE

    run(main)


async def members(call: quell.Process, least: int) -> list[quell.Member]:
    """The tree of a call, once it has grown."""
    end = time.monotonic() + 10
    while len(found := await call.tree()) < least:
        assert time.monotonic() < end
        await asyncio.sleep(0.005)
    return found


# -- a listener that is cancelled, and its library


class Connection:
    """A tiny library: it starts two loops when it is made, and ends them when it is closed, if anybody does that."""

    def __init__(self) -> None:
        self.inbox: asyncio.Queue[str] = asyncio.Queue()
        self.outbox: asyncio.Queue[str] = asyncio.Queue()
        self.loops = [asyncio.create_task(self._pass_on(), name=name) for name in ("sender", "dispatcher")]

    async def _pass_on(self) -> None:
        while True:
            await self.outbox.put(await self.inbox.get())

    async def listen(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        for loop in self.loops:
            loop.cancel()
        await asyncio.wait(self.loops)


@contextlib.asynccontextmanager
async def line() -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """One end of a connection, to a peer that says nothing."""
    ours, theirs = socket.socketpair()
    with theirs:
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def listen_by_hand() -> None:
    await Connection().listen()


async def listen_by_the_sdk() -> None:
    async with line() as (reader, writer):
        made: Any = AgentSideConnection
        made(object(), writer, reader)  # starts its loops
        await made(object(), writer, reader, listening=False).listen()


LISTENERS = [listen_by_hand, listen_by_the_sdk]
"""Each awaits `listen()` and nothing else, as the report has it."""


def loops_of_libraries() -> list[AnyTask]:
    names = ("sender", "dispatcher", "acp.")
    return [task for task in asyncio.all_tasks() if task.get_name().startswith(names)]


@pytest.mark.parametrize("listen", LISTENERS)
def test_a_cancelled_listener_leaves_the_loops_of_its_library(run: Run, listen: Any) -> None:
    """H07: nobody closes the connection when the listener is cancelled."""

    async def main() -> None:
        task = asyncio.create_task(listen())
        assert await until(lambda: len(loops_of_libraries()) >= 2)
        task.cancel()
        await asyncio.wait([task])
        left = loops_of_libraries()
        assert len(left) >= 2
        for loop in left:
            loop.cancel()
        await asyncio.wait(left)

    run(main)


@pytest.mark.parametrize("listen", LISTENERS)
@pytest.mark.parametrize("cancels", [0, 1, 2])
def test_a_cancelled_listener_of_a_scope_leaves_nothing(run: Run, listen: Any, cancels: int) -> None:
    """H07: what its library started belongs to the scope. H02: however often the listener is cancelled before."""

    async def main() -> None:
        complaints: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said["message"]))
        async with quell.Supervisor(ladder=LADDER) as sup:
            scope = sup.scope("listener")
            task = scope.task(listen())
            assert await until(lambda: len(loops_of_libraries()) >= 2)
            loops = loops_of_libraries()
            for _ in range(cancels):
                task.cancel()
                await asyncio.sleep(0)
            began = time.monotonic()
            receipt = await scope.stop()
            assert receipt.confirmed and time.monotonic() - began < LADDER.ask
            assert task.done() and all(loop.done() for loop in loops) and loops_of_libraries() == []
            assert {one.name for one in receipt.tasks} >= {loop.get_name() for loop in loops}
        del loops, task
        gc.collect()
        assert complaints == []  # such as "Task was destroyed but it is pending!"

    run(main)


def test_the_scope_closes_what_it_entered_before_it_ends_the_loops(run: Run) -> None:
    """H07: the library's own way to close, where it has one, comes first."""

    async def main() -> None:
        closed: list[bool] = []

        @contextlib.asynccontextmanager
        async def connection() -> AsyncIterator[Connection]:
            made = Connection()
            try:
                yield made
            finally:
                closed.append(any(loop.done() for loop in made.loops))
                await made.close()

        async with quell.Supervisor(ladder=LADDER) as sup:
            scope = sup.scope("listener")
            made = await scope.enter(connection())
            scope.task(made.listen())
            scope.task(forever())
            receipt = await scope.stop()
            assert receipt.confirmed and all(loop.done() for loop in made.loops)
            assert closed == [False] and [one.end for one in receipt.closers] == ["closed"]

    run(main)
