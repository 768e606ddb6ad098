"""Anthropic's models, by its own API. Needs a key."""

from __future__ import annotations

import ssl
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from ..config import Provider
from ..ports import Ask, Model
from .endpoint import UNUSED, Endpoint, endpoint_of
from .line import Owner
from .messages import MessagesReader, messages_body, messages_spared
from .patience import Patience
from .served import Api, Json, Reader, Response, Served, rehearse

if TYPE_CHECKING:
    import httpx2
    from anthropic import AsyncAnthropic


class _Sdk:
    def __init__(self) -> None:
        import anthropic
        import httpx2
        from anthropic._base_client import get_platform

        self.verify: ssl.SSLContext = httpx2.create_ssl_context()
        self.errors: tuple[type[Exception], ...] = (
            anthropic.APIError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            ssl.SSLError,
        )
        self._platform = get_platform()
        rehearse(self, Provider(name="", kind="anthropic"))

    def api(self, provider: Provider, endpoint: Endpoint) -> Api:
        return _Messages(self)

    def client(self, http: httpx2.AsyncClient, endpoint: Endpoint) -> AsyncAnthropic:
        import anthropic

        client = anthropic.AsyncAnthropic(
            api_key=None if endpoint.token else endpoint.key or UNUSED,
            auth_token=endpoint.token or None,
            base_url=endpoint.url,
            default_headers={"Authorization": endpoint.basic} if endpoint.basic else None,
            default_query=endpoint.query,
            max_retries=0,  # retries are ours: they are shown, and a stop ends them
            timeout=http.timeout,
            open_telemetry=False,
            http_client=http,
        )
        client._platform = self._platform  # else a thread is asked for it, anew for each request
        return client


class _Messages:
    def __init__(self, sdk: _Sdk) -> None:
        self._sdk = sdk

    def body(self, ask: Ask, endpoint: Endpoint) -> Json:
        return messages_body(ask, endpoint)

    def reader(self, ask: Ask, endpoint: Endpoint, provider: Provider) -> Reader:
        return MessagesReader(ask, endpoint, provider)

    def send(self, http: httpx2.AsyncClient, endpoint: Endpoint, body: Json) -> AbstractAsyncContextManager[Response]:
        asked = self._sdk.client(http, endpoint).messages.with_streaming_response
        return asked.create(**body)

    def spare(self, body: Json, words: str) -> bool:
        return messages_spared(body, words)


def make(provider: Provider, patience: Patience | None = None, scope: Owner | None = None) -> Model:
    """Imports the SDK, which takes a while: in a thread. Its connections are the scope's."""
    endpoint_of(provider)  # what is missing is said at once, and not after the import
    return Served(provider, _Sdk(), patience, scope)
