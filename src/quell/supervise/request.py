"""What a keeper is asked, in the few types that go into a message; what makes no sense is refused before it is sent."""

from __future__ import annotations

import os

from ..errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


def spec_for(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str] | None,
    umask: int | None,
    rlimits: Mapping[str, tuple[int, int]] | None,
    nice: int,
    sealed: Iterable[str] = (),
) -> dict[str, Any]:
    """What a keeper must know of a command, but for its streams."""
    if isinstance(argv, str | bytes) or not argv:
        raise UsageError(f"a command is a list of words, such as ['ls', '-l'], not {argv!r}")
    try:
        return {
            "argv": [os.fsdecode(word) for word in argv],
            "cwd": os.fsdecode(cwd) if cwd is not None else os.getcwd(),
            "env": dict(os.environb) if env is None else {os.fsencode(k): os.fsencode(v) for k, v in env.items()},
            "umask": umask if umask is None else int(umask),
            "rlimits": [[str(name), int(soft), int(hard)] for name, (soft, hard) in (rlimits or {}).items()],
            "nice": int(nice),
            "session": True,
            "sealed": [os.fsdecode(path) for path in sealed],
        }
    except (TypeError, ValueError) as error:
        raise UsageError(f"{argv[0]!r} cannot be started so: {error}") from None


def plain(reason: object, grace: object) -> tuple[str, float]:
    """As they go into a message: a subclass of str or float would not."""
    if not isinstance(reason, str):
        raise UsageError(f"a reason is text, not {reason!r}")
    if isinstance(grace, bool) or not isinstance(grace, int | float) or not grace >= 0:
        raise UsageError(f"a grace is a number of seconds, not {grace!r}")
    return str.__str__(reason), float(grace)
