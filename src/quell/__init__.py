"""Quell: the agent runtime where stop means stop.

    async with quell.Supervisor() as sup:
        scope = sup.scope("build")
        process = await scope.spawn(["npm", "run", "dev"], stdout=quell.PIPE)
        receipt = await scope.stop()
        assert receipt.confirmed

Everything here is loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .errors import (
        BoxLostError,
        ContainmentError,
        NoSupervisorError,
        OwnershipError,
        QuellError,
        ScopeStoppedError,
        SpawnError,
        StateInUseError,
        UsageError,
    )
    from .supervise import (
        NULL,
        PIPE,
        PTY,
        STDOUT,
        Ladder,
        Member,
        Process,
        Receipt,
        Scope,
        Supervisor,
        allow,
        ask_stop,
    )
    from .supervise.sync import SyncSupervisor as supervise

__version__ = "0.1.0"
__all__ = [
    "NULL",
    "PIPE",
    "PTY",
    "STDOUT",
    "BoxLostError",
    "ContainmentError",
    "Ladder",
    "Member",
    "NoSupervisorError",
    "OwnershipError",
    "Process",
    "QuellError",
    "Receipt",
    "Scope",
    "ScopeStoppedError",
    "SpawnError",
    "StateInUseError",
    "Supervisor",
    "UsageError",
    "__version__",
    "allow",
    "ask_stop",
    "supervise",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "supervise":
        return import_module(".supervise", __name__)
    home = ".errors" if name.endswith("Error") else ".supervise"
    return getattr(import_module(home, __name__), name)
