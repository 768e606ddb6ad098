"""Events as a person sees them: what is said in an answer is all there, and in its own place."""

import asyncio
import time

import pytest

from quell.cli.display import Display
from quell.cli.outlet import Outlet
from quell.events import MessageDelta, MessageDone, ModelRequested


@pytest.mark.parametrize("last", ["\x1b]0;title\n", "\x9d\n", "\r", "\x1b\n", "x"])
def test_an_answer_that_ends_in_half_a_sequence_hides_no_other(last: str, capfd: pytest.CaptureFixture[str]) -> None:
    """What is held back belongs to its own answer: it is shown at its end, and swallows nothing of the next."""

    async def show() -> None:
        display = Display(Outlet())
        for text in (f"one {last}", "two\n"):
            display.take(ModelRequested(seq=1, session="s"))
            display.take(MessageDelta(seq=2, session="s", request=1, text=text))
            display.take(MessageDone(seq=3, session="s", request=1, text=text))
        await display.flush()
        display.outlet.close()

    asyncio.run(show())
    out = capfd.readouterr().out
    assert out.startswith("one ") and out.endswith("\ntwo\n") and out.count("\n") == 2


@pytest.mark.parametrize("piped", [False, True])
def test_a_long_answer_takes_time_by_its_length(piped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes in very many parts, and the loop that shows them hears stops too."""
    display = Display(Outlet())
    monkeypatch.setattr(display.out, "terminal", not piped)
    monkeypatch.setattr(display.out, "write", lambda *parts: None)
    display.take(ModelRequested(seq=1, session="s"))
    began = time.monotonic()
    for number in range(150_000):
        display.take(MessageDelta(seq=number + 2, session="s", request=1, text="word " if number % 10 else "end\n"))
    assert time.monotonic() - began < 10  # 20 s and more, were each part joined to all before it
    display.outlet.close()
