"""A program that makes a crowd to be ended, and becomes a member of it: `crowd.py HELD BUILDING KIND COUNT [CGROUP]`.

`mixed` takes turns: a plain process, one in a session of its own, one that ignores SIGTERM, a stopped one, and one
whose parent is gone; `idle` makes plain ones only; `hopper` is one process that forks, takes a new session and exits
every 5 ms. Every member holds the FIFO HELD open; BUILDING is closed when all are there.
"""

import itertools
import os
import signal
import sys
import time

HOP = 0.005
SLEEP = "/bin/sleep"
SLEEP_ARGV = [SLEEP, "1000"]
HOPS_BEFORE_READY = 3


def plain() -> None:
    os.posix_spawn(SLEEP, SLEEP_ARGV, os.environ)


def own_session() -> None:
    os.posix_spawn(SLEEP, SLEEP_ARGV, os.environ, setsid=True)


def ignores_term() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    plain()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def stopped() -> None:
    os.kill(os.posix_spawn(SLEEP, SLEEP_ARGV, os.environ), signal.SIGSTOP)


def daemon() -> None:
    between = os.fork()
    if between == 0:
        own_session()
        os._exit(0)
    os.waitpid(between, 0)


KINDS = (plain, own_session, ignores_term, stopped, daemon)


def hop(building: int) -> None:
    for number in itertools.count():
        try:
            os.setsid()
        except PermissionError:
            pass  # the first one leads its session already
        if number == HOPS_BEFORE_READY:
            os.close(building)
        time.sleep(HOP)
        if os.fork():
            os._exit(0)


def main(held_path: str, building_path: str, kind: str, count: str, cgroup: str | None = None) -> None:
    if cgroup is not None:
        with open(f"{cgroup}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")
    held = os.open(held_path, os.O_WRONLY)
    os.set_inheritable(held, True)
    building = os.open(building_path, os.O_WRONLY)  # closed by exec, in us and in all that we start
    if kind == "hopper":
        hop(building)
    for number in range(1, int(count)):
        (KINDS[number % len(KINDS)] if kind == "mixed" else plain)()
    os.execv(SLEEP, SLEEP_ARGV)


if __name__ == "__main__":
    main(*sys.argv[1:])
