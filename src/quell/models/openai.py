"""OpenAI, and every server that speaks like it: Ollama, vLLM, LM Studio, OpenRouter. Needs its key, or a local address.

OpenAI itself is asked by the Responses API, all others by chat completions, unless the provider says otherwise.
"""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ..config import Provider
from ..ports import Ask, Model
from .chat import OPTIONAL, ChatReader, chat_body, spared
from .endpoint import UNUSED, Endpoint, endpoint_of
from .line import Owner
from .patience import Patience
from .responses import ResponsesReader, responses_body, responses_spared
from .served import Api, Json, Reader, Response, Served, rehearse

if TYPE_CHECKING:
    import httpx2
    from openai import AsyncOpenAI


class _Sdk:
    def __init__(self) -> None:
        import httpx2
        import openai
        from openai._base_client import get_platform

        self.verify: ssl.SSLContext = httpx2.create_ssl_context()
        self.errors: tuple[type[Exception], ...] = (openai.APIError, httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError)
        self._platform = get_platform()
        rehearse(self, Provider(name="", api="responses"), Provider(name="", api="chat"))

    def api(self, provider: Provider, endpoint: Endpoint) -> Api:
        wanted = provider.api or ("responses" if endpoint.own else "chat")
        return _Responses(self) if wanted == "responses" else _Chat(self)

    def client(self, http: httpx2.AsyncClient, endpoint: Endpoint) -> AsyncOpenAI:
        import openai

        headers = {"Authorization": endpoint.basic} if endpoint.basic else None
        client = openai.AsyncOpenAI(
            api_key=endpoint.key or UNUSED,
            base_url=endpoint.url,
            default_headers=headers,
            default_query=endpoint.query,
            max_retries=0,  # retries are ours: they are shown, and a stop ends them
            timeout=http.timeout,
            http_client=http,
        )
        client._platform = self._platform  # else a thread is asked for it, anew for each request
        return client


class _Responses:
    """The body goes as `extra_body`: what is given otherwise is compared with every type that the SDK knows, and a long
    history would keep the loop for seconds.
    """

    def __init__(self, sdk: _Sdk) -> None:
        self._sdk = sdk

    def body(self, ask: Ask, endpoint: Endpoint) -> Json:
        return responses_body(ask, endpoint)

    def reader(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> Reader:
        return ResponsesReader(ask, endpoint, provider)

    def send(self, http: httpx2.AsyncClient, endpoint: Endpoint, body: Json) -> AbstractAsyncContextManager[Response]:
        asked = self._sdk.client(http, endpoint).responses.with_streaming_response
        return asked.create(model=body["model"], input=[], stream=True, extra_body=body)

    def spare(self, body: Json, words: str) -> bool:
        return responses_spared(body, words)


class _Chat:
    def __init__(self, sdk: _Sdk) -> None:
        self._sdk = sdk

    def body(self, ask: Ask, endpoint: Endpoint) -> Json:
        return chat_body(ask, endpoint)

    def reader(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> Reader:
        return ChatReader(ask, endpoint, provider)

    def send(self, http: httpx2.AsyncClient, endpoint: Endpoint, body: Json) -> AbstractAsyncContextManager[Response]:
        asked = self._sdk.client(http, endpoint).chat.completions.with_streaming_response
        return asked.create(model=body["model"], messages=[], stream=True, extra_body=body)

    def spare(self, body: Json, words: str) -> bool:
        return spared(body, words, OPTIONAL)


def make(provider: Provider, patience: Patience | None = None, scope: Owner | None = None) -> Model:
    """Imports the SDK, which takes a while: in a thread. Its connections are the scope's."""
    endpoint_of(provider)  # what is missing is said at once, and not after the import
    return Served(provider, _Sdk(), patience, scope)
