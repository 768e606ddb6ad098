"""Quell: the agent runtime where stop means stop.

    async with quell.Runtime() as rt:
        session = await rt.open(agent="scripted", cwd=".")
        async for event in session.send("$ echo hello"):
            print(event)
        receipt = await session.stop()
        assert receipt.confirmed

`quell.Supervisor` and `quell.Scope` below it are for those who want only supervision.

Everything here is loaded when it is first used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .config import Agent, Limits, Settings
    from .errors import (
        AdmissionClosedError,
        BoxLostError,
        BusClosedError,
        ContainmentError,
        FencedError,
        NoSessionError,
        NoSupervisorError,
        NotAnsweredError,
        OwnershipError,
        PluginRefusedError,
        QuellError,
        ScopeStoppedError,
        SpawnError,
        StateInUseError,
        StoreError,
        ToolError,
        UsageError,
    )
    from .events import Event
    from .kernel.session import Session
    from .runtime import Runtime
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
    "AdmissionClosedError",
    "Agent",
    "BoxLostError",
    "BusClosedError",
    "ContainmentError",
    "Event",
    "FencedError",
    "Ladder",
    "Limits",
    "Member",
    "NoSessionError",
    "NoSupervisorError",
    "NotAnsweredError",
    "OwnershipError",
    "PluginRefusedError",
    "Process",
    "QuellError",
    "Receipt",
    "Runtime",
    "Scope",
    "ScopeStoppedError",
    "Session",
    "Settings",
    "SpawnError",
    "StateInUseError",
    "StoreError",
    "Supervisor",
    "ToolError",
    "UsageError",
    "__version__",
    "allow",
    "ask_stop",
    "supervise",
]

_HOMES = {
    "Agent": ".config",
    "Event": ".events",
    "Limits": ".config",
    "Runtime": ".runtime",
    "Session": ".kernel.session",
    "Settings": ".config",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    if name == "supervise":
        return import_module(".supervise", __name__)
    home = ".errors" if name.endswith("Error") else _HOMES.get(name, ".supervise")
    return getattr(import_module(home, __name__), name)
