"""Tools that find leaks: a census of what a process owns, cancels at every step, faults at every call, a check of logs.

They are for any asyncio code, not only for what is built on Quell. Everything is loaded when it is first used.
A `ModelServer` speaks as the APIs of models do, for tests of their clients.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .cancelling import Coverage, LeakFound, cancel_everywhere
    from .checking import LogBroken, check_log
    from .counting import Census, Leak, census
    from .faults import Faults
    from .llm import Calls, Fails, Malformed, ModelRequest, ModelServer, Reply, Says, Thinks
    from .origins import tracking

__all__ = [
    "Calls",
    "Census",
    "Coverage",
    "Fails",
    "Faults",
    "Leak",
    "LeakFound",
    "LogBroken",
    "Malformed",
    "ModelRequest",
    "ModelServer",
    "Reply",
    "Says",
    "Thinks",
    "cancel_everywhere",
    "census",
    "check_log",
    "tracking",
]

_LATER = {
    "Calls": "llm",
    "Census": "counting",
    "Coverage": "cancelling",
    "Fails": "llm",
    "Faults": "faults",
    "Leak": "counting",
    "LeakFound": "cancelling",
    "LogBroken": "checking",
    "Malformed": "llm",
    "ModelRequest": "llm",
    "ModelServer": "llm",
    "Reply": "llm",
    "Says": "llm",
    "Thinks": "llm",
    "cancel_everywhere": "cancelling",
    "census": "counting",
    "check_log": "checking",
    "tracking": "origins",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_LATER[name]}", __name__), name)
