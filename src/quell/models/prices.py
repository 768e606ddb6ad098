"""What an answer cost, in dollars: by the prices of the configuration, else by a small table; unknown is 0."""

from __future__ import annotations

import re

import msgspec

from ..config import Provider

AS_OF = "2026-11-16"
"""When the table was written. Prices change: those of the configuration go before it."""


class Price(msgspec.Struct, frozen=True):
    """Dollars for a million tokens."""

    input: float
    cached: float
    output: float
    written: float = 0.0
    """For what is put into the cache; 0 is the price of the input."""

    def of(self, taken: int, given: int, cached: int = 0, written: int = 0) -> float:
        """Of tokens in and out; `cached` and `written` are parts of those in."""
        fresh = max(0, taken - cached - written)
        put = written * (self.written or self.input)
        return (fresh * self.input + cached * self.cached + put + given * self.output) / 1_000_000


def _claude(fresh: float, output: float, cached: float) -> Price:
    """What is put into the cache for five minutes costs a quarter more."""
    return Price(fresh, cached, output, fresh * 1.25)


TABLE: dict[str, Price] = {
    "gpt-6.1-sol": Price(2.0, 0.1, 10.0),
    "gpt-5.4": Price(2.5, 0.25, 15.0),
    "gpt-5.4-mini": Price(0.75, 0.075, 4.5),
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
    "claude-haiku-4-5": _claude(1.0, 5.0, 0.1),
}
FREE = Price(0.0, 0.0, 0.0)

_EDITION = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z")


def price_of(provider: Provider, model: str) -> Price:
    """A model is found by its name with or without a date; another member of its family is another model."""
    if provider.price_input or provider.price_output or provider.price_cached:
        cached = provider.price_cached or provider.price_input
        return Price(provider.price_input, cached, provider.price_output)
    return TABLE.get(_EDITION.sub("", model), FREE)
