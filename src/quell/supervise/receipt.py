"""The receipt of a stop: what was observed, never more.

`confirmed` means that the kernel said that nobody is left. Anything else is `unconfirmed`, with the pids.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

VERSION = 1


class Ended(NamedTuple):
    """One process. `end` is `exit N` or `signal N` where it was reaped by us, else `gone`; `alive` if it is not."""

    pid: int
    inner: int | None
    argv: list[str] | None
    end: str
    at: float


class Receipt(NamedTuple):
    reason: str
    confirmed: bool
    rung: str
    command: list[str]
    exit: dict[str, int] | None
    processes: list[Ended]
    survivors: list[int]
    signalled: int
    phases: dict[str, float]
    started: str

    @property
    def verdict(self) -> str:
        return "confirmed" if self.confirmed else "unconfirmed"

    def to_json(self) -> str:
        body = {"version": VERSION, "verdict": self.verdict, **self._asdict()}
        body["processes"] = [one._asdict() for one in self.processes]
        return json.dumps(body, ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        body = json.loads(text)
        if not isinstance(body, dict) or body.get("version") != VERSION:
            raise ValueError(f"not a receipt of version {VERSION}")
        processes = [Ended(**one) for one in body["processes"]]
        return cls(**{**{name: body[name] for name in cls._fields}, "processes": processes})

    @classmethod
    def from_report(
        cls, report: dict[str, Any], *, rung: str, command: list[str], exit: dict[str, int] | None, started: str
    ) -> Receipt:
        """From what a keeper or zygote reported."""
        return cls(
            reason=report["reason"],
            confirmed=report["verdict"] == "confirmed",
            rung=rung,
            command=command,
            exit=exit,
            processes=[Ended(**one) for one in report["processes"]],
            survivors=report["survivors"],
            signalled=report["signalled"],
            phases=report["phases"],
            started=started,
        )

    def sentence(self) -> str:
        """The survivors in words, for a person."""
        names = {one.pid: " ".join(one.argv or ["?"]) for one in self.processes}
        listed = ", ".join(f"{pid} ({names.get(pid, '?')[:60]})" for pid in self.survivors)
        count = len(self.survivors)
        return f"unconfirmed: {count} {'process' if count == 1 else 'processes'} would not end: {listed or 'unknown'}"
