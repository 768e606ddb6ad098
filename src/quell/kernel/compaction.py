"""A conversation that is too long gets a summary that stands for it: nothing is rewritten, and nothing dangles.

What the model is asked for it is text, cut to a size, so that it can be read where the conversation itself cannot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ..events import SessionCompacted
from ..ports import Message
from .history import CHARACTERS_PER_TOKEN, SUMMARY
from .mind import ContextFault, Mind, ModelFault

if TYPE_CHECKING:
    from .turn import Turn

SUMMARISE = (
    "Summarise this conversation so that you can go on with it: facts, decisions, what was done for the user's last "
    "message and with what result, open work. Text only."
)
LONG = "the conversation is long: summarising it"
FULL = "the conversation is too long for the model: summarising it"
PIECE = 2000
"""Characters of one text that are told where not all of it has room: its beginning and its end."""
SUMMARY_MOST = 20_000
"""Characters of a summary: one that is as long as what it stands for would help nobody."""
STAY_MOST = 16_000
"""Characters of the last steps that stay as they are beside a summary."""
WAY_OUT = "begin a new session, or use a model that reads more"
PARTS = (2, 16)
"""Which part of what was too long is asked about: if half of it is too long too, the model is a small one."""


async def compact(turn: Turn, mind: Mind) -> None:
    """At the start of a turn: what came before it is summarised if it is longer than the agent's limit."""
    history, limit = turn.session.history, turn.session.agent.limits.history
    before = history.size - len(turn.message.text) // CHARACTERS_PER_TOKEN
    if not limit or before <= limit:
        return
    messages = history.messages("")
    upto = turn.started.seq - 1
    try:
        await _summarise(turn, mind, messages, sys.maxsize, upto, LONG)
    except ModelFault:
        return  # recorded; the answer itself may still come


async def make_room(turn: Turn, mind: Mind, full: ContextFault) -> None:
    """After a request that was too long: all but what is being answered and the last steps. ModelFault if it cannot."""
    history = turn.session.history
    upto = history.reach(min(STAY_MOST, full.size // 8)) or history.reach(0)
    if not upto:
        raise ModelFault(f"{_words(full)}, and there is nothing to sum up: say less, or use a model that reads more")
    for part in PARTS:
        try:
            if await _summarise(turn, mind, history.messages(""), full.size // part, upto, FULL):
                return
            raise ModelFault(f"{_words(full)}, and its summary was empty: {WAY_OUT}")
        except ContextFault:
            continue  # a smaller part, or none
    raise still_full(full)


def still_full(full: ContextFault) -> ModelFault:
    return ModelFault(f"{_words(full)}, and summing it up did not help: {WAY_OUT}")


def _words(full: ContextFault) -> str:
    return str(full).rstrip(".")


async def _summarise(turn: Turn, mind: Mind, messages: list[Message], room: int, upto: int, notice: str) -> bool:
    answer = await mind.summarise(f"{told(messages, room)}\n\n{SUMMARISE}", notice)
    if not answer.text.strip():
        return False  # nothing cannot stand for a conversation: it stays as long as it is
    turn.emit(SessionCompacted, cause=mind.answered, summary=middle_out(answer.text, SUMMARY_MOST), upto=upto)
    return True


# -- a conversation as text


def told(messages: list[Message], room: int) -> str:
    """In at most about `room` characters: long texts without their middle, then without what is oldest.

    What the user said last, and the summary of what came before, are among it: all else is told to go on with those.
    """
    parts = [part for message in messages for part in _parts(message, 0)]
    if sum(len(part) + 1 for part in parts) <= room:
        return "\n".join(parts)
    asked = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    piece = max(1, min(PIECE, room // 8))
    kept: list[str] = []
    left, missing = room - 2 * piece, 0  # those two have their room
    for place in range(len(messages) - 1, -1, -1):
        pinned = place == asked or (place == 0 and messages[0].text.startswith(SUMMARY))
        for part in reversed(list(_parts(messages[place], piece))):
            if not pinned:
                left -= len(part) + 1
                if left < 0:
                    missing += 1
                    continue
            kept.append(part)
    gap = [f"[… {missing} earlier ones left out …]"] if missing else []
    return "\n".join([*gap, *kept[::-1]])


def _parts(message: Message, most: int) -> Iterator[str]:
    """Each text below the word for who said it, and apart from it: what it says is nobody else's."""
    name = message.role.capitalize()
    text = message.text + "".join(f"\n[a picture, {one.media}]" for one in message.images)
    if text.strip():
        yield _said(name, text, most)
    for call in message.calls:
        yield _said(f"{name} calls {call.tool}", msgspec.json.encode(call.arguments).decode(), most)
    for result in message.results:
        yield _said(f"{result.tool}{' failed' if result.failed else ''}", result.text, most)


def _said(who: str, text: str, most: int) -> str:
    lines = (middle_out(text, most) if most else text).splitlines() or [""]
    return "\n".join([f"{who:.100}:", *(f"  {line}" for line in lines)])


def middle_out(text: str, most: int) -> str:
    """The beginning and the end of what is too long."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[len(text) - half :]}"
