"""Where a task, a coroutine or a thread stands: the line, in words that a person can click on."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from types import FrameType
    from typing import Any

_OPAQUE = {"async_generator_asend", "async_generator_athrow", "anext_awaitable", "coroutine_wrapper"}

NOWHERE = "an unknown line"
"""What has no Python frame: it has ended, or it is written in C."""


def stack(awaitable: Any) -> list[str]:
    """The chain of awaits of a coroutine, outermost first; each as `file:line in function`."""
    lines = []
    while awaitable is not None:
        frame: FrameType | None = None
        for of_frame, of_next in (("cr_frame", "cr_await"), ("ag_frame", "ag_await"), ("gi_frame", "gi_yieldfrom")):
            if hasattr(awaitable, of_frame):
                frame, awaitable = getattr(awaitable, of_frame), getattr(awaitable, of_next)
                break
        else:
            awaitable = _wrapped(awaitable)
            continue
        if frame is not None:
            lines.append(line_of(frame))
    return lines


def _wrapped(awaitable: Any) -> Any:
    """What a wrapper drives: one that tells (`coroutine`), or one of CPython's, of which only the collector knows."""
    if type(awaitable).__name__ in _OPAQUE:
        return next(
            (one for one in gc.get_referents(awaitable) if hasattr(one, "ag_frame") or _is_coroutine(one)), None
        )
    return getattr(awaitable, "coroutine", None)


def _is_coroutine(one: Any) -> bool:
    return hasattr(one, "cr_frame") or hasattr(one, "gi_frame")


def where(task: asyncio.Task[Any]) -> str:
    """The innermost line at which a task waits."""
    return (stack(task.get_coro()) or [NOWHERE])[-1]


def where_thread(ident: int | None) -> str:
    """The line that a thread is at now."""
    frame = sys._current_frames().get(ident or 0)
    return line_of(frame) if frame is not None else NOWHERE


def line_of(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
