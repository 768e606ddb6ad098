"""A script for the scripted model: a file of JSON lines, each of them one answer; a bad line is named and nothing runs.

An answer is a list of steps, or one step. A step is an object with one of these keys, and nothing else:

    {"say": "Hello."}                                   text, word by word
    {"think": "Let me see."}                            reasoning
    {"notice": "Retrying."}                             for the person who waits
    {"wait": 0.5}                                       seconds
    {"call": "shell", "arguments": {"command": "ls"}}   a tool call
    {"usage": {"input": 10, "output": 5, "cost": 0.1}}  instead of the count of words
    {"fail": "The model is on fire."}                   the request fails
    {"hang": true}                                      no further word, until it is closed

Empty lines and lines that begin with `#` say nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Annotated, Any, Literal

import msgspec

from ..errors import UsageError
from ..events import Usage

MAX_WAIT = 86_400.0  # seconds: more is a mistake

_KINDS = ("say", "think", "notice", "wait", "call", "usage", "fail", "hang")


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    say: str | None = None
    think: str | None = None
    notice: str | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT)] | None = None
    call: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    arguments: dict[str, Any] | None = None
    usage: Usage | None = None
    fail: str | None = None
    hang: Literal[True] | None = None

    def __post_init__(self) -> None:
        if [getattr(self, kind) is not None for kind in _KINDS].count(True) != 1:
            raise ValueError(f"a step has exactly one of {', '.join(_KINDS)}")
        if self.arguments is not None and self.call is None:
            raise ValueError("`arguments` go with `call`")


Answers = list[list[Step]]

_Line = msgspec.json.Decoder(list[Step] | Step)


def read_script(path: str | os.PathLike[str]) -> Answers:
    """The answers of a file, in order. UsageError names the file and the line."""
    try:
        if not S_ISREG(os.stat(path).st_mode):
            raise UsageError(f"{os.fspath(path)}: is not a file")  # a pipe would be waited for without end
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{os.fspath(path)}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{os.fspath(path)}: is not UTF-8 text") from None
    except ValueError as error:
        raise UsageError(f"{os.fspath(path)!r}: cannot be read: {error}") from None
    answers: Answers = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            answer = _Line.decode(line)
        except msgspec.DecodeError as error:  # a ValidationError is one too
            raise UsageError(f"{os.fspath(path)}, line {number}: {error}") from None
        answers.append(answer if isinstance(answer, list) else [answer])
    return answers


def script_of(answers: Sequence[Sequence[dict[str, Any]]]) -> Answers:
    """The same from Python: a list of answers, each a list of steps. UsageError names the answer."""
    script: Answers = []
    for number, answer in enumerate(answers, 1):
        try:
            script.append(msgspec.convert(answer, list[Step]))
        except msgspec.ValidationError as error:
            raise UsageError(f"answer {number} of the script: {error}") from None
    return script
