"""What an answer cost, in dollars: by the prices of the configuration, else by a small table; unknown is 0.

The table holds for the makers' own addresses only. What somebody else asks for a model of the same name nobody knows.
"""

from __future__ import annotations

import re

import msgspec

from ..config import Provider
from .endpoint import Endpoint

AS_OF = "2026-11-17"
"""When the table was compared with what the makers publish. Prices change: those of the configuration go before it."""


class Price(msgspec.Struct, frozen=True):
    """Dollars for a million tokens."""

    input: float
    cached: float
    output: float
    written: float = 0.0
    """For what is put into the cache; 0 is the price of the input."""
    long: int = 0
    """Tokens of input above which a request costs more, all of it; 0 is none."""
    times: tuple[float, float] = (1.0, 1.0)
    """So many times as much then: what goes in, and what comes out."""

    def of(self, taken: int, given: int, cached: int = 0, written: int = 0) -> float:
        """Of tokens in and out; `cached` and `written` are parts of those in."""
        into, out = self.times if self.long and taken > self.long else (1.0, 1.0)
        fresh = max(0, taken - cached - written)
        put = written * (self.written or self.input)
        paid = (fresh * self.input + cached * self.cached + put) * into + given * self.output * out
        return paid / 1_000_000


def _gpt(fresh: float, cached: float, output: float, *, writes: bool = True) -> Price:
    """Large ones: long requests cost more, and, since 5.6, what is put into the cache."""
    return Price(fresh, cached, output, fresh * 1.25 if writes else 0.0, 272_000, (2.0, 1.5))


def _claude(fresh: float, output: float, cached: float) -> Price:
    """What is put into the cache for five minutes costs a quarter more."""
    return Price(fresh, cached, output, fresh * 1.25)


TABLE: dict[str, Price] = {
    "gpt-6.1-sol": _gpt(2.0, 0.1, 10.0),
    "gpt-6.1-terra": _gpt(1.0, 0.05, 5.0),
    "gpt-6-astra": _gpt(10.0, 1.0, 50.0),
    "gpt-6-sol": _gpt(2.0, 0.2, 10.0),
    "gpt-6-luna": _gpt(0.1, 0.01, 0.5),
    "gpt-5.6-terra": _gpt(2.0, 0.2, 12.0),
    "gpt-5.6-luna": _gpt(0.2, 0.02, 1.2),
    "gpt-5.5": _gpt(5.0, 0.5, 30.0, writes=False),
    "gpt-5.4": _gpt(2.5, 0.25, 15.0, writes=False),
    "gpt-5.4-mini": Price(0.75, 0.075, 4.5),
    "gpt-5.4-nano": Price(0.2, 0.02, 1.25),
    "gpt-5.3-codex": Price(1.75, 0.175, 14.0),
    "gpt-5.2-codex": Price(1.75, 0.175, 14.0),
    "gpt-5.2": Price(1.75, 0.175, 14.0),
    "gpt-5.1": Price(1.25, 0.125, 10.0),
    "gpt-5": Price(1.25, 0.125, 10.0),
    "gpt-5-mini": Price(0.25, 0.025, 2.0),
    "gpt-5-nano": Price(0.05, 0.005, 0.4),
    "gpt-4.1": Price(2.0, 0.5, 8.0),
    "gpt-4.1-mini": Price(0.4, 0.1, 1.6),
    "gpt-4.1-nano": Price(0.1, 0.025, 0.4),
    "gpt-4o": Price(2.5, 1.25, 10.0),
    "gpt-4o-mini": Price(0.15, 0.075, 0.6),
    "o3": Price(2.0, 0.5, 8.0),
    "o4-mini": Price(1.1, 0.275, 4.4),
    "claude-fable-5-1": _claude(10.0, 50.0, 0.25),
    "claude-fable-5": _claude(10.0, 50.0, 1.0),
    "claude-opus-5-5": _claude(4.0, 20.0, 0.2),
    "claude-opus-5": _claude(5.0, 25.0, 0.5),
    "claude-opus-4-8": _claude(5.0, 25.0, 0.5),
    "claude-opus-4-7": _claude(5.0, 25.0, 0.5),
    "claude-opus-4-6": _claude(5.0, 25.0, 0.5),
    "claude-opus-4-5": _claude(5.0, 25.0, 0.5),
    "claude-opus-4-1": _claude(15.0, 75.0, 1.5),
    "claude-sonnet-5-5": _claude(2.0, 10.0, 0.1),
    "claude-sonnet-5": _claude(2.0, 10.0, 0.2),
    "claude-sonnet-4-6": _claude(3.0, 15.0, 0.3),
    "claude-sonnet-4-5": _claude(3.0, 15.0, 0.3),
    "claude-haiku-5-5": Price(0.1, 0.01, 0.5, 0.125, 100_000, (5.0, 5.0)),
    "claude-haiku-4-5": _claude(1.0, 5.0, 0.1),
}
FREE = Price(0.0, 0.0, 0.0)

_EDITION = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z")


def price_of(provider: Provider, endpoint: Endpoint, model: str) -> Price:
    """A model is found by its name with or without a date; another member of its family is another model."""
    if provider.price_input or provider.price_output or provider.price_cached:
        cached = provider.price_cached or provider.price_input
        return Price(provider.price_input, cached, provider.price_output)
    return TABLE.get(_EDITION.sub("", model), FREE) if endpoint.own else FREE
