"""A process that owns idle children: `python -m bench.owner WAY COUNT` says what they cost it, as JSON.

WAY is a rung of ours, with all of them in one box; `supervisor`, in one scope on asyncio; or asyncio's own, `asyncio`.
"""

import asyncio
import json
import resource
import sys
from pathlib import Path

from quell import Supervisor
from quell.supervise import NULL, Zygote

IDLE = ["sleep", "1000"]


def status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def say(threads: int, rss: int) -> None:
    json.dump({"threads": status("Threads") - threads, "mb": (status("VmRSS") - rss) / 1024}, sys.stdout)


def by_us(rung: str, count: int) -> None:
    with Zygote(rung) as zygote:
        box = zygote.box()
        box.spawn(["true"]).wait()
        before = status("Threads"), status("VmRSS")
        for _ in range(count):
            box.spawn(IDLE, stdin=NULL)
        say(*before)


async def by_supervisor(count: int) -> None:
    """Its own thread counts as well."""
    threads = status("Threads")
    async with Supervisor() as supervisor:
        await (await supervisor.spawn(["true"])).wait()
        rss = status("VmRSS")
        processes = [await supervisor.spawn(IDLE, stdin=NULL) for _ in range(count)]
        say(threads, rss)
        await supervisor.stop(force=True)
    del processes


async def by_asyncio(count: int) -> None:
    await (await asyncio.create_subprocess_exec("true")).wait()
    before = status("Threads"), status("VmRSS")
    processes = [await asyncio.create_subprocess_exec(*IDLE) for _ in range(count)]
    say(*before)
    for process in processes:
        process.kill()
    await asyncio.gather(*(process.wait() for process in processes))


def main(way: str, count: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if way in ("asyncio", "supervisor"):
        asyncio.run((by_asyncio if way == "asyncio" else by_supervisor)(int(count)))
    else:
        by_us(way, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
