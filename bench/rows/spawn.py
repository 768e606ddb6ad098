"""Spawn `true` until its exit is seen; the same from a process with 1 GB of heap; and one after another."""

import asyncio
import os
import shutil
import time

from bench.command import BWRAP, popen
from bench.ending import rungs
from bench.line import Ceiling, Line, compared, lines, times
from bench.safety import safely
from bench.sampling import Contender, Samples, take_turns
from quell.supervise import Box, Zygote

SPAWN = Ceiling(1.3)
RATE = Ceiling(0.7, floor=True)
HEAP = 1 << 30
PAGE = os.sysconf("SC_PAGE_SIZE")
AT_ONCE = 8
IN_A_ROW = 50
PAUSE = 0.005
"""Seconds after each: a zygote makes a new box for the next one when it has handed one out."""

Runner = asyncio.Runner


def measure(quick: bool) -> list[Line]:
    rounds = 15 if quick else 80
    return lines([*safely(small, rounds), *safely(large, rounds // 2), *safely(rates, 5 if quick else 15)])


# -- contenders


def on_loop(runner: Runner, argv: list[str]) -> Contender:
    async def spawn() -> float:
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(*argv)
        await process.wait()
        return time.perf_counter() - began

    return lambda: runner.run(spawn())


def in_new_box(zygote: Zygote) -> Contender:
    """The box is stopped outside of the time that counts, as asyncio's loop is."""

    def once() -> float:
        began = time.perf_counter()
        box = zygote.box()
        box.spawn(["true"]).wait()
        seconds = time.perf_counter() - began
        box.stop(force=True)
        return seconds

    return once


def in_box(box: Box) -> Contender:
    def once() -> float:
        began = time.perf_counter()
        box.spawn(["true"]).wait()
        return time.perf_counter() - began

    return once


# -- lines


def small(rounds: int) -> list[Line]:
    with Runner() as runner:
        contenders: dict[str, Contender] = {
            "asyncio": on_loop(runner, ["true"]),
            "subprocess.Popen": popen(["true"]),
            "`unshare -p -f`": on_loop(runner, ["unshare", "-p", "-f", "true"]),
        }
        if shutil.which("bwrap"):
            contenders["`bwrap`"] = on_loop(runner, [*BWRAP, "true"])
        peers = list(contenders)
        zygotes = {rung: Zygote(rung) for rung in rungs() if rung != "userns"}  # userns is for one box per zygote
        for rung, zygote in zygotes.items():
            contenders[f"{rung} new"] = in_new_box(zygote)
            contenders[f"{rung} reused"] = in_box(zygote.box())
        samples = take_turns("spawn", contenders, rounds, pause=PAUSE)
        for zygote in zygotes.values():
            zygote.close()
    found = []
    for rung in zygotes:
        for place, name in (("a new box from the pool", "new"), ("a reused box", "reused")):
            work = f"spawn `true` → exit seen, {place}, {rung}"
            found.append(compared(work, samples, f"{rung} {name}", "asyncio", SPAWN))
    best = next(iter(zygotes))
    others = [compared(f"the same, a new box, {best}", samples, f"{best} new", peer) for peer in peers[1:]]
    return [*found, *others]


def large(rounds: int) -> list[Line]:
    """With 1 GB of heap, where a fork in the owner's process would copy its page tables."""
    import uvloop

    heap = fill_heap()
    rung = rungs()[0]
    with Runner() as plain, Runner(loop_factory=uvloop.new_event_loop) as fast, Zygote(rung) as zygote:
        contenders: dict[str, Contender] = {
            "asyncio": on_loop(plain, ["true"]),
            "new": in_new_box(zygote),
            "uvloop": on_loop(fast, ["true"]),
            "reused": in_box(zygote.box()),
        }
        samples = take_turns("spawn with 1 GB of heap", contenders, rounds, pause=PAUSE)
    heap.clear()
    return [
        compared(f"spawn with 1 GB of heap, {name}, {rung}", samples, ours, peer, SPAWN)
        for ours, name in (("new", "a new box from the pool"), ("reused", "a reused box"))
        for peer in ("asyncio", "uvloop")
    ]


def fill_heap() -> bytearray:
    """Memory of which every page is there."""
    heap = bytearray(HEAP)
    for page in range(0, HEAP, PAGE):
        heap[page] = 1
    return heap


def rates(rounds: int) -> list[Line]:
    rung = rungs()[0]
    with Runner() as runner, Zygote(rung) as zygote:
        box = zygote.box()
        in_a_row: dict[str, Contender] = {
            "asyncio": repeated(on_loop(runner, ["true"])),
            "ours": repeated(in_box(box)),
            "new": repeated(in_new_box(zygote)),
        }
        if shutil.which("bwrap"):
            in_a_row["`bwrap`"] = repeated(on_loop(runner, [*BWRAP, "true"]))
        rows = take_turns("spawn, sustained", in_a_row, rounds)
        at_once: dict[str, Contender] = {"asyncio": lambda: runner.run(gathered()), "ours": together(box)}
        bursts = take_turns("spawn, at once", at_once, rounds)
    found = [rate(f"`true` one after another in one box, {rung}", rows, "ours", "asyncio", IN_A_ROW, RATE)]
    if "`bwrap`" in in_a_row:
        work = f"`true` one after another, a box made and stopped for each, {rung}"
        found.append(rate(work, rows, "new", "`bwrap`", IN_A_ROW, None))
    return [*found, rate(f"`true`, {AT_ONCE} at once in one box, {rung}", bursts, "ours", "asyncio", AT_ONCE, None)]


def repeated(once: Contender) -> Contender:
    def many() -> float:
        began = time.perf_counter()
        for _ in range(IN_A_ROW):
            once()
        return time.perf_counter() - began

    return many


async def gathered() -> float:
    began = time.perf_counter()
    processes = [await asyncio.create_subprocess_exec("true") for _ in range(AT_ONCE)]
    await asyncio.gather(*(process.wait() for process in processes))
    return time.perf_counter() - began


def together(box: Box) -> Contender:
    def once() -> float:
        began = time.perf_counter()
        for tree in [box.spawn(["true"]) for _ in range(AT_ONCE)]:
            tree.wait()
        return time.perf_counter() - began

    return once


def rate(work: str, samples: Samples, ours: str, peer: str, count: int, target: Ceiling | None) -> Line:
    ratio = samples.ratio(peer, ours)  # of times: the rate's is its inverse
    met = target.holds(ratio.p50) if target else None
    theirs, own = (f"{count / samples.of(name).p50:.0f}/s" for name in (peer, ours))
    return Line(work, peer, theirs, own, times(ratio), str(target or "–"), met)
