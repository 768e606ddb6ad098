"""A random scenario from a seed: runtimes that live and die on one disk, and what must be gone when each has ended."""

from __future__ import annotations

import asyncio
import re

from quell.errors import QuellError, StoreError
from quell.supervise import Receipt
from quell.supervise.where import where

from .people import STOP_BOUND, Person
from .world import Run, World

PATIENCE = 20.0
"""Seconds in which everything is gone after a close: what would not end in time ends some day."""


async def play(world: World) -> None:
    """One to three runtimes on one disk; the last one stops in order, on a disk that works."""
    lives = world.chance.choice((1, 1, 2, 3))
    for number in range(lives):
        fate = world.chance.choice(("close", "close", "crash", "crash", "disk", "outside"))
        await live(world, fate, number)
    await live(world, "none", lives)


async def live(world: World, fate: str, number: int) -> None:
    """One runtime. `fate` is how it ends; `none`: it is started, looks at what there is, and is stopped."""
    run, chance, loop = Run(world), world.chance, asyncio.get_running_loop()
    most = chance.choice((0.1, 3.0, 20.0, 60.0, 60.0))
    end = 0.0 if fate == "none" else chance.uniform(0, most)
    world.say(f"runtime {number}: {fate} after {end:.3f} s")
    doom = loop.create_future()
    strike = {"crash": run.crash, "disk": run.fail_disk}.get(fate, lambda: None)
    clocks = [loop.call_later(end, strike), loop.call_later(end, doom.set_result, None)]
    before = asyncio.all_tasks()
    people: list[asyncio.Task[None]] = []
    if await _started(run, cancel=fate != "none" and chance.random() < 0.1):
        await take_up(run)
        if fate != "none":
            people = [
                asyncio.create_task(Person(run).act(), name=f"person {one}") for one in range(chance.randrange(1, 4))
            ]
            people += [asyncio.create_task(watch(run), name="watcher") for _ in range(chance.randrange(2))]
        await doom
        if fate == "disk":
            await asyncio.sleep(chance.choice((0.0, 0.1, 20.0)))
    for clock in clocks:
        clock.cancel()
    await _close(run, outside=fate == "outside")
    for one in people:
        one.cancel()
    for one in people:
        await _ended(run, one)
    await _gone(run, before)


async def _started(run: Run, cancel: bool) -> bool:
    world = run.world
    starting = asyncio.ensure_future(run.runtime.__aenter__())
    if cancel:
        asyncio.get_running_loop().call_later(world.chance.choice((0.0, 0.001, 0.1)), starting.cancel)
    try:
        await starting
    except asyncio.CancelledError:
        world.say("its start was cancelled")
        return False
    except QuellError as error:
        world.say(f"it did not start: {error}")
        if run.well and not cancel:
            world.accuse(f"a runtime did not start: {error}")
        return False
    return True


async def _close(run: Run, outside: bool) -> None:
    world, chance, loop = run.world, run.world.chance, asyncio.get_running_loop()
    force, began = chance.random() < 0.3, loop.time()
    supervisor = run.runtime._supervisor
    if outside and supervisor is not None:
        world.say("stopped from outside")
        supervisor.begin_stop("from outside", None, force)
    world.say(f"close{' by force' if force else ''}")
    asking = [asyncio.ensure_future(run.runtime.close(force=force)) for _ in range(chance.choice((1, 1, 2)))]
    if len(asking) > 1:
        loop.call_later(chance.choice((0.0, 0.01, 1.0)), asking[0].cancel)
    receipt: Receipt | None = None
    for one in asking:
        try:
            receipt = await one
        except asyncio.CancelledError:
            continue
    took = loop.time() - began
    world.say(f"closed: {receipt.verdict if receipt else 'nobody asked'}")
    if took > STOP_BOUND:
        world.accuse(f"the runtime took {took:.1f} s to stop")
    if alive := [life.call for life in world.lives if life.ended is None]:
        world.accuse(f"commands outlived the runtime: {', '.join(alive)}")


async def _ended(run: Run, task: asyncio.Task[None]) -> None:
    world = run.world
    try:
        await task
    except asyncio.CancelledError:
        pass
    except StoreError as error:
        world.say(f"{task.get_name()}: {error}")
        if run.well:
            world.accuse(f"{task.get_name()} was told that the disk fails, which works: {error}")
    except Exception as error:  # noqa: BLE001  a boundary: told as what is wrong
        world.accuse(f"{task.get_name()} got {type(error).__name__}: {error} at {_line(error)}")


def _line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "?" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


async def _gone(run: Run, before: set[asyncio.Task[object]]) -> None:
    """Nothing of it is left: no task, no entry in a map."""
    loop, world = asyncio.get_running_loop(), run.world
    until = loop.time() + PATIENCE
    while (left := asyncio.all_tasks() - before) and loop.time() < until:  # noqa: ASYNC110  whoever they are
        await asyncio.sleep(0.1)
    for task in sorted(left, key=hash):
        world.accuse(f"a task is left: {task.get_name()} at {where(task)}")
        task.cancel()
    for words in leftovers(run):
        world.accuse(words)


def leftovers(run: Run) -> list[str]:
    """What the maps of a stopped runtime still hold."""
    runtime = run.runtime
    host, journal, bus, plugins = runtime._host, runtime._journal, runtime._bus, runtime._plugins
    maps: dict[str, object] = {}
    if host is not None:
        maps |= {"live sessions": host.live, "sessions being loaded": host._loading}
    if journal is not None and run.well:
        maps |= {"open requests": journal.requests, "begun tools": journal._begun, "numbers": journal._by_seq}
        maps |= {"waiting events": journal._waiting}
    if bus is not None:
        maps |= {"subscribers": bus._general, "particular subscribers": bus._particular, "waiters": bus._waiters}
    if plugins is not None:
        maps |= {"plugins": plugins._held}
    for session in run.sessions:
        maps |= {f"stops of {session.id}": session.halts, f"sub-agents of {session.id}": session.children}
        maps |= {f"jobs of {session.id}": session.commands._running, f"turn of {session.id}": session.turn or ()}
        if not run.dead and not session.parked:
            maps |= {f"senders of {session.id}": session._sent}
    return [f"{name} are left: {_names(held)}" for name, held in maps.items() if held]


def _names(held: object) -> str:
    """Without addresses, which differ from run to run."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(held))[:200]


async def take_up(run: Run) -> None:
    """Some of the sessions that the log has are resumed."""
    try:
        for info in await run.runtime.sessions():
            if run.world.chance.random() < 0.5:
                run.sessions.append(await run.runtime.resume(info.id))
    except QuellError as error:
        run.world.say(f"nothing is resumed: {error}")


async def watch(run: Run) -> None:
    """Follows the log, and sees every event once, in order, and only what is on disk."""
    world, last, seen = run.world, run.began, set[int]()
    after = last
    async for event in run.runtime.follow(after):
        if event.seq <= last:
            world.accuse(f"a follower saw {event.kind} {event.seq} after {last}")
        last = event.seq
        seen.add(event.seq)
        if not event.delta and event.seq > world.disk.safe and run.well:
            world.accuse(f"a follower saw {event.kind} {event.seq}, which is not on disk")
        if world.chance.random() < 0.02:
            await asyncio.sleep(world.stage.spell())
    if run.well:
        for row in world.disk.rows:
            if (
                row.seq > after
                and row.seq not in seen
                and not row.session
                and not row.kind.endswith((".delta", ".output"))
            ):
                world.accuse(f"a follower never saw {row.kind} {row.seq}")
