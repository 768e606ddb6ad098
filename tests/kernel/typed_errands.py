"""Functions that are tools and want more than JSON has: they run in a process of their own."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime

import msgspec

from quell.errors import ToolError


class Color(enum.Enum):
    RED = "red"


@dataclass
class Spot:
    x: int
    y: float = 2.5


class Place(msgspec.Struct):
    city: str
    country: str = "FR"


def describe(
    at: datetime,
    spots: list[Spot],
    color: Color = Color.RED,
    place: Place | None = None,
    tags: frozenset[str] = frozenset(),
) -> str:
    """Say of what type everything is."""
    where = "" if place is None else f" {type(place).__name__} {place.city} {place.country}"
    return f"{at.year} {type(spots[0]).__name__} {spots[0].x + spots[0].y} {color!r} {sorted(tags)!r}{where}"


def gives(day: date) -> dict[str, object]:
    """Give what only msgspec has a form for."""
    return {"day": day, "spot": Spot(1), "place": Place("Lyon"), "number": float("inf")}


def tells() -> str:
    """Tell the model what is wrong."""
    raise ToolError("there is no such thing; try another")
