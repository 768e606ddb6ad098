"""The SDKs of OpenAI and Anthropic as one client, for what is the same in every API; and requests without an SDK."""

import json
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from typing import Any, NamedTuple

import anthropic
import openai
from anthropic.types import Message
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from quell.testing import ModelServer

APIS = ("chat", "responses", "anthropic")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}


class Heard(NamedTuple):
    thought: str
    said: str
    calls: list[tuple[str, str]]
    counts: tuple[int, int, int, int]
    stop: str


class Client:
    """The SDK of one API, without retries of its own."""

    def __init__(self, server: ModelServer, api: str, stack: ExitStack) -> None:
        self.api = api
        if api == "anthropic":
            self.anthropic = stack.enter_context(
                anthropic.Anthropic(base_url=server.root, api_key="key", max_retries=0)
            )
        else:
            self.openai = stack.enter_context(openai.OpenAI(base_url=server.url, api_key="key", max_retries=0))

    def ask(self, text: str = "Hi.", *, stream: bool = True) -> Heard:
        return {"chat": self._chat, "responses": self._responses, "anthropic": self._anthropic}[self.api](text, stream)

    def stream(self, text: str = "Hi.") -> Any:
        """The raw events."""
        body = body_of(self.api, text)
        if self.api == "chat":
            return self.openai.chat.completions.create(**body)
        return (
            self.openai.responses.create(**body) if self.api == "responses" else self.anthropic.messages.create(**body)
        )

    def events(self) -> tuple[list[Any], Exception | None]:
        """The raw events, and what ended them too early."""
        found: list[Any] = []
        try:
            found.extend(self.stream())
        except Exception as error:  # noqa: BLE001  an SDK raises errors of its own, of httpx2 and of json
            return found, error
        return found, None

    def _chat(self, text: str, stream: bool) -> Heard:
        body = body_of("chat", text)
        del body["stream"]
        if stream:
            with self.openai.chat.completions.stream(**body) as events:
                whole: ChatCompletion = events.get_final_completion()
        else:
            del body["stream_options"]
            whole = self.openai.chat.completions.create(**body)
        (choice,), usage = whole.choices, whole.usage
        assert usage is not None and usage.prompt_tokens_details is not None
        calls = [
            (call.function.name, call.function.arguments)
            for call in choice.message.tool_calls or ()
            if call.type == "function"
        ]
        details = usage.prompt_tokens_details
        counts = (
            usage.prompt_tokens,
            usage.completion_tokens,
            details.cached_tokens or 0,
            details.cache_write_tokens or 0,
        )
        thought = getattr(choice.message, "reasoning_content", "")
        return Heard(thought, choice.message.content or "", calls, counts, choice.finish_reason)

    def _responses(self, text: str, stream: bool) -> Heard:
        body = body_of("responses", text)
        del body["stream"]
        if stream:
            with self.openai.responses.stream(**body) as events:
                whole: Response = events.get_final_response()
        else:
            whole = self.openai.responses.create(**body)
        assert whole.usage is not None
        thought = "".join(part.text for item in whole.output if item.type == "reasoning" for part in item.summary)
        calls = [(item.name, item.arguments) for item in whole.output if item.type == "function_call"]
        details = whole.usage.input_tokens_details
        counts = whole.usage.input_tokens, whole.usage.output_tokens, details.cached_tokens, details.cache_write_tokens
        return Heard(thought, whole.output_text, calls, counts, str(whole.status))

    def _anthropic(self, text: str, stream: bool) -> Heard:
        body = body_of("anthropic", text)
        del body["stream"]
        if stream:
            with self.anthropic.messages.stream(**body) as events:
                whole: Message = events.get_final_message()
        else:
            whole = self.anthropic.messages.create(**body)
        thought = "".join(block.thinking for block in whole.content if block.type == "thinking")
        said = "".join(block.text for block in whole.content if block.type == "text")
        calls = [
            (block.name, json.dumps(block.input, separators=(",", ":")))
            for block in whole.content
            if block.type == "tool_use"
        ]
        read, written = whole.usage.cache_read_input_tokens or 0, whole.usage.cache_creation_input_tokens or 0
        counts = whole.usage.input_tokens + read + written, whole.usage.output_tokens, read, written
        return Heard(thought, said, calls, counts, str(whole.stop_reason))


def body_of(api: str, text: str = "Hi.") -> dict[str, Any]:
    user = {"role": "user", "content": text}
    if api == "chat":
        return {"model": "m", "messages": [user], "stream": True, "stream_options": {"include_usage": True}}
    if api == "responses":
        thinking = {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        return {"model": "m", "input": [user], "stream": True, "store": False, **thinking}
    thinking = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    return {"model": "m", "messages": [user], "stream": True, "max_tokens": 4096, **thinking}


def post(server: ModelServer, path: str, body: Any, **headers: str) -> tuple[int, bytes]:
    """Without an SDK: what is on the wire."""
    with closing(HTTPConnection("127.0.0.1", int(server.root.rpartition(":")[2]), timeout=5)) as link:
        link.request("POST", path, json.dumps(body), {"anthropic-version": "2023-06-01", **headers})
        answer = link.getresponse()
        return answer.status, answer.read()
