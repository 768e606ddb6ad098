"""Waits grow, are shown, and end at once when they are cancelled; what a server asks for is honoured within reason."""

import asyncio
import email.utils
import time
from collections.abc import AsyncIterator

import pytest

from quell.errors import ModelError
from quell.models.patience import LONGEST, Passing, Patience, patient, retry_after
from quell.ports import Anew, Chunk, Notice, Text

from .serving import run


class Moody:
    """Gives each of these in turn: what it says before it fails, and how it fails."""

    def __init__(self, *moods: tuple[list[Chunk], Exception | None]) -> None:
        self.moods = list(moods)
        self.closed = 0

    async def __call__(self) -> AsyncIterator[Chunk]:
        said, error = self.moods.pop(0)
        try:
            for chunk in said:
                yield chunk
            if error is not None:
                raise error
        finally:
            self.closed += 1


async def heard(moody: Moody, patience: Patience) -> list[Chunk]:
    return [chunk async for chunk in patient(moody, patience)]


def test_what_was_said_before_a_break_is_void_and_a_silent_failure_only_noticed() -> None:
    moody = Moody(([], Passing("503: not available now")), ([Text("on")], Passing("it broke")), ([Text("one")], None))
    said = run(heard(moody, Patience(first=0.001)))
    assert [type(one) for one in said] == [Notice, Text, Anew, Text]
    assert moody.closed == 3


def test_it_gives_up_after_so_many_tries_and_says_what_was_wrong() -> None:
    moody = Moody(*[([], Passing("500: an error of the server"))] * 9)
    with pytest.raises(ModelError, match=r"500: an error of the server \(tried 4 times\)"):
        run(heard(moody, Patience(again=3, first=0.001)))
    assert len(moody.moods) == 5


def test_who_asks_for_a_long_wait_ends_it_and_the_person_is_told_when() -> None:
    with pytest.raises(ModelError, match="429; it asks to wait for 5 minutes, try again then"):
        run(heard(Moody(([], Passing("429", 299.0))), Patience()))


def test_waits_grow_with_some_chance_in_them_and_never_undercut_what_is_asked() -> None:
    patience = Patience(first=1.0)
    for attempt, middle in ((1, 1.0), (2, 2.0), (3, 4.0), (5, 16.0), (20, LONGEST)):
        waits = {patience.wait(attempt, None) for _ in range(50)}
        assert 0.75 * middle <= min(waits) < max(waits) <= 1.25 * middle
    assert patience.wait(1, 30.0) == 30.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_what_a_server_asks_for_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_to_come_back_at_is_read() -> None:
    date = email.utils.formatdate(time.time() + 90, usegmt=True)
    assert retry_after({"retry-after": date}) == pytest.approx(90, abs=3)
    assert retry_after({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}) == 0.0


def test_a_cancel_ends_the_wait_at_once() -> None:
    async def main() -> None:
        moody = Moody(([], Passing("429", 50.0)))
        stream = patient(moody, Patience())
        assert isinstance(await anext(stream), Notice)
        waiting: asyncio.Task[Chunk] = asyncio.get_running_loop().create_task(_next(stream))
        await asyncio.sleep(0)
        waiting.cancel()
        began = time.monotonic()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert time.monotonic() - began < 0.05

    run(main())


async def _next(stream: AsyncIterator[Chunk]) -> Chunk:
    return await anext(stream)
