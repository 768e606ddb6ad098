"""Supervision: scopes that own what is started in them, and boxes out of which nothing gets.

    async with Supervisor() as sup:
        process = await sup.spawn(["make", "-j8"], stdout=PIPE)
        await process.wait()
        receipt = await sup.stop()

`Zygote` and `Box` are the layer below, without asyncio. It knows nothing of agents and imports the standard library
only. Called, `quell.supervise()` is the supervisor for scripts: `with quell.supervise() as s: s.run(["make"])`.
"""

from __future__ import annotations

import sys

from .box import GRACE, Box
from .contain import RUNGS
from .environment import allow
from .ledger import Ledger, state_dir
from .receipt import Ended, Part, Receipt
from .tree import NULL, PIPE, PTY, STDOUT, Tree
from .zygote import Zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .control import ask_stop
    from .ladder import Ladder
    from .process import Member, Process
    from .scope import Scope
    from .supervisor import Supervisor
    from .sync import SyncProcess, SyncSupervisor

__all__ = [
    "GRACE",
    "NULL",
    "PIPE",
    "PTY",
    "RUNGS",
    "STDOUT",
    "Box",
    "Ended",
    "Ladder",
    "Ledger",
    "Member",
    "Part",
    "Process",
    "Receipt",
    "Scope",
    "Supervisor",
    "SyncProcess",
    "SyncSupervisor",
    "Tree",
    "Zygote",
    "allow",
    "ask_stop",
    "state_dir",
]

# asyncio costs 37 ms: what needs it is loaded when it is used, and `quell exec` never does.
_LATER = {
    "Ladder": "ladder",
    "Member": "process",
    "Process": "process",
    "Scope": "scope",
    "Supervisor": "supervisor",
    "SyncProcess": "sync",
    "SyncSupervisor": "sync",
    "ask_stop": "control",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LATER[name]}", __name__), name)


class _Callable(type(sys)):  # type: ignore[misc]  # the type of modules, without an import of `types`
    """So that `quell.supervise` can be both this package and what scripts call."""

    def __call__(self, **settings: Any) -> SyncSupervisor:
        """A supervisor for scripts. Settings are those of `Supervisor`: state_dir, ladder, contain."""
        return self.SyncSupervisor(**settings)  # type: ignore[no-any-return]  # the class of that name


sys.modules[__name__].__class__ = _Callable
