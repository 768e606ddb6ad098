"""Functions that are tools and run in a process of their own. Nothing of Quell is imported here."""

import os
import signal
import sys
import time


def look(who: str, often: int = 1, more: list[float] | None = None) -> dict[str, object]:
    """Say where it runs."""
    print(f"looking for {who}", flush=True)
    print("ünd eine Warnung", file=sys.stderr)
    return {
        "who": who * often,
        "more": more,
        "pid": os.getpid(),
        "cwd": os.getcwd(),
        "environ": sorted(os.environ),
        "heavy": sorted({"quell", "msgspec", "json", "asyncio"} & set(sys.modules)),
        "input": sys.stdin.read(),
        "files": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    }


def numbered(names: dict[int, str]) -> str:
    """Count."""
    return str({number + 1: name for number, name in names.items()})


def word() -> str:
    """Say a word."""
    return "ein Wört \ud800"


def gives_nothing() -> None:
    """Do nothing."""


def fails() -> str:
    """Fail."""
    raise ValueError("no good")


def leaves() -> str:
    """Exit."""
    sys.exit(3)


def leaves_at_once() -> str:
    """Exit without a word."""
    print("last words")
    sys.stdout.flush()
    os._exit(4)


def is_killed() -> str:
    """Be killed."""
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def crashes() -> str:
    """Do what C does."""
    import ctypes
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)
    return ""


def gives_a_thing() -> object:
    """Give a thing."""
    return object()


def gives_too_much() -> str:
    """Give too much."""
    return "x" * (17 << 20)


def gives_much() -> str:
    """Give much."""
    return "é" * (1 << 20)


def floods() -> str:
    """Print too much."""
    for _ in range(80):
        print("y" * 65536)
    return "done"


def leaves_somebody() -> str:
    """Leave somebody behind, who holds the pipes."""
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    return "left"


def comes_back_twice() -> str:
    """Fork, and return in both."""
    return "child" if os.fork() == 0 else "parent"


def dies_and_leaves_somebody() -> str:
    """Be killed, and leave somebody who holds the pipes."""
    if os.fork() == 0:
        time.sleep(600)
    os.kill(os.getpid(), signal.SIGKILL)
    return ""


def lingers() -> str:
    """Leave a thread that keeps the interpreter."""
    import threading

    threading.Thread(target=time.sleep, args=(600,)).start()
    return "given"


def blocks(stubborn: bool = False) -> str:
    """Sleep, and say when."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("asleep")
    time.sleep(600)
    return ""


def counts() -> str:
    """Be busy in C, where Python hears of nothing."""
    print("counting")
    return str(sum(range(1 << 62)))
