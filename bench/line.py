"""One line of the table: a work, a peer, ours, and whether what we aim at was reached."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from bench.sampling import Samples, Spread


class Line(NamedTuple):
    work: str
    peer: str
    theirs: str
    ours: str
    ratio: str = "–"
    target: str = "–"
    met: bool | None = None
    """None where there is nothing to reach: the line is there to be compared with."""


class Ceiling(NamedTuple):
    """A ratio that ours should not be above, or (`floor`) not below."""

    factor: float
    floor: bool = False
    also: str = ""

    def __str__(self) -> str:
        return f"{'≥' if self.floor else '≤'} {self.factor:g}×{self.also}"

    def holds(self, ratio: float) -> bool:
        return ratio >= self.factor if self.floor else ratio <= self.factor


def compared(work: str, samples: Samples, ours: str, peer: str, target: Ceiling | None = None) -> Line:
    """Ours beside one peer, with the ratio of each round."""
    ratio = samples.ratio(ours, peer)
    met = target.holds(ratio.p50) if target else None
    return Line(work, peer, ms(samples.of(peer)), ms(samples.of(ours)), times(ratio), str(target or "–"), met)


def lines(said: Iterable[Sequence[Any]]) -> list[Line]:
    """Lines again, from the lists that came out of a safety namespace."""
    return [Line(*one) for one in said]


def ms(figure: Spread) -> str:
    return f"{figure.p50 * 1000:.{_digits(figure.p50)}f} ms"


def times(ratio: Spread) -> str:
    return f"{ratio.p50:.2f}× ({ratio.p25:.2f}–{ratio.p75:.2f})"


def plus(difference: Spread) -> str:
    low, middle, high = (f"{seconds * 1000:+.1f}" for seconds in difference)
    return f"{middle} ms ({low} to {high})"


def us(figure: Spread) -> str:
    return f"{figure.p50 * 1e6:.2f} µs"


def more_us(difference: Spread) -> str:
    low, middle, high = (f"{seconds * 1e6:+.2f}" for seconds in difference)
    return f"{middle} µs ({low} to {high})"


def _digits(seconds: float) -> int:
    return 2 if seconds < 0.01 else 1 if seconds < 0.1 else 0
