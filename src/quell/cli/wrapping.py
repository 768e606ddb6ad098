"""Lines that are broken between words, as they stream: what follows a bullet or a bar stays below it.

A word that is longer than a line is left to the terminal, which gives it back in one piece to whoever copies it; so is
code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from .cells import cell, cells
from .screen import Line, Part

CODE = "code"
"""The style of text that is not ours to break."""
_LONGEST_FENCE = 100  # characters of a line that tell whether it is one
_TOKENS = re.compile(r"[!-~]+|[ \t]+|\n|.", re.DOTALL)
_MARKER = re.compile(r"[•│|>*+-]|\d{1,3}[.)]")
_BARS = frozenset("│|")
_NOT_FIRST = frozenset("、。，．：；！？）」』】〉》〕］｝’”…ー々ぁぃぅぇぉっゃゅょ")
"""Wide characters that no line begins with."""


class Wrap:
    """`take` parts as they come, and show what it gives; `end` gives what was held back: the last word.

    `hang` is how far the rest of a broken line is moved in; without it, that is where its text began.
    """

    def __init__(self, width: Callable[[], int], hang: int | None = None) -> None:
        self._width = width
        self._hang = hang
        self._given: Line = []
        self._column = 0
        self._blank: Line = []
        self._word: Line = []
        self._begun: Line = []  # of the line, while it may still be what its text stands beside
        self._margin: Line | None = None
        self._anew()

    def take(self, parts: Iterable[Part]) -> Line:
        for style, text in parts:
            if style == CODE:
                self._place()
                self._show(style, text)
            else:
                for token in _TOKENS.findall(text):
                    self._token(style, token)
        given, self._given = self._given, []
        return given

    def end(self) -> Line:
        """The line is over, whatever ends it."""
        self._blank = self._blank if self._word else []
        self._place()
        given, self._given = self._given, []
        self._anew()
        return given

    def rest(self) -> Line:
        """What was held back, although the line may go on."""
        self._place()
        given, self._given = self._given, []
        return given

    def _anew(self) -> None:
        self._column = 0
        self._blank, self._word, self._begun = [], [], []
        self._margin = None if self._hang is None else [("", " " * self._hang)]

    def _token(self, style: str, token: str) -> None:
        """Of a word as much as there is, blanks, the end of a line, or a character beyond ASCII."""
        if token == "\n":
            self._blank = self._blank if self._word else []
            self._place()
            self._give("", "\n")
            self._anew()
        elif token[0] in " \t":
            if self._word:
                self._place()
            _add(self._blank, style, token)
        else:
            before = self._word[-1][1][-1] if self._word else ""
            wide = not (token.isascii() and before.isascii())
            if wide and before and token not in _NOT_FIRST and (cell(token[0]) == 2 or cell(before) == 2):
                self._place()
            _add(self._word, style, token)

    def _place(self) -> None:
        """Show the word, on the next line if it does not fit on this one."""
        if not (self._word or self._blank):
            return
        word, blank = "".join(text for _, text in self._word), "".join(text for _, text in self._blank)
        if self._margin is None and word and not _MARKER.fullmatch(word):
            self._margin = self._beside(self._column + cells(blank))
        room, margin = self._width(), self._margin or []
        taken = cells(blank.expandtabs()) + cells(word)
        if word and self._column + taken > room and self._column > _size(margin):
            self._give("", "\n")
            self._column = 0
            for part in margin:
                self._show(*part)
        else:
            for part in self._blank:
                self._show(*part)
        for part in self._word:
            self._show(*part)
        self._column = self._column if self._column <= room else self._column % room  # the terminal has broken it
        self._blank, self._word = [], []

    def _beside(self, column: int) -> Line:
        """As wide as what stands before the text, with its bars. Where that leaves no room: nothing."""
        if 2 * column > self._width():
            return []
        bars = [(style, "".join(char if char in _BARS else " " for char in text)) for style, text in self._begun]
        return [*bars, ("", " " * (column - _size(bars)))]

    def _show(self, style: str, text: str) -> None:
        if self._margin is None:
            self._begun.append((style, text))
        self._give(style, text)
        self._column += cells(text.expandtabs())

    def _give(self, style: str, text: str) -> None:
        if text:
            _add(self._given, style, text)


class Plain:
    """Text as it was written, where there are no styles: of its marks only those of code mean something, to `Wrap`."""

    holds = False

    def __init__(self) -> None:
        self._line = ""
        self._fence = ""

    def take(self, text: str) -> Line:
        found: Line = []
        for piece in text.splitlines(keepends=True):
            found.append((CODE if self._fence else "", piece.removesuffix("\n")))
            self._line = (self._line + piece)[:_LONGEST_FENCE]
            if piece.endswith("\n"):
                found.append(("", "\n"))
                self._line_over()
        return found

    def end(self) -> Line:
        self._line = self._fence = ""
        return []

    def _line_over(self) -> None:
        mark = self._line.strip()[:3]
        self._line = ""
        if mark == self._fence:
            self._fence = ""
        elif mark in ("```", "~~~") and not self._fence:
            self._fence = mark


def folded(line: Line, width: int, hang: int = 0) -> list[Line]:
    """One line as several that fit."""
    if _size(line) <= width and not any("\n" in text for _, text in line):
        return [line]
    wrap = Wrap(lambda: width, hang)
    lines: list[Line] = [[]]
    for style, text in [*wrap.take(line), *wrap.end()]:
        first, *more = text.split("\n")
        lines[-1].append((style, first))
        lines += [[(style, one)] for one in more]
    return lines


def _add(line: Line, style: str, text: str) -> None:
    """To its last part, if that has the style."""
    if line and line[-1][0] == style:
        text = line.pop()[1] + text
    line.append((style, text))


def _size(line: Line) -> int:
    return sum(cells(text) for _, text in line)
