"""Taking turns: each round runs every contender once, and ratios are formed within a round."""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Contender = Callable[[], float]
"""Does its work once and tells how long the part that counts took, in seconds."""


class Spread(NamedTuple):
    p25: float
    p50: float
    p75: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


class Samples:
    def __init__(self, taken: Mapping[str, list[float]]) -> None:
        self._taken = taken

    def of(self, name: str) -> Spread:
        return spread(self._taken[name])

    def ratio(self, name: str, peer: str) -> Spread:
        """How many times the peer's figure it is, round by round."""
        return spread([one / other for one, other in zip(self._taken[name], self._taken[peer], strict=True)])

    def over(self, name: str, *less: str) -> Spread:
        """What is left of it after taking off the others, round by round."""
        rounds = zip(self._taken[name], *(self._taken[other] for other in less), strict=True)
        return spread([one - sum(others) for one, *others in rounds])


def take_turns(
    what: str, contenders: Mapping[str, Contender], rounds: int, warm: int = 1, pause: float = 0.0
) -> Samples:
    """Every contender once per round, in a fixed order; the `warm` first rounds are not kept.

    With a `pause`, what one leaves to be done in the background is not on the account of the next.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-warm, rounds):
        tell(f"{what}: round {number + 1} of {rounds}" if number >= 0 else f"{what}: warming up")
        for name, once in contenders.items():
            seconds = once()
            time.sleep(pause)
            if number >= 0:
                taken[name].append(seconds)
    return Samples(taken)


def tell(progress: str) -> None:
    """Progress, for a person who waits: one line that is written over on a terminal, else nothing."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{progress}")
        sys.stderr.flush()
