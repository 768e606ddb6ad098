"""What was typed in conversations before: in a file that only this user may read, with known secrets masked."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from prompt_toolkit.history import History

REMEMBERED = 1000
"""Lines of the history; of a file with twice as many the older ones go."""
LONGEST = 10_000
"""Characters of a line that is remembered: what is longer was pasted."""


class Remembered(History):
    """In memory only where the file cannot be. What `skip` says is not kept at all."""

    def __init__(self, path: str, redact: Callable[[str], str], skip: Callable[[str], bool]) -> None:
        super().__init__()
        self._path = path
        self._redact = redact
        self._skip = skip

    def append_string(self, string: str) -> None:
        if self._skip(string) or len(string) > LONGEST or string == next(iter(self._loaded_strings), None):
            return
        super().append_string(string)

    def load_history_strings(self) -> Iterable[str]:
        """The newest first. What is no line of ours is passed over."""
        try:
            with open(self._opened(os.O_RDONLY), encoding="utf-8", errors="replace") as file:
                lines = file.readlines()
        except OSError:
            return []
        if len(lines) > 2 * REMEMBERED:
            self._write("".join(lines[-REMEMBERED:]), os.O_TRUNC)
        return [text for line in reversed(lines[-REMEMBERED:]) if (text := _read(line))]

    def store_string(self, string: str) -> None:
        self._write(json.dumps(self._redact(string)) + "\n", os.O_APPEND)  # in ASCII: any character can be written

    def _opened(self, how: int) -> int:
        return os.open(self._path, how | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)

    def _write(self, text: str, how: int) -> None:
        try:
            with open(self._opened(os.O_WRONLY | os.O_CREAT | how), "w", encoding="utf-8") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(text)
        except OSError:
            return  # a history that cannot be kept holds nobody up


def _read(line: str) -> str:
    try:
        text = json.loads(line)
    except ValueError:
        return ""
    return text if isinstance(text, str) else ""
