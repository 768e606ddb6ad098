"""The whole runtime: a stop among 200 busy sessions, one turn, events to a follower, its start, and what it keeps."""

import asyncio
import gc
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.line import Line, compared, lines, ms, us
from bench.rows.log import in_new_log, plain
from bench.safety import safely
from bench.sampling import Contender, Samples, Spread, spread, take_turns, tell
from quell import Agent, Runtime, Session, Settings
from quell.events import MessageUser, PluginEvent
from quell.kernel.runtime import Runtime as Kernel
from quell.ports import Ask, Chunk, PluginContext, Text

BUSY = 200
WORD_EVERY = 0.02
"""Seconds between two words of a busy model: 200 of them say 10,000 words a second."""
GRACE = 0.2
STOP_LIMIT = 0.050
READY_LIMIT = 1.0
MEMORY_LIMIT = 80.0
EVENTS, TOGETHER = 6400, 64
KEPT_LIMIT = 16
"""Bytes for each one-shot session that are none: memory is counted in pages."""
FLAT = 5000
"""Sessions after which the allocators have taken what they need."""

Work = Callable[[Kernel, str], Coroutine[Any, Any, Any]]


def measure(quick: bool) -> list[Line]:
    return lines(
        [
            *safely(stops, 100 if quick else 1000),
            *safely(turns, 20 if quick else 100),
            *safely(followed, 3 if quick else 15),
            *safely(starts, 4 if quick else 20),
            *safely(kept, 1000 if quick else 10_000),
        ]
    )


class Chatty:
    """A model that goes on and on."""

    name = "chatty"

    def setup(self, ctx: PluginContext) -> None:
        ctx.model("chatty", lambda: self)

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        while True:
            yield Text("word ")
            await asyncio.sleep(WORD_EVERY)


AGENTS = [Agent(name="chatty", model="chatty", tools=()), Agent(name="worker", approval={"*": "allow"})]


def with_runtime(work: Work) -> Any:
    """What the work gives, in a runtime of its own."""

    async def main(folder: str) -> Any:
        settings = Settings(term=GRACE)
        async with Runtime(state_dir=folder, agents=AGENTS, plugins=[Chatty()], settings=settings) as rt:
            return await work(rt, folder)

    with tempfile.TemporaryDirectory(prefix="quell-bench-kernel-") as folder:
        return asyncio.run(main(folder))


# -- stops


def stops(count: int) -> list[Line]:
    tell("kernel: stops")
    streaming, deaf = with_runtime(lambda rt, folder: stop_often(rt, folder, count))
    what = f"stop (turn) with {BUSY} busy sessions"
    return [
        limited(f"{what}, p99 of {len(streaming)}: one that streams", streaming, STOP_LIMIT),
        limited(
            f"{what}, p99 of {len(deaf)}: one whose process ignores TERM, grace {GRACE:g} s", deaf, GRACE + STOP_LIMIT
        ),
    ]


def limited(work: str, taken: list[float], limit: float) -> Line:
    p50, p99 = statistics.median(taken), statistics.quantiles(taken, n=100, method="inclusive")[98]
    says = f"{p99 * 1000:.1f} ms (p50 {p50 * 1000:.1f} ms)"
    return Line(work, "–", "–", says, "–", f"≤ {limit * 1000:g} ms", p99 <= limit)


async def stop_often(rt: Kernel, folder: str, count: int) -> tuple[list[float], list[float]]:
    busy = [await rt.open("chatty", folder) for _ in range(BUSY)]
    worker = await rt.open("worker", folder)
    for one in busy:
        one.send("Go on.")
    await asyncio.sleep(1)  # until all of them speak at their pace
    streaming, deaf = [], []
    for number in range(count):
        streaming.append(await stopped(busy[number % BUSY]))
        busy[number % BUSY].send("Go on.")
        if number % 10 == 0:
            await deaf_command(worker)
            deaf.append(await stopped(worker))
    return streaming, deaf


async def stopped(session: Session) -> float:
    began = time.perf_counter()
    await session.stop(reach="turn")
    return time.perf_counter() - began


async def deaf_command(session: Session) -> None:
    """Until it is deaf: it says so."""
    async for event in session.send("$ trap '' TERM; echo deaf; exec sleep 1000"):
        if event.kind == "tool.output":
            return


# -- one turn


def turns(rounds: int) -> list[Line]:
    """Beside the same command by asyncio alone, on the same loop."""
    with ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory(prefix="quell-bench-kernel-"))
        runner = exits.enter_context(asyncio.Runner())
        rt = Runtime(state_dir=folder)
        runner.run(rt.__aenter__())
        session = runner.run(rt.open(cwd=folder))

        async def turn() -> float:
            began = time.perf_counter()
            await session.send("$ true")
            return time.perf_counter() - began

        async def bare() -> float:
            began = time.perf_counter()
            process = await asyncio.create_subprocess_exec("/bin/bash", "-c", "true", stdout=subprocess.PIPE)
            await process.communicate()
            return time.perf_counter() - began

        def on_loop(once: Callable[[], Coroutine[Any, Any, float]]) -> Contender:
            async def and_a_pause() -> float:
                seconds = await once()
                await asyncio.sleep(0.01)  # what is left to hear is on nobody's account
                return seconds

            return lambda: runner.run(and_a_pause())

        contenders = {"asyncio": on_loop(bare), "turn": on_loop(turn)}
        samples = take_turns("kernel: turns", contenders, rounds, warm=3)
        runner.run(rt.close())
    return [compared("a whole scripted turn, `$ true`, all of it on disk", samples, "turn", "asyncio")]


# -- events


def followed(rounds: int) -> list[Line]:
    """Seconds per event from `emit` until a follower has the last, beside SQLite's own batches."""
    contenders: dict[str, Contender] = {
        "SQLite, batches of 64": in_new_log(plain),
        "followed": lambda: float(with_runtime(emit_many)),
        "alone": lambda: float(with_runtime(emit_one_by_one)),
    }
    samples = take_turns("kernel: events", contenders, rounds)
    rate = f"{1 / samples.of('followed').p50:,.0f} events/s".replace(",", " ")
    return [
        in_us(f"event → log, bus, follower, {TOGETHER} at a time ({rate})", samples, "followed"),
        Line("event → log → follower has it, one at a time", "–", "–", ms(samples.of("alone"))),
    ]


def in_us(work: str, samples: Samples, ours: str) -> Line:
    peer = "SQLite, batches of 64"
    ratio = samples.ratio(ours, peer)
    return Line(work, peer, us(samples.of(peer)), us(samples.of(ours)), f"{ratio.p50:.2f}×")


async def emit_many(rt: Kernel, folder: str) -> float:
    journal, session = rt.host.journal, await rt.open(cwd=folder)
    follower, data = rt.follow(journal.last), "x" * 560

    async def emit() -> None:
        for _ in range(EVENTS // TOGETHER):
            for _ in range(TOGETHER):
                journal.emit(PluginEvent(plugin="bench", name="event", session=session.id, data=data))
            await journal.flushed()

    began, last = time.perf_counter(), journal.last + EVENTS
    emitting = asyncio.ensure_future(emit())
    async for event in follower:
        if event.seq == last:
            break
    await emitting
    return (time.perf_counter() - began) / EVENTS


async def emit_one_by_one(rt: Kernel, folder: str) -> float:
    journal, taken = rt.host.journal, []
    follower = rt.follow(journal.last)
    for _ in range(200):
        began = time.perf_counter()
        seq = journal.emit(MessageUser(session="bench", text="Hello.")).seq
        async for event in follower:
            if event.seq == seq:
                break
        taken.append(time.perf_counter() - began)
    return statistics.median(taken)


# -- start and memory


PROGRAM = """
import asyncio, quell
async def main():
    async with quell.Runtime(state_dir={folder!r}):
        status = open("/proc/self/status").read()
        print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")), flush=True)
asyncio.run(main())
"""
PASS = "`python3 -I -c pass`"


def starts(rounds: int) -> list[Line]:
    sizes: list[float] = []

    def ready() -> float:
        with tempfile.TemporaryDirectory(prefix="quell-bench-kernel-") as folder:
            began = time.perf_counter()
            with subprocess.Popen(
                [sys.executable, "-c", PROGRAM.format(folder=folder)], stdout=subprocess.PIPE
            ) as program:
                assert program.stdout is not None
                sizes.append(int(program.stdout.readline()) / 1024)
                return time.perf_counter() - began

    def bare() -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-c", "pass"], check=True)
        return time.perf_counter() - began

    async def empty(rt: Kernel, folder: str) -> float:
        return time.perf_counter()

    def inside() -> float:
        began = time.perf_counter()
        return float(with_runtime(empty)) - began

    samples = take_turns("kernel: start", {PASS: bare, "ready": ready, "inside": inside}, rounds)
    memory = spread(sizes)
    return [
        up_to("a program with `quell.Runtime`: start → ready", samples, "ready", READY_LIMIT),
        up_to("`quell.Runtime` in a running program: start → ready", samples, "inside", READY_LIMIT),
        Line(
            "memory of a runtime before a model is used (RSS)",
            "–",
            "–",
            f"{memory.p50:.1f} MB",
            "–",
            f"≤ {MEMORY_LIMIT:g} MB",
            memory.p50 <= MEMORY_LIMIT,
        ),
    ]


def up_to(work: str, samples: Samples, ours: str, limit: float) -> Line:
    figure: Spread = samples.of(ours)
    return Line(work, PASS, ms(samples.of(PASS)), ms(figure), "–", f"≤ {limit:g} s", figure.p50 <= limit)


def kept(count: int) -> list[Line]:
    size, each = with_runtime(lambda rt, folder: one_shots(rt, folder, count))
    work = f"memory kept per one-shot session, {count} of them ({each * 1000:.1f} ms each, one after another)"
    return [Line(work, "–", "–", f"{size:.0f} B", "–", f"≤ {KEPT_LIMIT} B", size <= KEPT_LIMIT)]


async def one_shots(rt: Kernel, folder: str, count: int) -> tuple[float, float]:
    async def some(number: int) -> None:
        for _ in range(number):
            session = await rt.open(cwd=folder)
            await session.send("Hello.")
            await session.close()

    tell("kernel: one-shot sessions")
    await some(max(count, FLAT))
    flat, began = anonymous(), time.perf_counter()
    await some(count)
    seconds = time.perf_counter() - began
    return max(0, anonymous() - flat) / count, seconds / count


def anonymous() -> int:
    """Bytes of memory that are ours alone."""
    gc.collect()
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon:"))
