"""Whatever is made inside a scope belongs to it and ends with it, whoever made it; nobody else is touched."""

import asyncio
import contextlib
import contextvars
import functools
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import quell

from .loops import outcome, until
from .makers import MAKERS, Maker
from .owned import AT_ONCE, EVERY_LOOP, PATIENT, AnyTask, Body, Run, forever, run_within


@pytest.fixture(params=EVERY_LOOP)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test inside a supervisor, on each loop."""

    def within(body: Body) -> None:
        run_within(EVERY_LOOP[request.param], body)

    return within


@pytest.fixture(params=EVERY_LOOP)
def run_patiently(request: pytest.FixtureRequest) -> Run:
    """The same with a ladder that nobody would wait out."""

    def within(body: Body) -> None:
        run_within(EVERY_LOOP[request.param], body, PATIENT)

    return within


# anyio knows eager tasks only by the factory of the standard library, without a supervisor too.
WAYS = [
    pytest.param(make, maker, id=f"{maker.__name__}, {make}")
    for make in EVERY_LOOP
    for maker in MAKERS
    if not (make == "uvloop, eager" and "anyio_task_group" in maker.__name__)
]


@pytest.mark.parametrize(("make", "maker"), WAYS)
def test_a_task_made_inside_ends_with_its_scope_and_nobody_else_does(make: str, maker: Maker) -> None:
    """H07: a task belongs to the scope that it was made in, whoever made it."""

    async def body(sup: quell.Supervisor) -> None:
        leaves: list[AnyTask] = []

        async def leaf() -> None:
            task = asyncio.current_task()
            assert task is not None
            leaves.append(task)
            await forever()

        scope, sibling = sup.scope("x"), sup.scope("y")
        outside = asyncio.get_running_loop().create_task(forever(), context=contextvars.Context())
        others = [sup.task(forever()), sibling.task(forever()), sibling.task(maker(leaf)), outside]
        assert await until(lambda: len(leaves) == 1)
        root = scope.task(maker(leaf))
        assert await until(lambda: len(leaves) == 2)

        receipt = await scope.stop()
        assert receipt.confirmed, receipt.sentence()
        assert root.done() and leaves[1].cancelled()
        assert receipt.tasks and all(one.end != "alive" for one in receipt.tasks)
        assert not any(one.done() or one.cancelling() for one in [*others, leaves[0]])
        outside.cancel()
        assert await outcome(outside) == "cancelled"

    run_within(EVERY_LOOP[make], body)


def test_a_task_that_hosts_another_scope_is_still_the_scopes_own(run: Run) -> None:
    """H07: a server's handler, made around the factory, opens a scope for its request: the server's scope ends it."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("server")
        handlers: list[AnyTask] = []
        waiting = asyncio.Event()

        async def handle() -> None:
            async with scope.scope("request"):
                waiting.set()
                await forever()

        async def serve() -> None:
            handlers.append(asyncio.Task(handle(), loop=asyncio.get_running_loop()))
            await forever()

        scope.task(serve())
        await waiting.wait()
        receipt = await scope.stop()
        ended = handlers[0].done()
        if not ended:  # so that only this test fails
            handlers[0].cancel()
        assert ended and receipt.confirmed

    run(body)


# -- who is not touched


def test_the_host_of_a_block_is_not_cancelled_by_its_stop(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        me = asyncio.current_task()
        assert me is not None
        async with sup.scope("x") as scope:
            inside = asyncio.create_task(forever())
            receipt = await scope.stop()
            assert receipt.confirmed and inside.cancelled()
            await asyncio.sleep(0)
        assert me.cancelling() == 0

    run(body)


def test_a_block_that_is_left_in_another_task_does_not_cancel_that_task(run: Run) -> None:
    """Test runners enter and leave a fixture in two tasks of one context: neither is a member."""

    async def body(sup: quell.Supervisor) -> None:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        scope = sup.scope("x")

        async def enter() -> None:
            await scope.__aenter__()
            asyncio.create_task(forever(), name="inside")  # noqa: RUF006  the scope holds it

        async def leave() -> None:
            await scope.__aexit__(None, None, None)

        await loop.create_task(enter(), context=context)
        assert await outcome(loop.create_task(leave(), context=context)) == "done"
        assert scope.receipt is not None and [one.name for one in scope.receipt.tasks] == ["inside"]

    run(body)


def test_the_task_that_is_in_the_block_of_an_inner_scope_ends_with_the_outer_one(run_patiently: Run) -> None:
    """H05: a task inside the block of an inner scope, or an inner scope that was entered, holds up nobody."""

    async def body(sup: quell.Supervisor) -> None:
        async def session(scope: quell.Scope) -> None:
            async with scope.scope("turn") as turn:
                turn.task(forever())
                await forever()

        outer = sup.scope("session")
        root = outer.task(session(outer), name="session")
        await outer.enter(outer.scope("entered"))
        assert await until(lambda: len(outer.nested()) == 2)
        began = time.monotonic()
        receipt = await outer.stop()
        assert receipt.confirmed, receipt.sentence()
        assert root.done() and time.monotonic() - began < AT_ONCE

    run_patiently(body)


# -- after the stop


EAGERLY: list[dict[str, bool]] = [{}, {"eager_start": True}] if sys.version_info >= (3, 12) else [{}]


@pytest.mark.parametrize("options", EAGERLY, ids=str)
def test_what_is_made_for_a_stopped_scope_never_takes_its_first_step(run: Run, options: dict[str, bool]) -> None:
    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        contexts: list[contextvars.Context] = []
        ran: list[int] = []

        async def root() -> None:
            contexts.append(contextvars.copy_context())
            await forever()

        async def late() -> None:
            ran.append(1)

        scope.task(root())
        assert await until(lambda: len(contexts) == 1)
        assert (await scope.stop()).confirmed
        loop = asyncio.get_running_loop()
        make: Any = loop.get_task_factory()  # as loops call it, which hand on options that they do not know
        known = {} if make.__name__ == "factory" else options  # asyncio's own eager factory takes none on 3.13.0
        task = make(loop, late(), context=contexts[0], **known)
        assert await outcome(task) == "cancelled"
        assert ran == []
        assert scope.members() == set()

    run(body)


def test_an_asker_outside_hears_that_the_scope_was_stopped_and_is_not_cancelled(run: Run) -> None:
    """Nobody cancelled the asker, so no cancellation reaches it; and it does not wait for ever."""

    async def body(sup: quell.Supervisor) -> None:
        @contextlib.asynccontextmanager
        async def slow() -> AsyncIterator[None]:
            await forever()
            yield

        for steps in range(5):
            scope = sup.scope("x")
            asker = asyncio.ensure_future(scope.enter(slow()))
            for _ in range(steps):
                await asyncio.sleep(0)
            assert (await scope.stop()).confirmed
            assert await outcome(asyncio.wait_for(asker, AT_ONCE)) == "ScopeStoppedError", f"after {steps} steps"

    run(body)


# -- the order


def test_a_clean_up_that_needs_its_helper_gets_it_and_takes_no_time(run_patiently: Run) -> None:
    """H07: roots first, then what they left: cancelled together, the clean-up would wait for one that is gone."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        said: list[str] = []

        async def root() -> None:
            questions: asyncio.Queue[asyncio.Future[str]] = asyncio.Queue()

            async def answer() -> None:
                while True:
                    (await questions.get()).set_result("goodbye")

            helper = asyncio.create_task(answer())
            try:
                await forever()
            finally:
                question = asyncio.get_running_loop().create_future()
                await questions.put(question)
                said.append(await question)
                assert not helper.done()

        task = scope.task(root())
        await asyncio.sleep(0.01)
        began = time.monotonic()
        receipt = await scope.stop()
        assert receipt.confirmed and task.cancelled()
        assert said == ["goodbye"] and time.monotonic() - began < AT_ONCE

    run_patiently(body)


# -- what will not end


@pytest.mark.parametrize("direct", [False, True], ids=["a task of the scope", "a task made around the factory"])
def test_a_task_that_swallows_every_cancel_is_named_with_its_line(run: Run, direct: bool) -> None:
    """H17: it is not claimed that it has ended. H15: the stop ends within its ladder all the same."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        cancels: list[int] = []
        let_go = asyncio.Event()

        async def deaf() -> None:
            while not let_go.is_set():
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    cancels.append(1)

        async def root() -> None:
            kept.append(asyncio.Task(deaf(), loop=asyncio.get_running_loop(), name="deaf"))
            await forever()

        kept: list[AnyTask] = []
        if direct:
            scope.task(root())
        else:
            kept.append(scope.task(deaf(), name="deaf"))
        await asyncio.sleep(0.01)
        began = time.monotonic()
        receipt = await scope.stop()
        seconds = time.monotonic() - began
        let_go.set()
        kept[0].cancel()
        assert await outcome(kept[0]) == "done"

        assert not receipt.confirmed and len(cancels) >= 2
        [named] = [one for one in receipt.tasks if one.end == "alive"]
        assert named.name == "deaf" and named.where is not None and named.where.endswith("in sleep")
        assert "1 task would not end: deaf at" in receipt.sentence()
        assert seconds < AT_ONCE

    run(body)


@pytest.mark.parametrize("direct", [False, True], ids=["by the factory", "around the factory"])
def test_a_task_that_is_born_of_the_last_cancel_is_named(run: Run, direct: bool) -> None:
    """H17: whoever lives when the receipt is written is on it, however late it came."""

    async def body(sup: quell.Supervisor) -> None:
        scope = sup.scope("x")
        born: list[AnyTask] = []
        enough = asyncio.Event()

        async def heir() -> None:
            with contextlib.suppress(asyncio.CancelledError):
                await forever()
            if not enough.is_set():
                loop = asyncio.get_running_loop()
                born.append(asyncio.Task(heir(), loop=loop) if direct else loop.create_task(heir()))

        scope.task(heir())
        await asyncio.sleep(0.01)
        receipt = await scope.stop()
        enough.set()
        await asyncio.sleep(0)
        alive = [task for task in born if not task.done()]
        for task in alive:
            task.cancel()
            assert await outcome(task) == "done"
        assert not alive or not receipt.confirmed

    run(body)


class _NoWords(Exception):
    def __str__(self) -> str:
        raise ValueError("no words for it")


def test_an_error_that_cannot_be_put_into_words_does_not_hold_up_the_stop(run: Run) -> None:
    """H63, H17: the receipt is written whatever the members raise."""

    async def body(sup: quell.Supervisor) -> None:
        async def root() -> None:
            try:
                await forever()
            finally:
                raise _NoWords

        scope = sup.scope("x")
        scope.task(root(), name="root")
        await asyncio.sleep(0.01)
        receipt = await asyncio.wait_for(scope.stop(), AT_ONCE)
        assert receipt.confirmed
        assert [one.end.startswith("failed: _NoWords") for one in receipt.tasks] == [True]

    run(body)


# -- the factory


def test_a_replaced_factory_is_said_at_once(run: Run) -> None:
    """H16: what ownership needs is probed, and its loss is an error, not a silent leak."""

    async def body(sup: quell.Supervisor) -> None:
        def other(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> AnyTask:
            return asyncio.Task(coroutine, loop=loop, **options)

        @contextlib.asynccontextmanager
        async def manager() -> AsyncIterator[None]:
            yield

        loop = asyncio.get_running_loop()
        ours = loop.get_task_factory()
        scope = sup.scope("x")
        for replacement in (other, None):
            loop.set_task_factory(replacement)
            try:
                with pytest.raises(quell.OwnershipError, match=r"its task factory was replaced by .+; set one before"):
                    scope.task(forever())
                with pytest.raises(quell.OwnershipError):
                    await scope.spawn(["true"])
                with pytest.raises(quell.OwnershipError):
                    await scope.enter(manager())
                with pytest.raises(quell.OwnershipError):
                    sup.scope("y")
            finally:
                loop.set_task_factory(ours)
        task = scope.task(forever())
        assert (await scope.stop()).confirmed and task.done()

    run(body)


def test_what_was_made_by_a_factory_that_replaced_ours_is_found_by_the_sweep(run: Run) -> None:
    """H07: a stop ends it, though nothing new starts."""

    async def body(sup: quell.Supervisor) -> None:
        loop = asyncio.get_running_loop()
        ours = loop.get_task_factory()
        scope = sup.scope("x")
        made: list[AnyTask] = []

        async def root() -> None:
            loop.set_task_factory(None)
            made.append(asyncio.create_task(forever()))
            await forever()

        scope.task(root())
        assert await until(lambda: len(made) == 1)
        receipt = await scope.stop()
        loop.set_task_factory(ours)
        assert receipt.confirmed and made[0].cancelled()

    run(body)


def test_a_factory_that_calls_ours_is_accepted_and_stays(run: Run) -> None:
    """H16: what was put around ours is not thrown away by the next supervisor on the loop either."""

    async def body(sup: quell.Supervisor) -> None:
        loop = asyncio.get_running_loop()
        ours: Any = loop.get_task_factory()
        seen: list[AnyTask] = []

        @functools.wraps(ours)
        def around(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> Any:
            seen.append(ours(loop, coroutine, **options))
            return seen[-1]

        loop.set_task_factory(around)
        scope = sup.scope("x")
        made: list[AnyTask] = []

        async def root() -> None:
            made.append(asyncio.create_task(forever()))
            await forever()

        scope.task(root())
        assert await until(lambda: len(made) == 1)
        async with quell.Supervisor() as second:
            made.append(asyncio.create_task(forever()))
            assert second.members() == {made[1]}
        assert loop.get_task_factory() is around and set(made) <= set(seen)
        assert (await scope.stop()).confirmed and all(task.done() for task in made)
        loop.set_task_factory(ours)

    run(body)


def test_supervisors_on_one_loop_share_the_factory_and_leave_the_old_one(run: Run) -> None:
    async def body(sup: quell.Supervisor) -> None:
        loop = asyncio.get_running_loop()
        shared = loop.get_task_factory()
        second = quell.Supervisor()
        async with second:
            assert loop.get_task_factory() is shared
            mine, theirs = sup.scope("x").task(forever()), second.scope("x").task(forever())
        assert loop.get_task_factory() is shared
        assert theirs.done() and not mine.done()
        await sup.stop()
        assert loop.get_task_factory() is not shared

    run(body)


@pytest.mark.parametrize("make", EVERY_LOOP)
def test_the_factory_that_was_there_is_back_after_the_last_supervisor(make: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        before = loop.get_task_factory()
        first, second = quell.Supervisor(), quell.Supervisor()
        await first.__aenter__()
        await second.__aenter__()
        assert loop.get_task_factory() is not before
        await first.stop()
        task = second.task(forever())
        await second.stop()
        assert task.done() and loop.get_task_factory() is before

    with asyncio.Runner(loop_factory=EVERY_LOOP[make]) as runner:
        runner.run(main())
