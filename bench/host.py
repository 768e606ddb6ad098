"""A runtime to be killed: `python -m bench.host WAY HELD BUILDING COUNT` starts a crowd, writes a line, and waits.

WAY is a rung of ours, `asyncio`, or `bwrap`. The line is the pid of our keeper, 0 for the others.
"""

import asyncio
import sys
import time

from bench.command import BWRAP
from bench.ending import PROGRAM
from quell.supervise import NULL, Zygote


def by_us(rung: str, argv: list[str]) -> int:
    box = Zygote(rung).box()
    box.spawn(argv, stdin=NULL)
    hold.append(box)
    return box.keeper


async def by_asyncio(argv: list[str]) -> None:
    await asyncio.create_subprocess_exec(*argv, stdin=asyncio.subprocess.DEVNULL)
    print(0, flush=True)
    await asyncio.sleep(1000)


hold: list[object] = []


def main(way: str, held: str, building: str, count: str) -> None:
    argv = [*PROGRAM, held, building, "mixed", count]
    if way in ("asyncio", "bwrap"):
        asyncio.run(by_asyncio([*BWRAP, "--die-with-parent", *argv] if way == "bwrap" else argv))
    print(by_us(way, argv), flush=True)
    time.sleep(1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
