"""What the command line says: on stdout, in one line, and about wrong words."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def show(text: str) -> int:
    """Write to stdout and return the exit code: a reader that is gone is no fault, a full disk is."""
    data = text.encode(errors="backslashreplace")
    try:
        while data:
            data = data[os.write(1, data) :]
    except BrokenPipeError:
        return 0
    except OSError as error:
        complain(f"cannot write to standard output: {error.strerror}")
        return 125
    return 0


def complain(sentence: str) -> None:
    """Without the secrets of the environment: a sentence repeats the words that it refuses."""
    from ..secrecy import secrets_in

    for secret in secrets_in(os.environ):
        sentence = sentence.replace(secret, "***")
    try:
        os.write(2, f"quell: {plain(sentence)}\n".encode(errors="backslashreplace"))
    except OSError:
        return


def by_flag(sentence: str) -> str:
    """The same for who has a command line: programs name a state directory in another way."""
    return sentence.replace("choose another with state_dir=", "name another with --state")


def plain(sentence: str) -> str:
    """One line whatever is in it: a name may hold anything."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in sentence)


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)`, or nothing where none is near."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), 1)
    return f" (did you mean {close[0]}?)" if close else ""
