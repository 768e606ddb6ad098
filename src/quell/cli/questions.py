"""Approvals in a conversation: one question at a time, answered by a line that was begun after it was shown.

What is typed for something else is never an answer.
"""

from __future__ import annotations

import time
from collections import deque

from ..errors import QuellError
from ..events import ApprovalAnswered, ApprovalAsked, ApprovalWithdrawn, Event
from .asking import CHOICES, KEYS, SHORT, WORDS, Answers
from .display import Display
from .leave import SHOW, question
from .screen import safe

AT_LEAST = 0.3
"""Seconds that a question stands there before a line that answers it is begun."""
_SAID = {"yes": "y", "once": "y", "session": "s", "always": "a", "no": "n", "show": SHOW}


class Questions:
    """Of a session and its sub-agents. `take` each event; what comes of it reaches `answer`."""

    def __init__(self, display: Display, answer: Answers, *, yes: bool) -> None:
        self._display = display
        self._answer = answer
        self._yes = yes
        self._waiting: deque[ApprovalAsked] = deque()
        self._since = 0.0

    @property
    def choices(self) -> str:
        """What is said over the line while somebody is asked; nothing at other times."""
        if not self._waiting:
            return ""
        more = f"  ({len(self._waiting) - 1} more wait)" if len(self._waiting) > 1 else ""
        words = f"{CHOICES}, and Enter{more}"
        return words if len(words) < self._display.aside.width else f"{SHORT} and Enter"

    def take(self, event: Event) -> None:
        match event:
            case ApprovalAsked() if self._yes:
                self._give(event, "y", "--yes")
            case ApprovalAsked():
                self._waiting.append(event)
                if len(self._waiting) == 1:
                    self._ask()
            case ApprovalAnswered() | ApprovalWithdrawn():
                self._over(event)

    def answered(self, text: str, begun: float) -> bool:
        """Whether that line, begun at that time, was for the question."""
        word = text.strip().lower()
        word = _SAID.get(word, word)
        if not self._waiting or word not in (*KEYS, SHOW):
            return False
        if word == SHOW:
            self._ask(whole=True)
        elif begun - self._since < AT_LEAST:
            self._display.line("yellow", "that was begun before the question was there: answer it again")
        else:
            self._display.line("dim", f"  {WORDS[word]}")
            self._give(self._waiting[0], word, "")
        return True

    def _ask(self, *, whole: bool = False) -> None:
        """The time is that of the question's first sight: what it says does not change."""
        if not whole:
            self._since = time.monotonic()
        display = self._display
        lines, _ = question(self._waiting[0], display.aside.width, whole=whole, fancy=display.fancy)
        display.lines(lines)

    def _give(self, asked: ApprovalAsked, word: str, reason: str) -> None:
        allow, extent = KEYS[word]
        try:
            self._answer(asked, allow, reason or ("" if allow else "the person said no"), extent)
        except QuellError:
            return  # withdrawn in the same moment

    def _over(self, event: ApprovalAnswered | ApprovalWithdrawn) -> None:
        """Answered or withdrawn: the next one, if there is one, is asked."""
        shown = self._waiting[0] if self._waiting else None
        self._waiting = deque(one for one in self._waiting if one.seq != event.request)
        if shown is None or shown.seq != event.request:
            return
        if isinstance(event, ApprovalWithdrawn):
            self._display.line("dim", f"  withdrawn: {safe(event.reason)}")
        if self._waiting:
            self._ask()


def is_answer(text: str) -> bool:
    """Whether it could be one: such a line is no use to remember."""
    word = text.strip().lower()
    return word in _SAID or word in (*KEYS, SHOW)
