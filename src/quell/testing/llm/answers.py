"""What a request is answered with: an error where the API would refuse it, else the next reply of the script.

When the script has run out, the answer is the scripted model's: it repeats what was said, and a line `$ cmd` becomes a
call of `shell`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Sequence

import msgspec

from ...events import ToolCall
from ...models.scripted import Scripted
from ...ports import Ask, Chunk, Message, Text
from .anthropic import Anthropic
from .chat import Chat
from .formats import Format, Json, Piece, count, encode
from .issued import Issued
from .refusals import WINDOW, Refused
from .replies import CallAll, Calls, Ending, Fail, Garbled, Reply, Say, Says, Think, Tokens, arguments_text
from .requests import ModelRequest
from .responses import Responses

JSON = "application/json"
STREAM = "text/event-stream; charset=utf-8"
_PAGE = b"<!DOCTYPE html><html><head><title>Welcome</title></head><body><h1>Please sign in.</h1></body></html>"
_BIT = 64  # bytes of a body without events that come at once

Wanted = Reply | Callable[[ModelRequest], Reply]


class Answer(msgspec.Struct):
    """What is sent. Without a `length` the body is in chunks."""

    status: int
    headers: dict[str, str]
    pieces: Iterator[Piece]
    length: int | None = None
    pace: float = 0.0
    ending: Ending | None = None
    after: int | None = None
    refused: str = ""


class Answers:
    def __init__(self, *, key: str, models: Sequence[str], window: int) -> None:
        self.script: list[Wanted] = []
        self.otherwise: Wanted | None = None
        self._key = key
        self._models = models
        self._window = window
        self._issued = Issued()
        self._formats: dict[str, Format] = {
            "/v1/chat/completions": Chat(),
            "/v1/responses": Responses(self._issued),
            "/v1/messages": Anthropic(),
        }

    def answer(self, request: ModelRequest) -> Answer:
        spoken = self._formats.get(request.path)
        request_id = self._issued.id("req_")
        if spoken is None or request.method != "POST":
            return self._elsewhere(request, request_id)
        try:
            body = self._checked(spoken, request)
        except Refused as refused:
            return _error(spoken, refused, None, request_id)
        reply = self._reply(spoken, request, body)
        return self._told(spoken, reply, body, request_id)

    def _elsewhere(self, request: ModelRequest, request_id: str) -> Answer:
        spoken = self._formats["/v1/messages" if "anthropic-version" in request.headers else "/v1/responses"]
        if request.method == "GET" and request.path == "/v1/models":
            try:
                self._check_key(spoken, request)
            except Refused as refused:
                return _error(spoken, refused, None, request_id)
            return _whole(200, {}, encode(_listed(self._models or ("quell-1",))))
        known = request.path in self._formats or request.path == "/v1/models"
        wrong = spoken.refusals.elsewhere(request.method, request.path, known)
        return _error(spoken, wrong, None, request_id)

    def _check_key(self, spoken: Format, request: ModelRequest) -> None:
        if self._key and spoken.key(request.headers) != self._key:
            raise spoken.refusals.of(Fail("key"), "", WINDOW, 0)

    def _checked(self, spoken: Format, request: ModelRequest) -> Json:
        """The body, if the API takes it."""
        self._check_key(spoken, request)
        body = request.body
        if not isinstance(body, dict):
            raise Refused("We could not parse the JSON body of your request. It has to be an object.")
        try:
            spoken.check(body, request.headers, self._issued)
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
        ) as error:  # a part that is not there, or of another type
            raise Refused(f"Invalid request: {type(error).__name__}: {error}.") from error
        if self._models and body["model"] not in self._models:
            raise spoken.refusals.of(Fail("model"), body["model"], WINDOW, 0)
        size = size_of(body)
        if self._window and size > self._window:
            raise spoken.refusals.of(Fail("context"), body["model"], self._window, size)
        return body

    def _reply(self, spoken: Format, request: ModelRequest, body: Json) -> Reply:
        wanted = self.script.pop(0) if self.script else self.otherwise
        reply = Reply() if wanted is None else wanted if isinstance(wanted, Reply) else wanted(request)
        if reply.parts or reply.garbled is not None:
            return reply
        return plain(spoken.history(body)) + reply

    def _told(self, spoken: Format, reply: Reply, body: Json, request_id: str) -> Answer:
        at, fail = next(((n, part) for n, part in enumerate(reply.parts) if isinstance(part, Fail)), (0, None))
        failed = None
        if fail is not None:
            failed = spoken.refusals.of(fail, body["model"], self._window or WINDOW, (self._window or WINDOW) + 1)
            if at == 0 or not body.get("stream"):
                answer = _error(spoken, failed, fail, request_id)
                answer.refused = ""  # as the script wants it
                return _with(answer, reply)
            reply = msgspec.structs.replace(reply, parts=reply.parts[:at])
        headers = {"x-request-id": request_id, "request-id": request_id}
        if reply.garbled is not None and reply.garbled != "wrong type":
            return _with(_garbled(reply.garbled, bool(body.get("stream")), headers), reply)
        whole = spoken.compose(reply, body, reply.tokens or _counted(reply, body), self._issued)
        if body.get("stream"):
            kind = "text/plain" if reply.garbled else STREAM
            pieces = spoken.stream(reply, whole, body, failed)
            return _with(Answer(200, {"content-type": kind, "cache-control": "no-cache", **headers}, pieces), reply)
        answer = _whole(200, headers, encode(whole))
        if reply.garbled:
            answer.headers["content-type"] = "text/plain"
        return _with(answer, reply)


def _with(answer: Answer, reply: Reply) -> Answer:
    answer.pace, answer.ending, answer.after = reply.pace, reply.ending, reply.after
    return answer


def _whole(status: int, headers: dict[str, str], body: bytes, kind: str = JSON) -> Answer:
    bits = ((body[at : at + _BIT], True) for at in range(0, len(body), _BIT))
    return Answer(status, {"content-type": kind, **headers}, bits, len(body))


def _error(spoken: Format, refused: Refused, fail: Fail | None, request_id: str) -> Answer:
    headers = {"x-request-id": request_id, "request-id": request_id}
    if fail is not None and fail.retry_after is not None:
        wait = fail.retry_after
        headers["retry-after"] = wait if isinstance(wait, str) else f"{wait:g}"
    answer = _whole(refused.status, headers, encode(spoken.refusals.body(refused, request_id)))
    answer.refused = refused.message
    return answer


def _garbled(what: Garbled, stream: bool, headers: dict[str, str]) -> Answer:
    if what == "html":
        return _whole(200, headers, _PAGE, "text/html; charset=utf-8")
    body = {
        "not json": b"data: The model is out to lunch.\n\n" if stream else b"The model is out to lunch.",
        "truncated": b'event: message_start\ndata: {"type": "message_sta\n\n' if stream else b'{"id": "quell-1", "cho',
        "no type": b'data: {}\n\ndata: {"surprise": [1, 2]}\n\n' if stream else b'{"surprise": [1, 2]}',
    }.get(what, b"")
    return _whole(200, headers, body, STREAM if stream else JSON)


def _counted(reply: Reply, body: Json) -> Tokens:
    thought = sum(count(part.text) for part in reply.parts if isinstance(part, Think))
    said = sum(count(part.text) for part in reply.parts if isinstance(part, Say))
    calls = [call for part in reply.parts if isinstance(part, CallAll) for call in part.calls]
    called = sum(1 + len(arguments_text(arguments)) // 4 for _, arguments in calls)
    return Tokens(size_of(body), thought + said + called, thought=thought)


def size_of(body: Json) -> int:
    """Tokens of a request, roughly: of what the model reads."""
    read = ("messages", "input", "instructions", "system", "tools")
    return len(encode([body[name] for name in read if name in body])) // 4


def _listed(models: Sequence[str]) -> Json:
    """Both APIs find what they look for in it."""
    now = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    data: list[Json] = [
        {
            "id": name,
            "object": "model",
            "type": "model",
            "created": int(now.timestamp()),
            "created_at": now.isoformat(),
            "owned_by": "quell",
            "display_name": name,
            "lifecycle": "active",
        }
        for name in models
    ]
    return {"object": "list", "data": data, "has_more": False, "first_id": models[0], "last_id": models[-1]}


def plain(messages: list[Message]) -> Reply:
    """What the scripted model answers."""
    chunks = _all(Scripted(), Ask(messages))
    text = "".join(chunk.text for chunk in chunks if isinstance(chunk, Text))
    calls = [(chunk.tool, chunk.arguments) for chunk in chunks if isinstance(chunk, ToolCall)]
    said = Says(text) if text or not calls else Reply()
    return said + Calls(*calls) if calls else said


def _all(model: Scripted, ask: Ask) -> list[Chunk]:
    """Without a script it waits for nothing, so it needs no loop."""

    async def collected() -> list[Chunk]:
        return [chunk async for chunk in model.answer(ask)]

    running = collected()
    while True:
        try:
            running.send(None)
        except StopIteration as ended:
            found: list[Chunk] = ended.value
            return found
