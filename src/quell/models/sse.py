"""The events of an HTTP stream, read from its bytes as they come; what is no such stream is said so in a sentence."""

from __future__ import annotations

from collections.abc import AsyncIterator

LONGEST = 64 * 1024 * 1024
"""Bytes of one event. A stream that never ends a line must not fill the memory."""


class Garbled(Exception):
    """What came is no event stream."""


async def read(parts: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """The data of each event; names, ids and comments are left out, because all that we need is in the data."""
    rest = bytearray()
    lines: list[bytes] = []
    size = 0
    async for part in parts:
        searched = len(rest)
        rest += part
        if len(rest) + size > LONGEST:
            raise Garbled(f"an event of more than {LONGEST // 1024 // 1024} MB")
        if b"\n" not in part and b"\r" not in part:
            continue
        # A carriage return at the very end may be half of a line end: it waits for what follows.
        whole = max(rest.rfind(b"\n", searched), rest.rfind(b"\r", searched, len(rest) - 1)) + 1
        for line in bytes(rest[:whole]).splitlines():
            if line.startswith(b"data:"):
                lines.append(line[5:].removeprefix(b" "))
                size += len(line)
            elif not line and lines:
                yield _text(lines)
                lines, size = [], 0
        del rest[:whole]
    if rest.startswith(b"data:"):
        lines.append(bytes(rest[5:]).strip())
    if lines and lines[-1].endswith((b"}", b"]")):  # some forget the last empty line; what was cut off is no event
        yield _text(lines)


def _text(lines: list[bytes]) -> str:
    return b"\n".join(lines).decode("utf-8", "replace")
