"""How a box may come to its end: each trigger with the grace that quell is started with, and the promised bound.

The promise is 1 second after a SIGKILL and the grace + 2 seconds otherwise; `SLACK` times that, for a busy machine.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.matrix.proc import everybody, name, wait_for_state

SLACK = 3
GRACE = 0.3
"""Seconds of grace where the ladder is walked to its end. Elsewhere `LONG`: nothing but force ends them in time."""
LONG = 30.0
AGAIN = 0.2
"""Seconds between two signals of one kind that are meant as two: quell takes those of one moment as one."""
TIMEOUT = 1.0
"""Seconds until `--timeout`; doubled by the driver when the descendants were not all born by then."""


@dataclass(frozen=True)
class Chain:
    """The processes of one quell, and a way to tell its command to end."""

    quell: int
    zygote: int = 0
    keeper: int = 0
    tell_command: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Trigger:
    act: Callable[[Chain], None]
    bound: float
    grace: float = LONG
    kills: bool = False
    """Quell's own processes are killed, so that its exit code and receipt mean nothing."""
    timeout: bool = False
    heeded: bool = False
    """Only for descendants that end when asked to."""
    host: bool = False
    """Not `quell exec` but a Python program that uses the library (`host.py`)."""


def _nothing(chain: Chain) -> None:
    """The timeout comes by itself."""


def _command_ends(chain: Chain) -> None:
    chain.tell_command()


def _once(number: signal.Signals) -> Callable[[Chain], None]:
    return lambda chain: send(chain.quell, number)


def _twice(number: signal.Signals) -> Callable[[Chain], None]:
    def act(chain: Chain) -> None:
        send(chain.quell, number)
        time.sleep(AGAIN)
        send(chain.quell, number)

    return act


def _kill(*names: str) -> Callable[[Chain], None]:
    def act(chain: Chain) -> None:
        for victim in random.sample(names, len(names)):
            send(getattr(chain, victim), signal.SIGKILL)

    return act


def _freeze_keeper_then_kill_quell(chain: Chain) -> None:
    send(chain.keeper, signal.SIGSTOP)
    wait_for_state(chain.keeper, "TZ")
    send(chain.quell, signal.SIGKILL)


_LADDER = SLACK * (GRACE + 2)
_FORCED = SLACK * 2.0
_DEATH = SLACK * 1.0


def _death(act: Callable[[Chain], None]) -> Trigger:
    return Trigger(act, _DEATH, kills=True)


TRIGGERS: dict[str, Trigger] = {
    "CMD ends": Trigger(_command_ends, _LADDER, GRACE),
    "stop": Trigger(_twice(signal.SIGTERM), _FORCED),
    "timeout": Trigger(_nothing, _LADDER, GRACE, timeout=True),
    "SIGTERM, heeded": Trigger(_once(signal.SIGTERM), _FORCED, heeded=True),
    "SIGTERM": Trigger(_once(signal.SIGTERM), _LADDER, GRACE),
    "SIGHUP": Trigger(_once(signal.SIGHUP), _LADDER, GRACE),
    "SIGINT twice": Trigger(_twice(signal.SIGINT), _FORCED),
    "kill quell": _death(_kill("quell")),
    "kill keeper": _death(_kill("keeper")),
    "kill zygote": _death(_kill("zygote")),
    "kill quell and keeper": _death(_kill("quell", "keeper")),
    "kill quell and zygote": _death(_kill("quell", "zygote")),
    "kill keeper and zygote": _death(_kill("keeper", "zygote")),
    "kill all three": _death(_kill("quell", "keeper", "zygote")),
    "freeze keeper, kill quell": _death(_freeze_keeper_then_kill_quell),
    "kill a host whose fork holds its fds": Trigger(_kill("quell"), _DEATH, kills=True, host=True),
}


def send(pid: int, number: signal.Signals) -> None:
    """Signal a process of ours. Quell is our child, not yet reaped; the others may be gone by now."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def find_chain(quell: int, tell_command: Callable[[], None]) -> Chain | None:
    """The zygote is quell's child, or a guard's below quell; the keeper is the zygote's. None till all are there."""
    parents = {pid: parent for pid, parent, _ in everybody()}
    above = [quell, *(pid for pid, parent in parents.items() if parent == quell and name(pid) == "quell-guard")]
    zygotes = [pid for pid, parent in parents.items() if parent in above and name(pid) == "quell-zygote"]
    keepers = [pid for pid, parent in parents.items() if parent in zygotes and name(pid) == "quell-keeper"]
    busy = [pid for pid in keepers if pid in parents.values()]
    if len(zygotes) != 1 or len(busy) != 1:
        return None
    return Chain(quell, zygotes[0], busy[0], tell_command)
