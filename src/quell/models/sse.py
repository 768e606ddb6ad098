"""The events of an HTTP stream, read from its bytes as they come; what is no such stream is said so in a sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

LONGEST = 64 * 1024 * 1024
"""Bytes of one event. A stream that never ends a line must not fill the memory."""

MOST = 256 * 1024 * 1024
"""Bytes of one answer: none is so long, and one that never ends must not either."""
TOO_LONG = f"it has more than {MOST // 1024 // 1024} MB"


class Garbled(Exception):
    """What came is no event stream."""


async def read(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of each event; names, ids and comments are left out, because all that we need is in the data."""
    rest, events, left = bytearray(), _Events(), MOST
    async for part in parts:
        left -= len(part)
        if left < 0:
            raise Garbled(TOO_LONG)
        searched = len(rest)
        rest += part
        if len(rest) + events.size > LONGEST:
            raise Garbled(f"an event of more than {LONGEST // 1024 // 1024} MB")
        # A carriage return at the very end may be half of a line end: it waits for what follows.
        whole = max(rest.rfind(b"\n", searched), rest.rfind(b"\r", max(0, searched - 1), len(rest) - 1)) + 1
        for data in events.of(bytes(rest[:whole])):
            yield data
        del rest[:whole]
    for data in events.of(bytes(rest)):
        yield data
    if events.lines and events.lines[-1].endswith((b"}", b"]")):  # some forget the last empty line
        yield events.close()  # and what was cut off is no event


class _Events:
    """Lines in, the data of events out."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.size = 0

    def of(self, text: bytes) -> Iterator[str]:
        for line in text.splitlines():
            if line.startswith(b"data:"):
                self.lines.append(line[5:].removeprefix(b" "))
                self.size += len(line)
            elif not line and self.lines:
                yield self.close()

    def close(self) -> str:
        data = b"\n".join(self.lines).decode("utf-8", "replace")
        self.lines, self.size = [], 0
        return data
