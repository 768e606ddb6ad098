"""What `cancel_everywhere` covered and found: values, and a text with the line and the command to see it again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..origins import rank

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..counting import Leak

    Kind = Literal["leak", "hang", "swallowed", "failed"]

SHOWN = 10
"""Findings that are written out, and leaks of each; more are counted."""


class Moment(NamedTuple):
    """Right before a step, or right after it. Steps are counted from the target's start, while it is pending."""

    step: int
    after: bool = False

    def __str__(self) -> str:
        return f"{self.step}+" if self.after else str(self.step)


@dataclasses.dataclass(frozen=True)
class Point:
    """Where a cancel came."""

    moment: Moment
    stack: tuple[str, ...]
    """The target's chain of awaits, outermost first."""
    step: str
    """Whose step was next, where one was."""

    @property
    def line(self) -> str:
        return own_line(self.stack)

    @property
    def when(self) -> str:
        return f"{'after' if self.moment.after else 'before'} step {self.moment.step} ({self.step})"

    def __str__(self) -> str:
        return f"{self.when}, at {self.line}"


def own_line(stack: Iterable[str]) -> str:
    """The innermost line that is the project's own; or a library's, if none is."""
    by_rank = {rank(line.rpartition(":")[0]): line for line in stack}
    return next((by_rank[of] for of in ("own", "library", "machinery") if of in by_rank), "its beginning")


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that went wrong, and the command that shows it again."""

    kind: Kind
    points: tuple[Point, ...]
    """Where the target was cancelled: once, twice, or (when it leaks by itself) never."""
    what: tuple[str, ...]
    leaks: tuple[Leak, ...] = ()
    command: str = ""

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.points[-1].line}" if self.points else f"{self.kind}: without any cancel"]
        for word, point in zip(("cancelled", "and again"), self.points, strict=False):
            lines += [f"  {word} {point.when}"]
            lines += [f"    at {line}" for line in reversed(point.stack or (point.line,))]
        lines += [f"  {what}" for what in self.what[:SHOWN]]
        if len(self.what) > SHOWN:
            lines.append(f"  and {len(self.what) - SHOWN} more")
        if self.command:
            lines.append(f"  again: {self.command}")
        return "\n".join(lines)


@dataclasses.dataclass
class Coverage:
    """What was cancelled where, out of how much, and what was found."""

    name: str
    points_found: int = 0
    points_covered: int = 0
    pairs_found: int = 0
    pairs_covered: int = 0
    not_reached: int = 0
    """Points and pairs whose step did not come, twice in a row: the number of steps varies with the machine."""
    left_out: int = 0
    """Points and pairs at a line that had been found to be faulty already."""
    lines: Counter[str] = dataclasses.field(default_factory=Counter)
    """The lines of the target, and how many cancels came at each."""
    findings: list[Finding] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def leaks(self) -> list[Finding]:
        return self._of("leak")

    @property
    def hangs(self) -> list[Finding]:
        return self._of("hang")

    @property
    def swallowed(self) -> list[Finding]:
        return self._of("swallowed")

    @property
    def failed(self) -> list[Finding]:
        """Where the scenario's own asserts or clean-up raised."""
        return self._of("failed")

    def _of(self, kind: Kind) -> list[Finding]:
        return [finding for finding in self.findings if finding.kind == kind]

    @property
    def complete(self) -> bool:
        """Every point and every pair that was found was covered."""
        return (self.points_covered, self.pairs_covered) == (self.points_found, self.pairs_found)

    def __str__(self) -> str:
        lines = [f"{cancels} cancels at {line}" for line, cancels in self.lines.most_common(SHOWN)]
        return "\n".join([self.summary(), *(f"  {said}" for said in (*self.notes, *lines)), *self._details()])

    def summary(self) -> str:
        counts = [f"{len(self._of(kind))} {kind}" for kind in ("hang", "swallowed", "failed") if self._of(kind)]
        parts = [
            f"{self.points_covered} of {self.points_found} points at {len(self.lines)} lines",
            f"{self.pairs_covered} of {self.pairs_found} pairs",
            *([f"{self.not_reached} not reached"] if self.not_reached else []),
            *([f"{self.left_out} left out at lines found before"] if self.left_out else []),
            f"{len(self.leaks)} leaks",
            *counts,
            f"{self.seconds:.1f} s",
        ]
        return f"cancel_everywhere {self.name}: {', '.join(parts)}"

    def _details(self) -> list[str]:
        shown = [str(finding) for finding in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            shown.append(f"and {len(self.findings) - SHOWN} more")
        return shown


class LeakFound(AssertionError):
    """Raised by `cancel_everywhere` when anything was found; `coverage` has it all."""

    def __init__(self, coverage: Coverage) -> None:
        super().__init__(str(coverage))
        self.coverage = coverage
