"""Markdown as it streams: styled text without a redraw, the same however the input was cut.

Each character is shown as soon as it is clear what it is, a table when it is whole; what never becomes a mark is shown
as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .screen import Line, Part
from .tables import is_table, table
from .wrapping import CODE

LONGEST = 400  # characters of a phrase in bold, code or a link: a longer one is no such thing
LONGEST_ROW = 4000  # characters of a row of a table
_SPECIAL = frozenset("\\`*_[")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_STARS = re.compile(r"(\*{1,3})(?![\s*])(.*?[^\s*\\])\1(?!\*)")
_BARS = re.compile(r"(_{1,3})(?![\s_])(.*?[^\s_\\])\1(?![\w])")
_LINK = re.compile(r"\[([^\[\]]+)\]\(<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?: +\"[^\"]*\")?\)")
_EMPHASIS = {1: "italic", 2: "bold", 3: "bold italic"}
_FENCE = re.compile(r" *(`{3,}|~{3,})([^`]*)\Z")
_HEADING = re.compile(r" {0,3}(#{1,6}) \Z")
_BULLET = re.compile(r"( *)[-*+] \Z")
_RULE = re.compile(r" {0,3}(-{3,}|\*{3,}|_{3,})[ \t]*\Z")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_CODE_STYLE = "cyan"


class Markdown:
    """`take` what was said, already made safe, and show the parts that it gives; `end` gives what was held back."""

    def __init__(self, *, width: Callable[[], int] = lambda: 80, fancy: bool = True) -> None:
        self._width = width
        self._rule = "─" if fancy else "-"
        self._bullet, self._bar = ("•", "│ ") if fancy else ("-", "| ")
        self._parts: list[Part] = []
        self._held = ""
        self._before = "\n"  # the character that was shown last
        self._in_line = False  # past what a line may begin with
        self._style = ""  # of this line
        self._fence = ""  # what ends the block of code
        self._swallow = False  # the blank after the mark of a quotation
        self._rows: list[str] = []  # of what may be a table

    def take(self, text: str) -> list[Part]:
        for char in text:
            self._char(char)
        return self._given()

    def end(self) -> list[Part]:
        """Nothing comes any more: what is open is no mark."""
        if self._held and not self._is_row():
            self._line_over()
        elif self._held or self._rows:
            self._rows += [self._held] if self._held else []
            self._held = ""
            self._table_over()
        self._in_line, self._style, self._fence, self._before, self._swallow = False, "", "", "\n", False
        return self._given()

    @property
    def holds(self) -> bool:
        """Whether something is held back although its line is over: the rows of a table."""
        return bool(self._rows)

    def _given(self) -> list[Part]:
        parts, self._parts = self._parts, []
        return parts

    def _show(self, style: str, text: str) -> None:
        if not text:
            return
        self._before = text[-1]
        if self._parts and self._parts[-1][0] == style:
            text = self._parts.pop()[1] + text
        self._parts.append((style, text))

    def _char(self, char: str) -> None:
        swallow, self._swallow = self._swallow, False
        if swallow and char == " ":
            return
        if char == "\n" and self._is_row():
            self._rows.append(self._held)
            self._held = ""
        elif char == "\n":
            self._end_rows()
            self._line_over()
            self._show("", "\n")
            self._in_line, self._style = False, ""
        elif self._in_line and not self._held and char not in _SPECIAL:
            self._show(self._style, char)
        else:
            self._held += char
            if self._in_line:
                self._held = self._inline(self._held, over=False)
            else:
                self._begin()

    def _line_over(self) -> None:
        """What is held is all there is of the line."""
        held, self._held = self._held, ""
        if self._in_line:
            self._inline(held, over=True)
        elif self._fence:
            closes = held.strip()
            if closes.startswith(self._fence) and not closes.strip(self._fence[0]):
                self._fence = ""
                self._show("dim", held)
            else:
                self._show(CODE, held)
        elif found := _FENCE.match(held):
            self._fence = found[1]
            self._show("dim", held)
        elif _RULE.match(held):
            self._show("dim", self._rule * min(self._width(), 60))
        else:
            self._inline(held, over=True)

    # -- tables

    def _is_row(self) -> bool:
        return self._held.lstrip(" ").startswith("|") and not self._in_line and not self._fence

    def _end_rows(self) -> None:
        """What comes now is no row: the table, if it was one, is whole."""
        if self._rows:
            held, self._held = self._held, ""
            self._table_over()
            self._show("", "\n")
            self._held = held

    def _table_over(self) -> None:
        rows, self._rows = self._rows, []
        lines = table(rows, self._width(), self._rule, _phrase) if is_table(rows) else []
        for number, line in enumerate(lines or rows):
            self._show("", "\n" if number else "")
            if isinstance(line, str):
                self._inline(line, over=True)
            else:
                for part in line:
                    self._show(*part)

    # -- how a line begins

    def _begin(self) -> None:
        """Whether it is clear by now what the line is."""
        held = self._held
        if self._rows and held.strip(" ") and not self._is_row():
            self._end_rows()
        if self._fence:
            if not self._may_close(held):
                self._held, self._in_line, self._style = "", True, CODE
                self._show(CODE, held)
            return
        if found := _HEADING.match(held):
            self._go_on("bold underline" if len(found[1]) == 1 else "bold")
        elif found := _BULLET.match(held):
            self._show("", found[1])
            self._show("cyan", self._bullet)
            self._show("", " ")
            self._go_on("")
        elif held.endswith(">") and not held[:-1].strip(" "):
            self._show("dim", held[:-1] + self._bar)
            self._held, self._style, self._swallow = "", "dim", True
        elif not self._may_begin(held):
            self._in_line, self._held = True, ""
            for char in held:
                self._char(char)

    def _go_on(self, style: str) -> None:
        self._held, self._in_line, self._style = "", True, f"{self._style} {style}".strip()

    def _may_begin(self, held: str) -> bool:
        """Whether it could still become a heading, a bullet, a quotation, a rule or a fence."""
        word = held.lstrip(" ")
        if len(held) > (LONGEST if word[:1] != "|" else LONGEST_ROW):
            return False
        if word[:1] == "|":
            return True
        if not word or word in ("-", "*", "+"):
            return True
        if word[0] == "#":
            return len(word) <= 6 and not word.strip("#")
        if word[0] in "-*_":
            return not word.strip(word[0])
        if word[0] in "`~":
            run = len(word) - len(word.lstrip(word[0]))
            return run == len(word) or (run >= 3 and "`" not in word[run:])
        return False

    def _may_close(self, held: str) -> bool:
        word = held.strip(" ")
        return len(held) <= LONGEST and not word.strip(self._fence[0])

    # -- within a line

    def _inline(self, text: str, *, over: bool) -> str:
        """Show what is clear, and give back what is not yet. `over`: nothing of this line comes any more."""
        if self._fence and self._in_line:
            self._show(CODE, text)
            return ""
        while text:
            if text[0] not in _SPECIAL:
                self._show(self._style, text[0])
                text = text[1:]
                continue
            taken = self._mark(text, over)
            if taken == 0:
                return text
            text = text[taken:]
        return ""

    def _mark(self, text: str, over: bool) -> int:
        """How many characters the mark at the beginning takes; 0 if that is not clear yet."""
        first = text[0]
        if first == "\\":
            return self._escape(text, over)
        if first == "[":
            return self._link(text, over)
        run = len(text) - len(text.lstrip(first))
        if run == len(text) <= LONGEST and not over:
            return 0
        if first == "`":
            found = _CODE.match(text)
        else:
            opens = run <= 3 and run < len(text) and not text[run].isspace() and not self._before.isalnum()
            found = (_STARS if first == "*" else _BARS).match(text) if opens else None
            if not opens:
                return self._literal(text, run)
        if found is None:
            hopeless = over or len(text) > LONGEST
            return self._literal(text, run) if hopeless else 0
        if found.end() == len(text) and not over:
            return 0  # one more of the same would make it another mark
        if first == "`":
            inner = found[2]
            inner = inner[1:-1] if inner[:1] == inner[-1:] == " " and inner.strip() else inner
            self._show(f"{self._style} {_CODE_STYLE}".strip(), inner)
        else:
            self._within(found[2], _EMPHASIS[len(found[1])])
        return found.end()

    def _within(self, text: str, style: str) -> None:
        """A phrase, which may have marks of its own."""
        outer, self._style = self._style, " ".join(dict.fromkeys(f"{self._style} {style}".split()))
        self._before = " "
        self._inline(text, over=True)
        self._style = outer

    def _literal(self, text: str, number: int) -> int:
        self._show(self._style, text[:number])
        return number

    def _escape(self, text: str, over: bool) -> int:
        if len(text) == 1:
            return self._literal(text, 1) if over else 0
        if text[1] in _PUNCTUATION:
            self._show(self._style, text[1])
            return 2
        return self._literal(text, 1)

    def _link(self, text: str, over: bool) -> int:
        if found := _LINK.match(text):
            words, address = found[1], found[2]
            self._within(words, "underline")
            if address and address != words:
                self._show("dim", f" ({address})")
            return found.end()
        closed = text.find("]")
        broken = text.find("[", 1) > 0 if closed < 0 else closed + 1 < len(text) and text[closed + 1] != "("
        ended = closed > 0 and text.find(")", closed) > 0 and text.count("(", closed) <= text.count(")", closed)
        if over or broken or ended or len(text) > LONGEST:
            return self._literal(text, 1)
        return 0


def _phrase(text: str) -> Line:
    """The text of one cell, with its marks as styles."""
    inner = Markdown()
    inner._in_line = True
    inner._inline(text, over=True)
    return inner._given()
