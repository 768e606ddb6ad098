"""`quell approve`: what waits for a person's leave, with all of its arguments, and the answer to it."""

from __future__ import annotations

import json
import time
from typing import Annotated, Any

import typer

from ..errors import UsageError
from .client import Client
from .flags import Json, MaybeId, State
from .screen import Line, Screen

Question = dict[str, Any]


def approve(
    session: MaybeId = None,
    request: Annotated[
        int | None, typer.Argument(metavar="REQUEST", min=1, help="The number of the question; not needed for one.")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Told to the agent.")] = None,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Without ID: list what waits for leave. With ID: give it, or deny it.

    Exit codes: 0; 125 a fault of quell's or of its options, or nothing to answer.
    """
    client, screen = Client(state), Screen()
    if session is None:
        if deny or reason is not None:
            raise UsageError("say which session is answered: quell approve ID")
        answer = client.get("approvals")
        if as_json:
            screen.json(answer, 2)
            return 0
        screen.lines([line for one in answer["approvals"] for line in question_lines(one)])
        if not answer["approvals"]:
            screen.line("nothing waits for leave")
        return 0
    card = client.get("sessions", session)
    question = chosen(card, request)
    answer = give(client, question, not deny, reason or "")
    if as_json:
        screen.json({**question, **answer}, 2)
    else:
        word = "denied" if deny else "allowed"
        screen.line(("bold", word), f" {question['request']} of session {card['id']}: ", _what(question))
    return 0


def chosen(card: dict[str, Any], request: int | None) -> Question:
    """The question with that number, or the only one."""
    found: list[Question] = [one for one in card["approvals"] if request in (None, one["request"])]
    if len(found) == 1:
        return found[0]
    there = ", ".join(str(one["request"]) for one in card["approvals"]) or "none"
    if found:
        raise UsageError(f"session {card['id']} asks more than one thing: name one of {there}")
    what = "no open question" if request is None else f"no open question {request}; there is {there}"
    raise UsageError(f"session {card['id']} has {what}" if card["approvals"] else f"session {card['id']} asks nothing")


def give(client: Client, question: Question, allow: bool, reason: str) -> dict[str, Any]:
    """The digest says what was looked at: another question is not answered by it."""
    body = {"allow": allow, "digest": question["digest"], "reason": reason}
    answer: dict[str, Any] = client.post("sessions", question["session"], "approvals", question["request"], body=body)
    return answer


def _what(question: Question) -> str:
    return f"{question['tool']} {json.dumps(question['arguments'], indent=2, ensure_ascii=False)}"


def question_lines(question: Question) -> list[Line]:
    at = time.strftime("%H:%M:%S", time.localtime(question["at"]))
    first: Line = [("bold", f"{question['session']} {question['request']}"), ("dim", f"  asked at {at}")]
    return [first, *([("", f"  {line}")] for line in _what(question).split("\n"))]
