"""A scope owns what is started in it, whoever asked for it and however often the asker is cancelled."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.supervise.scope import Scope

from .conftest import alive, gone, rungs
from .loops import LOOPS, outcome, run_on, until

SHORT = quell.Ladder(ask=0.3, term=0.3)

Body = Callable[[quell.Supervisor], Coroutine[Any, Any, None]]


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Body], quell.Supervisor]:
    """Runs a test inside a supervisor, on each loop."""

    def within(body: Body) -> quell.Supervisor:
        async def main() -> quell.Supervisor:
            async with quell.Supervisor(ladder=SHORT) as sup:
                await body(sup)
            return sup

        return run_on(LOOPS[request.param], main)

    return within


Run = Callable[[Body], quell.Supervisor]


def test_the_example_of_the_readme_holds(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        @contextlib.asynccontextmanager
        async def connection() -> AsyncIterator[str]:
            yield "open"

        async def watch(process: quell.Process) -> None:
            await process.wait()

        scope = sup.scope("build")
        process = await scope.spawn(["sleep", "60"], stdout=quell.PIPE)
        task = scope.task(watch(process), name="watch")
        assert await scope.enter(connection()) == "open"
        receipt = await scope.stop()
        assert receipt.confirmed and not receipt.survivors
        assert task.cancelled() and gone(process.pid) and process.returncode == -15
        assert [one.name for one in receipt.tasks] == ["watch"]
        assert [(one.name.rpartition(".")[2], one.end) for one in receipt.closers] == [("connection", "closed")]
        assert [one.argv for one in receipt.processes] == [["sleep", "60"]]
        assert receipt.scope == "build" and receipt.reason == "stop"
        assert quell.Receipt.from_json(receipt.to_json()) == receipt

    sup = run(body)
    assert sup.receipt is not None and sup.receipt.confirmed


def test_a_spawn_whose_asker_is_cancelled_is_ended_at_once(run: Run, tmp_path: Path) -> None:
    """H01: whoever asks is not the owner. H02: a second and a tenth cancel change nothing. H08."""

    async def body(sup: quell.Supervisor) -> None:
        late = 0
        for cancels in (1, 2, 10):
            for steps in range(4):
                asker = asyncio.ensure_future(sup.spawn(["sleep", "60"]))
                for _ in range(steps):
                    await asyncio.sleep(0)
                if asker.done():  # the machine was busy for so long that it has its process
                    late += 1
                    await asker.result().stop(force=True)
                    continue
                for _ in range(cancels):
                    asker.cancel()
                assert await outcome(asker) == "cancelled"
                assert await until(lambda: not sup.processes)
        assert late < 6 and not await _children_named(sup, "sleep")

    run(body)


async def _children_named(sup: Scope, name: str) -> list[int]:
    process = await sup.spawn(["true"])
    await process.wait()
    return [one.pid for other in list(sup.processes) for one in await other.tree() if one.argv[:1] == [name]]


def test_a_timeout_around_a_spawn_ends_it(run: Run) -> None:
    """H05: what is under way ends at once. `asyncio.timeout` and `wait_for` work around it."""

    async def body(sup: quell.Supervisor) -> None:
        for _ in range(5):
            try:
                async with asyncio.timeout(0):
                    await sup.spawn(["sleep", "60"])
            except TimeoutError:
                pass
            try:
                await asyncio.wait_for(sup.spawn(["sleep", "60"]), 0.0001)
            except TimeoutError:
                pass
        process = await asyncio.wait_for(sup.spawn(["true"]), 20)
        assert await process.wait() == 0

    sup = run(body)
    assert sup.receipt is not None and sup.receipt.confirmed


def test_a_stop_during_a_spawn_takes_effect_at_once(run: Run) -> None:
    """H05: the asker hears of it, and nothing of the command is left."""

    async def body(sup: quell.Supervisor) -> None:
        for steps in range(6):
            scope = sup.scope("cold", box=True)
            asker = asyncio.ensure_future(scope.spawn(["sleep", "60"]))
            for _ in range(steps):
                await asyncio.sleep(0)
            receipt = await scope.stop()
            assert receipt.confirmed and not receipt.survivors
            assert await outcome(asker) in ("ScopeStoppedError", "BoxLostError", "SpawnError", "done")
            assert not scope.processes

    run(body)


def test_nothing_starts_in_a_scope_that_is_stopping_or_stopped(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("over")
        refused = []

        async def lingers() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                refused.append(await outcome(scope.spawn(["true"])))
                refused.append(await outcome(scope.enter(contextlib.AsyncExitStack())))

        scope.task(lingers())
        await asyncio.sleep(0)
        await scope.stop()
        refused.append(await outcome(scope.spawn(["true"])))
        with pytest.raises(quell.ScopeStoppedError, match="the scope over is stopped"):
            scope.task(lingers())
        with pytest.raises(quell.ScopeStoppedError):
            scope.scope("inner")
        assert refused == ["ScopeStoppedError"] * 3

    run(body)


def test_a_block_inside_a_scope_that_is_stopped_does_not_wait_for_its_own_stop(run: Run) -> None:
    """H60: the outer stop waits for the task, so the task must not wait for the stop."""

    async def body(sup: quell.Supervisor) -> None:
        outer = sup.scope("outer")
        inside = asyncio.Event()

        async def member() -> None:
            async with outer.scope("inner") as inner:
                await inner.spawn(["sleep", "60"])
                inside.set()
                await asyncio.sleep(60)

        async def own() -> None:
            async with outer:
                await asyncio.sleep(60)

        tasks = [outer.task(member()), outer.task(own())]
        await inside.wait()
        receipt = await outer.stop()
        assert receipt.confirmed, receipt.sentence()
        assert receipt.phases["tasks"] < 0.2 and all(task.cancelled() for task in tasks)

    run(body)


def test_scopes_nest_and_the_inner_ends_first(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        order: list[str] = []

        def noting(name: str) -> Coroutine[Any, Any, None]:
            async def note() -> None:
                try:
                    await asyncio.sleep(60)
                finally:
                    order.append(name)

            return note()

        outer = sup.scope("outer")
        middle = outer.scope("middle")
        inner = middle.scope("inner")
        for scope in (outer, inner, middle):
            scope.task(noting(scope.name))
        process = await inner.spawn(["sleep", "60"])
        await asyncio.sleep(0)
        receipt = await outer.stop()
        assert order == ["inner", "middle", "outer"]
        assert receipt.confirmed and inner.receipt is receipt and inner.path == "outer/middle/inner"
        assert gone(process.pid)
        assert sup.nested() == []

    run(body)


def test_a_scope_ends_alone_and_its_siblings_live_on(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        one, other, boxed = sup.scope("one"), sup.scope("other"), sup.scope("boxed", box=True)
        trees = [await scope.spawn(["sleep", "60"]) for scope in (one, other, boxed)]
        assert (await one.stop()).confirmed
        assert [alive(tree.pid) for tree in trees] == [False, True, True]
        assert (await boxed.stop()).confirmed
        assert [alive(tree.pid) for tree in trees] == [False, True, False]
        assert trees[1].returncode is None

    run(body)


def test_closers_run_in_reverse_in_the_task_that_entered_them(run: Run) -> None:
    """H07: connections are context managers that the scope closes."""

    async def body(sup: quell.Supervisor) -> None:
        order: list[str] = []
        tasks: set[Any] = set()

        @contextlib.asynccontextmanager
        async def noting(name: str) -> AsyncIterator[str]:
            tasks.add(asyncio.current_task())
            try:
                yield name
            finally:
                assert asyncio.current_task() in tasks
                order.append(name)

        scope = sup.scope("connections")
        assert [await scope.enter(noting(name)) for name in "abc"] == ["a", "b", "c"]
        assert (await scope.stop()).confirmed
        assert order == ["c", "b", "a"]

    run(body)


def test_an_enter_whose_asker_is_cancelled_is_closed_at_once(run: Run) -> None:
    """H02: however often, and whether it is being entered or was entered a moment ago."""

    async def body(sup: quell.Supervisor) -> None:
        state: list[str] = []

        @contextlib.asynccontextmanager
        async def slow(steps: int) -> AsyncIterator[None]:
            state.append("open")
            try:
                for _ in range(steps):
                    await asyncio.sleep(0)
                yield
            finally:
                state.append("closed")

        for steps in range(4):
            for after in range(6):
                asker = asyncio.ensure_future(sup.enter(slow(steps)))
                for _ in range(after):
                    await asyncio.sleep(0)
                asker.cancel()
                asker.cancel()
                if await outcome(asker) == "cancelled":
                    assert await until(lambda: state.count("open") == state.count("closed"))
                else:
                    state.clear()  # it had been given to its asker: the scope closes it
        assert await outcome(sup.enter(slow(0))) == "done"

    run(body)


def test_what_a_context_manager_raises_reaches_the_asker_or_the_receipt(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        @contextlib.asynccontextmanager
        async def broken(when: str) -> AsyncIterator[None]:
            if when == "enter":
                raise RuntimeError("no door")
            yield
            raise RuntimeError("no exit")

        scope = sup.scope("x")
        with pytest.raises(RuntimeError, match="no door"):
            await scope.enter(broken("enter"))
        await scope.enter(broken("leave"))
        receipt = await scope.stop()
        assert receipt.confirmed
        assert [one.end for one in receipt.closers] == ["failed: RuntimeError: no exit"]

    run(body)


def test_a_block_stops_its_scope_whatever_happens_in_it(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        pids = []
        for error in (ValueError, asyncio.CancelledError):
            with contextlib.suppress(error):
                async with sup.scope("block") as scope:
                    pids.append((await scope.spawn(["sleep", "60"])).pid)
                    helper = asyncio.ensure_future(asyncio.sleep(60))
                    raise error
            assert scope.receipt is not None and scope.receipt.confirmed and helper.cancelled()
            assert scope.receipt.reason == error.__name__
        assert all(gone(pid) for pid in pids)

    run(body)


def test_the_end_of_a_block_is_waited_for_however_often_it_is_cancelled(run: Run) -> None:
    """H02: clean-up is out of reach; the cancel arrives when it is done."""

    async def body(sup: quell.Supervisor) -> None:
        seen: list[Any] = []

        async def block() -> None:
            async with sup.scope("block", box=True) as scope:
                seen.append(scope)
                seen.append(await scope.spawn(["sh", "-c", "trap '' TERM; echo; sleep 60"], stdout=quell.PIPE))
                await seen[1].stdout.readline()

        task = asyncio.ensure_future(block())
        assert await until(lambda: len(seen) == 2 and seen[0].stopping is not None)
        for _ in range(20):
            task.cancel()
            await asyncio.sleep(0.005)
        assert await outcome(task) == "cancelled"
        assert seen[0].receipt.confirmed and not alive(seen[1].pid)

    run(body)


@pytest.mark.parametrize("rung", rungs())
def test_every_rung_serves_scopes(rung: str) -> None:
    async def main() -> None:
        async with quell.Supervisor(contain=rung, ladder=SHORT) as sup:
            shared = await sup.spawn(["sh", "-c", "setsid sleep 60 & echo $!; sleep 60"], stdout=quell.PIPE)
            assert shared.stdout is not None
            await shared.stdout.readline()
            boxed = sup.scope("boxed", box=True)
            other = await boxed.spawn(["sleep", "60"])
            members = await shared.tree()
            while [one.argv[0] for one in members] != ["sh", "sleep", "sleep"]:  # a shell forks before it executes
                members = await shared.tree()
            assert members[0].pid == shared.pid and all(one.rss > 0 and one.age < 60 for one in members)
            receipt = await boxed.stop()
            assert receipt.confirmed and receipt.rung == rung and alive(shared.pid) and gone(other.pid)
            receipt = await shared.stop()
            assert receipt.confirmed and all(gone(one.pid) for one in members)

    run_on(LOOPS["asyncio"], main)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def test_a_lost_box_is_said_and_the_next_command_gets_a_new_one() -> None:
    """H06: another box, under another identity."""

    async def main() -> None:
        async with quell.Supervisor(contain="subreaper", ladder=SHORT) as sup:
            process = await sup.spawn(["sleep", "60"])
            os.kill(parent(process.pid), 9)
            assert await outcome(process.wait()) in ("BoxLostError", "done")
            assert gone(process.pid)
            assert await (await sup.spawn(["true"])).wait() == 0

    run_on(LOOPS["asyncio"], main)


def test_a_killed_zygote_is_replaced() -> None:
    """H23: what it minded is ended, and the supervisor goes on."""

    async def main() -> None:
        async with quell.Supervisor(ladder=SHORT) as sup:
            process = await sup.spawn(["sleep", "60"])
            assert sup.place is not None and sup.place._box is not None
            os.kill(sup.place._box.zygote_pid, 9)
            assert await outcome(process.wait()) in ("BoxLostError", "done")
            assert gone(process.pid)
            assert await (await sup.spawn(["true"])).wait() == 0
            assert await (await sup.scope("x", box=True).spawn(["true"])).wait() == 0

    run_on(LOOPS["asyncio"], main)


def test_bad_input_is_answered_by_a_sentence(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        with pytest.raises(quell.UsageError, match="a command is a list of words"):
            await sup.spawn("ls -l")
        with pytest.raises(quell.UsageError, match="a command is a list of words"):
            await sup.spawn([])
        with pytest.raises(quell.SpawnError, match="no-such-command: command not found"):
            await sup.spawn(["no-such-command"])
        with pytest.raises(quell.SpawnError, match="could not be started"):
            await sup.spawn(["true", "a\0b"])
        with pytest.raises(quell.SpawnError, match="true: could not be started: its working directory /nowhere cannot"):
            await sup.spawn(["true"], cwd="/nowhere")
        with pytest.raises(quell.UsageError, match="a scope needs a name"):
            sup.scope("a/b")
        assert not sup.processes

    run(body)


def test_names_are_told_apart(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        first, second = sup.scope("turn"), sup.scope("turn")
        assert (first.path, second.path) == ("turn", "turn-2")
        await first.stop()
        assert sup.scope("turn").path == "turn"

    run(body)
