"""A subscription is told of the events that it wants until it is closed; two are equal only if they are one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..events import Event


class Subscription:
    """Compared by identity (H37)."""

    def __init__(self, name: str, kinds: Sequence[str], session: str | None, left: Callable[[Any], None]) -> None:
        self.name = name
        self.kinds = (kinds,) if isinstance(kinds, str) else tuple(kinds)
        self.session = session
        self.closed = False
        self.cut = ""
        """Why the bus gave it up, if it did."""
        self._left = left

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'closed' if self.closed else 'open'}>"

    def wants(self, kind: str) -> bool:
        """Exactly one of its kinds, or one below a kind that ends in a dot; without kinds, everything."""
        return not self.kinds or any(
            kind == one or (one[-1:] in ("", ".") and kind.startswith(one)) for one in self.kinds
        )

    def take(self, event: Event) -> None:
        """By the bus: an event that it wants. Never waits, never runs what others wrote."""
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more comes, and what waits is let go. A handler that runs is not disturbed. Idempotent."""
        if not self.closed:
            self.closed = True
            self._left(self)


def said(error: BaseException) -> str:
    """`Type: message`; an error without a message is told by its type (H41)."""
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  an error that cannot even be told is still told of
        text = ""
    return f"{name}: {text}" if text else name
