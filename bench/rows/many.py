"""500 trees, half of them ignoring SIGTERM, with 1 s of grace, stopped all at once."""

import asyncio
import resource
import select
import time
from typing import Protocol, cast

from bench.ending import rungs
from bench.line import Line
from bench.safety import safely
from bench.sampling import tell
from quell import Supervisor
from quell.supervise import NULL, Box, Zygote

GRACE = 1.0
TARGET = GRACE + 2.0
POLITE = ["sleep", "1000"]
RUDE = ["sh", "-c", "trap '' TERM; exec sleep 1000"]


def measure(quick: bool) -> list[Line]:
    count = 50 if quick else 500
    peer = safely(by_asyncio, count)
    lines = []
    for rung in (rung for rung in rungs() if rung != "userns"):  # one zygote per box: not for hundreds of boxes
        for place, stop in WAYS.items():
            tell(f"many: {count} {place}, {rung}")
            built, seconds, confirmed = safely(stop, count, rung)
            says = f"{seconds:.2f} s{'' if confirmed else ', unconfirmed'} (made in {built:.1f} s)"
            work = f"stop {count} {place}, half ignore TERM, grace {GRACE:g} s, {rung}"
            met = confirmed and seconds <= TARGET
            lines.append(Line(work, PEER, f"{peer:.2f} s", says, f"{seconds / peer:.2f}×", f"≤ {TARGET:g} s", met))
    return lines


PEER = "asyncio, in parallel, children only"


def command(number: int) -> list[str]:
    return RUDE if number % 2 else POLITE


def more_files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def in_boxes(count: int, rung: str) -> tuple[float, float, bool]:
    more_files()
    began = time.perf_counter()
    with Zygote(rung) as zygote:
        boxes = []
        for number in range(count):
            boxes.append(zygote.box())
            boxes[-1].spawn(command(number), stdin=NULL)
        await_traps(count)
        asked = time.perf_counter()
        for box in boxes:
            box.ask_stop("stop", GRACE)
        pump(zygote, boxes)
        done = time.perf_counter()
        return asked - began, done - asked, all(box.stop().confirmed for box in boxes)


def pump(zygote: Zygote, boxes: list[Box]) -> None:
    """Hear every box until each has its receipt; only those who have something to say."""
    shared = {zygote.line.fileno(), zygote.end}
    speakers = Speakers()
    for box in boxes:
        speakers.box = box
        box.watch(cast(select.poll, speakers))
    poller = select.poll()
    for fd in speakers.boxes:
        poller.register(fd, select.POLLIN)
    while any(not box.over() for box in boxes):
        for fd, _ in poller.poll():
            if fd in shared:
                zygote.handle()
            else:
                speakers.boxes[fd].handle()
                if speakers.boxes[fd].over():
                    poller.unregister(fd)


class Speakers:
    """Takes the place of a poller, to learn which descriptor is whose."""

    def __init__(self) -> None:
        self.boxes: dict[int, Box] = {}
        self.box: Box

    def register(self, fd: "int | HasFileno", mask: int) -> None:
        self.boxes[fd if isinstance(fd, int) else fd.fileno()] = self.box


class HasFileno(Protocol):
    def fileno(self) -> int: ...


def in_one_box(count: int, rung: str) -> tuple[float, float, bool]:
    more_files()
    began = time.perf_counter()
    with Zygote(rung) as zygote:
        box = zygote.box()
        for number in range(count):
            box.spawn(command(number), stdin=NULL)
        await_traps(count)
        asked = time.perf_counter()
        receipt = box.stop(grace=GRACE)
        return asked - began, time.perf_counter() - asked, receipt.confirmed


def in_scopes(count: int, rung: str) -> tuple[float, float, bool]:
    return asyncio.run(by_supervisor(count, rung, True))


def in_shared_scopes(count: int, rung: str) -> tuple[float, float, bool]:
    return asyncio.run(by_supervisor(count, rung, False))


async def by_supervisor(count: int, rung: str, box: bool) -> tuple[float, float, bool]:
    more_files()
    began = time.perf_counter()
    async with Supervisor(contain=rung) as supervisor:
        everything = supervisor.scope("everything")
        for number in range(count):
            await everything.scope(str(number), box=box).spawn(command(number), stdin=NULL)
        await_traps(count)
        asked = time.perf_counter()
        receipt = await everything.stop(grace=GRACE)
        return asked - began, time.perf_counter() - asked, receipt.confirmed


def by_asyncio(count: int) -> float:
    async def stop(process: asyncio.subprocess.Process) -> None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), GRACE)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def run() -> float:
        processes = [await asyncio.create_subprocess_exec(*command(number)) for number in range(count)]
        await_traps(count)
        asked = time.perf_counter()
        await asyncio.gather(*map(stop, processes))
        return time.perf_counter() - asked

    more_files()
    return asyncio.run(run())


def await_traps(count: int) -> None:
    """Until every command is the sleep that it becomes, so that those that ignore TERM do."""
    from pathlib import Path

    while True:
        names = [file.read_text().strip() for file in Path("/proc").glob("[0-9]*/comm")]
        if names.count("sleep") >= count:
            return
        time.sleep(0.01)


WAYS = {
    "boxes": in_boxes,
    "trees in one box": in_one_box,
    "scopes of a supervisor, a box each": in_scopes,
    "scopes of a supervisor in one box": in_shared_scopes,
}
