"""`quell approve`: what waits for a person's leave, with all of its arguments, and the answer to it.

What is always allowed is listed and revoked here too, also where no server runs.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..supervise.ledger import state_dir
from .client import ORDER, Client, NoServerError, path
from .flags import Json, MaybeId, State
from .screen import Line, Screen, exact, note

if TYPE_CHECKING:
    from ..kernel.grants import Grant, Grants

Question = dict[str, Any]
WORDS = {"once": "allowed", "session": "allowed in this session", "always": "always allowed"}


def approve(
    session: MaybeId = None,
    request: Annotated[
        int | None, typer.Argument(metavar="REQUEST", min=1, help="The number of the question; not needed for one.")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="Say no.")] = False,
    for_session: Annotated[
        bool, typer.Option("--session", help="Do not ask again for exactly this in this session.")
    ] = False,
    always: Annotated[
        bool, typer.Option("--always", help="Never ask again for exactly this: this agent, this folder.")
    ] = False,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Told to the agent.")] = None,
    granted: Annotated[bool, typer.Option("--granted", help="List what is always allowed.")] = False,
    revoke: Annotated[
        str | None,
        typer.Option("--revoke", metavar="DIGEST", help="Ask again: the digest, or 4 characters or more of it."),
    ] = None,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Without ID: list what waits for leave. With ID: give it, or deny it.

    Exit codes: 0; 125 a fault of quell's or of its options, or nothing to answer.

    \b
    quell approve
    quell approve build
    quell approve build --deny --reason "not on main"
    quell approve --granted
    """
    client, screen = Client(state), Screen()
    answers = deny or for_session or always or reason is not None or session is not None
    if granted or revoke is not None:
        if answers or (granted and revoke is not None):
            raise UsageError("--granted and --revoke stand alone: they answer no question")
        return _list(client, screen, state, as_json) if granted else _revoke(client, screen, state, revoke, as_json)
    if deny + for_session + always > 1:
        raise UsageError("one of --deny, --session and --always: a question has one answer")
    if session is None:
        if answers:
            raise UsageError("say which session is answered: quell approve ID")
        answer = client.get("approvals")
        if as_json:
            screen.json(answer, 2)
            return 0
        screen.lines([line for one in answer["approvals"] for line in question_lines(one)])
        if not answer["approvals"]:
            screen.line("nothing waits for leave")
        return 0
    card = client.card(session)
    question = chosen(card, request)
    extent = "always" if always else "session" if for_session else "once"
    answer = give(client, question, not deny, reason or "", extent)
    if as_json:
        screen.json({**question, **answer}, 2)
    else:
        word = "denied" if deny else WORDS[answer["extent"]]
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


def give(client: Client, question: Question, allow: bool, reason: str, extent: str = "once") -> dict[str, Any]:
    """The digest says what was looked at: another question is not answered by it."""
    body = {"allow": allow, "digest": question["digest"], "reason": reason, "extent": extent}
    answer: dict[str, Any] = client.post("sessions", question["session"], "approvals", question["request"], body=body)
    if answer["extent"] != extent:
        note("it was allowed once, and not always: that could not be written down; the server's log says why")
    return answer


# -- what is always allowed


def _list(client: Client, screen: Screen, state: str | None, as_json: bool) -> int:
    try:
        found = client.get("grants", within=ORDER)
    except NoServerError:
        found = {"grants": [_shown(one) for one in _file(state).all()]}
    if as_json:
        screen.json(found, 2)
        return 0
    for one in found["grants"]:
        screen.line(("bold", one["digest"][:12]), f"  {one['agent']} in {one['cwd']}", ("dim", f"  since {_day(one)}"))
        screen.lines([[("", f"  {line}")] for line in _what(one).split("\n")])
    if not found["grants"]:
        screen.line("nothing is always allowed")
    return 0


def _revoke(client: Client, screen: Screen, state: str | None, digest: str | None, as_json: bool) -> int:
    word = (digest or "").strip().lower()
    if not word:
        raise UsageError("say which: quell approve --granted lists the digests")
    try:
        gone = client.begin("DELETE", path("grants", word)).answer(ORDER)
    except NoServerError:
        gone = _shown(_file(state).revoke(word, time.time()))
    if as_json:
        screen.json(gone, 2)
    else:
        screen.line(("bold", "asked again"), f" for {gone['agent']} in {gone['cwd']}: ", _what(gone))
    return 0


def _file(state: str | None) -> Grants:
    """As the runtimes of this user have it."""
    from ..kernel.grants import Grants

    return Grants(os.path.abspath(state or state_dir()))


def _shown(grant: Grant) -> Question:
    import msgspec

    shown: Question = msgspec.to_builtins(grant)
    return shown


def _day(grant: Question) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(grant["at"]))


def _what(question: Question) -> str:
    """All of it: what a terminal would take for a sequence must be seen by whoever decides."""
    return exact(f"{question['tool']} {json.dumps(question['arguments'], indent=2, ensure_ascii=False)}")


def question_lines(question: Question) -> list[Line]:
    at = time.strftime("%H:%M:%S", time.localtime(question["at"]))
    first: Line = [("bold", f"{question['session']} {question['request']}"), ("dim", f"  asked at {at}")]
    return [first, *([("", f"  {line}")] for line in _what(question).split("\n"))]
