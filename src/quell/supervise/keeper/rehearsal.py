"""A rehearsal: the zygote walks a keeper's ways itself, before it forks any, so that the code has settled.

A forked keeper shares the zygote's memory until it writes, and Python writes wherever it goes: it adapts its code
and makes what it needs at the first time. What was done before the fork is shared: 250 kB less in every keeper.
"""

from __future__ import annotations

import os

from .box import Keeper
from .crowd import Descent
from .light import signal
from .link import pair
from .linux import argv_place, mount, rename, unshare
from .proc import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TIMES = 10  # Python 3.11 adapts a function at its eighth call
_SPEC = {
    "argv": ["sh"],
    "cwd": "/",
    "env": {b"PATH": b"/usr/bin:/bin"},
    "umask": None,
    "rlimits": [],
    "nice": 0,
    "session": True,
    "tty": False,
    "dry": True,  # all but the last step
}


def rehearse_all(proc: Proc, env: Mapping[bytes, bytes]) -> None:
    for _ in range(TIMES):
        _rehearse_birth()
        _rehearse_life(proc, env)


def _rehearse_birth() -> None:
    """The calls by which a keeper begins, with arguments that change nothing."""
    rename("quell-zygote", argv_place())
    Proc().close()
    try:
        unshare(0)  # refused as a whole where a container filters system calls
        mount("none", "", None, 0)
    except OSError:
        return


def _rehearse_life(proc: Proc, env: Mapping[bytes, bytes]) -> None:
    """A spawn and a stop, as a keeper does them, with nobody below us."""
    null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    owner = os.pidfd_open(os.getpid())
    crowd = Descent(proc, proc)
    ours, theirs = pair()
    keeper = Keeper(theirs, owner, crowd, env)
    ours.send({"op": "spawn", "tree": 1, "spec": _SPEC}, [null, null, null])
    keeper.turn()
    crowd.look_at(os.getpid())
    ours.send({"op": "stop", "reason": "stop", "grace": 0, "ask": int(signal.SIGTERM)})
    keeper.turn()
    ours.receive()
    ours.close()
    keeper.close()
    os.close(owner)
    os.close(null)
