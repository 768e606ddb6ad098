"""The least environment for a child: an allow-list, never a deny-list."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BASIC = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TERM", "TZ", "TMPDIR")


def allow(*names: str, source: Mapping[str, str] | None = None, **extra: str) -> dict[str, str]:
    """The basic variables, those named, and `extra`; nothing else of this process's environment."""
    available = os.environ if source is None else source
    return {**{name: available[name] for name in (*BASIC, *names) if name in available}, **extra}
