"""What went wrong between us and a provider, as one sentence: to be tried again, a context that is full, or the end.

No sentence holds a key, and none shows a URL with a password in it.
"""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import ContextFullError, ModelError
from .endpoint import Endpoint
from .patience import Passing, retry_after

QUOTED = 300
"""Characters of a server's own words that are repeated."""

_FULL = re.compile(
    r"context.?(length|window|size|limit)|maximum context|prompt is too long|input is too long|too many input tokens"
    r"|exceeds? the (available |maximum |model's )*(context|number of (input )?tokens)|input token count"
    r"|request_too_large|reduce the length of the (messages|prompt|input)"
    r"|request too large for|tokens must be reduced in order to run",  # more than an account may send in a minute
    re.IGNORECASE,
)
_SPENT = re.compile(
    r"insufficient_quota|exceeded your current quota|billing_error|billing_hard_limit|credit balance"
    r"|insufficient credits|spend.?limit|quota_exceeded|payment required",
    re.IGNORECASE,
)
"""Not `billing` alone: who asks too often is told where more can be bought."""
_NO_MODEL = re.compile(
    r"model_not_found|model.{0,80}(not found|does not exist|not exist|unknown)|_error model: |not a valid model",
    re.IGNORECASE,
)
_BUSY = re.compile(r"overloaded|rate_limit|server_error|api_error|timeout|unavailable|try again", re.IGNORECASE)

_CALLED = {
    408: "the request took too long",
    409: "a conflict",
    429: "too many requests",
    500: "an error of the server",
    502: "a bad gateway",
    503: "not available now",
    504: "the gateway waited too long",
    529: "overloaded",
}

Fault = ModelError | Passing


def of_status(
    endpoint: Endpoint,
    model: str,
    status: int,
    body: object,
    headers: Mapping[str, str],
    *,
    asked: str = "",
    streamed: bool = False,
) -> Fault:
    """An answer that is an error, to what was `asked`; `streamed`, it came as a part of the answer."""
    code, words = _words(body)
    told = f"{code} {words}"
    said = f": {_quoted(endpoint, words or code)}" if words or code else ""
    if status == 413 or _FULL.search(told):
        return ContextFullError(f"the conversation is longer than {model} can read{said}")
    if status in (402, 429, 400, 403, 0) and _SPENT.search(told):
        return ModelError(f"{endpoint.host} does not answer for want of credit{said}")
    if status == 401 or (status == 403 and "api_key" in told.lower()):
        return ModelError(_bad_key(endpoint, status))
    if status in (400, 404, 422) and _NO_MODEL.search(told):
        return ModelError(f"{endpoint.host} knows no model {model!r} ({status}){said}")
    if status == 404:
        return ModelError(f"there is nothing at {asked or endpoint.url} (404){said}; is {endpoint.url} right?")
    if status in (408, 409, 429) or status >= 500 or (streamed and _BUSY.search(told)):
        name = (
            f"{status}: {_CALLED.get(status, 'an error of the server')}" if status else _quoted(endpoint, words or code)
        )
        return Passing(name, retry_after(headers), said if status else "")
    if 300 <= status < 400:
        return ModelError(f"{endpoint.url} has moved ({status}): give the new address as its URL")
    return ModelError(f"{endpoint.host} refused the request{f' ({status})' if status else ''}{said}")


def of_connection(endpoint: Endpoint, error: BaseException) -> Fault:
    """No answer, or the end of one before its end."""
    for one in _chain(error):
        match one:
            case socket.gaierror() if one.errno != socket.EAI_AGAIN:
                return ModelError(f"there is no machine {endpoint.host}: is {endpoint.url} right?")
            case socket.gaierror():
                return Passing(f"the name {endpoint.host} could not be looked up")
            case ConnectionRefusedError():
                return ModelError(f"nobody listens at {endpoint.url}: is the server running, and the address right?")
            case ssl.SSLCertVerificationError():
                return ModelError(f"{endpoint.url} has a certificate that cannot be trusted: {one.verify_message}")
            case ssl.SSLError() if one.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
                return ModelError(f"{endpoint.url} does not speak TLS: is it http:// and not https://?")
    names = {type(one).__name__ for one in _chain(error)}
    if names & {"ConnectTimeout", "ConnectError", "PoolTimeout", "ProxyError"}:
        return Passing(f"{endpoint.url} cannot be reached")
    if names & {"ReadTimeout", "WriteTimeout"}:
        return Passing(f"{endpoint.host} has been silent for too long")
    if names & {"DecodingError"}:
        return ModelError(garbled(endpoint, "it cannot be decompressed"))
    if names & {"LocalProtocolError", "UnsupportedProtocol", "InvalidURL"}:
        return ModelError(f"{endpoint.url} cannot be asked: what was to be sent is no HTTP")
    return Passing(f"the connection to {endpoint.host} was lost")


def was_lost(error: BaseException) -> bool:
    """Whether the other side hung up."""
    return bool({type(one).__name__ for one in _chain(error)} & {"RemoteProtocolError", "ReadError", "WriteError"})


def garbled(endpoint: Endpoint, what: str) -> str:
    return f"what came from {endpoint.url} is no answer of a model: {what}; is the address right?"


def _bad_key(endpoint: Endpoint, status: int) -> str:
    if not endpoint.variable:
        return f"{endpoint.host} wants a key ({status}): name the variable that holds it as key_env of the provider"
    return f"{endpoint.host} does not accept the key in {endpoint.variable} ({status}): set it to a valid one"


def _words(body: object) -> tuple[str, str]:
    """The code and the message of an error, in whatever shape it comes."""
    if isinstance(body, Mapping) and body.get("error"):
        body = body["error"]
    if not isinstance(body, Mapping):
        text = str(body or "")
        return "", "" if text.lstrip().startswith("<") else text
    found: Mapping[str, Any] = body
    code = " ".join(str(found[key]) for key in ("code", "type") if found.get(key))
    words = found.get("message") or found.get("detail") or ""
    return code, words if isinstance(words, str) else str(words)


def _quoted(endpoint: Endpoint, words: str) -> str:
    words = " ".join(endpoint.masked(words).split()).rstrip(".")
    return words if len(words) <= QUOTED else words[:QUOTED] + "…"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """It, and what led to it, also where that is hidden: the pool below us says `from None`."""
    seen = 0
    while error is not None and seen < 20:
        seen += 1
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _chain(one)
        error = error.__cause__ or error.__context__
