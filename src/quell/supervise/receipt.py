"""The receipt of a stop: what was observed, never more.

`confirmed` means that the kernel said that nobody is left. Anything else is `unconfirmed`, with the pids.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VERSION = 1
_NAMED = 10  # of a kind, in a sentence; the receipt has them all
PARTS = ("tasks", "closers", "requests", "threads")


class Ended:
    """One process. `end` is `exit N` or `signal N` where it was reaped by us, else `gone`; `alive` if it is not."""

    def __init__(self, pid: int, inner: int | None, argv: list[str] | None, end: str, at: float) -> None:
        self.pid = pid
        self.inner = inner
        self.argv = argv
        self.end = end
        self.at = at


class Part:
    """One task, closer, request or thread of a scope.

    `end` says how it ended, `alive` if it has not; `where` is the line at which it is then.
    """

    def __init__(self, name: str, end: str, where: str | None = None) -> None:
        self.name = name
        self.end = end
        self.where = where

    def __repr__(self) -> str:
        return f"<{self.name}: {self.end}{f' at {self.where}' if self.where else ''}>"


class Receipt:
    """Compared by value; JSON both ways."""

    def __init__(
        self,
        *,
        reason: str,
        confirmed: bool,
        rung: str,
        command: list[str],
        exit: dict[str, int] | None,  # noqa: A002  the word of the receipt
        processes: list[dict[str, Any]],
        survivors: list[int],
        signalled: int,
        phases: dict[str, float],
        started: str,
        scope: str = "",
        tasks: list[dict[str, Any]] | None = None,
        closers: list[dict[str, Any]] | None = None,
        requests: list[dict[str, Any]] | None = None,
        threads: list[dict[str, Any]] | None = None,
    ) -> None:
        self.reason = reason
        self.confirmed = confirmed
        self.rung = rung
        self.command = command
        self.exit = exit
        self.processes = [Ended(**one) for one in processes]
        self.survivors = survivors
        self.signalled = signalled
        self.phases = phases
        self.started = started
        self.scope = scope
        self.tasks = [Part(**one) for one in tasks or ()]
        self.closers = [Part(**one) for one in closers or ()]
        self.requests = [Part(**one) for one in requests or ()]
        self.threads = [Part(**one) for one in threads or ()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __repr__(self) -> str:
        return f"<Receipt {self.verdict} reason={self.reason!r} rung={self.rung} processes={len(self.processes)}>"

    @property
    def verdict(self) -> str:
        return "confirmed" if self.confirmed else "unconfirmed"

    def to_json(self) -> str:
        import json  # 3 ms that only those pay who want it

        facts = {name: [vars(one) for one in getattr(self, name)] for name in ("processes", *PARTS)}
        return json.dumps({"version": VERSION, "verdict": self.verdict, **vars(self), **facts})

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        import json

        body = json.loads(text)
        if not isinstance(body, dict) or body.pop("version", None) != VERSION:
            raise ValueError(f"not a receipt of version {VERSION}")
        body.pop("verdict", None)
        return cls(**body)

    def sentence(self) -> str:
        """Whoever would not end, in words, for a person."""
        if self.confirmed:
            return "confirmed: nobody is left"
        names = {one.pid: " ".join(one.argv or ["?"]) for one in self.processes}
        listed = [f"{pid} ({names.get(pid, '?')[:60]})" for pid in self.survivors]
        said = [f"{_count(len(listed), 'process', 'processes')}: {_few(listed)}"] if listed else []
        for word in PARTS:
            left = [one for one in getattr(self, word) if one.end == "alive"]
            if left:
                lines = [f"{one.name} at {one.where}" if one.where else one.name for one in left]
                said.append(f"{_count(len(left), word[:-1], word)}: {_few(lines)}")
        return f"unconfirmed: {'; '.join(said) or '0 processes would not end: unknown'}"


def _few(lines: list[str]) -> str:
    more = f" and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return ", ".join(lines[:_NAMED]) + more


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many} would not end"


def of_nobody(reason: str, **facts: Any) -> Receipt:
    """The receipt of a stop that found nobody."""
    seen = nothing_seen(True, reason)
    del seen["verdict"]
    told = {"rung": "none", "command": [], "exit": None, "started": now_text(), **facts}
    return Receipt(**seen, confirmed=True, **told)


def nothing_seen(confirmed: bool, reason: str) -> dict[str, Any]:
    """The report of an end that nobody could describe: only whether it was observed."""
    phases = {"ask": 0.0, "kill": 0.0, "total": 0.0}
    verdict = "confirmed" if confirmed else "unconfirmed"
    return {
        "reason": reason, "verdict": verdict, "processes": [], "survivors": [], "signalled": 0, "phases": phases
    }  # fmt: skip


def now_text() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
