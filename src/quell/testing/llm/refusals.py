"""The errors of each API, with its own status, type, code and words."""

from __future__ import annotations

from typing import Any, Protocol

from .replies import Fail, Fault

WINDOW = 200_000
"""Tokens that the model takes, where the server was not told."""


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.code = code
        self.param = param


class Refusals(Protocol):
    def of(self, fail: Fail, model: str, window: int, tokens: int) -> Refused: ...

    def elsewhere(self, method: str, path: str, known: bool) -> Refused:
        """What is asked for at another path, or at a known one by another method."""
        ...

    def body(self, refused: Refused, request_id: str) -> dict[str, Any]: ...


_OPENAI: dict[Fault, tuple[int, str, str | None, str]] = {
    "request": (400, "invalid_request_error", None, "Invalid request."),
    "key": (
        401,
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided: sk-*****uell. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
    ),
    "model": (
        404,
        "invalid_request_error",
        "model_not_found",
        "The model `{model}` does not exist or you do not have access to it.",
    ),
    "rate": (
        429,
        "tokens",
        "rate_limit_exceeded",
        "Rate limit reached for {model} in organization org-quell on tokens per min (TPM): Limit 30000, Used 29000, "
        "Requested 2000. Please try again in 2s. Visit https://platform.openai.com/account/rate-limits to learn more. "
        "You can increase your rate limit by adding a payment method to your account at "
        "https://platform.openai.com/account/billing.",
    ),
    "quota": (
        429,
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details. For more information on this "
        "error, read the docs: https://platform.openai.com/docs/guides/error-codes/api-errors.",
    ),
    "overloaded": (503, "server_error", None, "That model is currently overloaded with other requests."),
    "server": (500, "server_error", "server_error", "The server had an error while processing your request."),
}

_ANTHROPIC: dict[Fault, tuple[int, str, str]] = {
    "request": (400, "invalid_request_error", "Invalid request."),
    "key": (401, "authentication_error", "invalid x-api-key"),
    "model": (404, "not_found_error", "model: {model}"),
    "rate": (
        429,
        "rate_limit_error",
        "This request would exceed the rate limit for your organization of 30,000 input tokens per minute. For "
        "details, refer to: https://docs.anthropic.com/en/api/rate-limits. You can see the response headers for "
        "current usage. Please reduce the prompt length or the maximum tokens requested, or try again later.",
    ),
    "quota": (
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or "
        "purchase credits.",
    ),
    "overloaded": (529, "overloaded_error", "Overloaded"),
    "server": (500, "api_error", "Internal server error"),
    "context": (400, "invalid_request_error", "prompt is too long: {tokens} tokens > {window} maximum"),
}

_ANTHROPIC_KINDS = {
    402: "billing_error",
    403: "permission_error",
    409: "conflict_error",
    413: "request_too_large",
    504: "timeout_error",
}


class OpenAIRefusals:
    """`full` is what the API says of a context that is full, `asked` the parameter that holds the context."""

    def __init__(self, full: str, asked: str) -> None:
        self._full = full
        self._asked = asked

    def of(self, fail: Fail, model: str, window: int, tokens: int) -> Refused:
        full = 400, "invalid_request_error", "context_length_exceeded", self._full
        status, kind, code, message = full if fail.fault == "context" else _OPENAI[fail.fault]
        param = {"context": self._asked, "model": "model"}.get(fail.fault)
        message = fail.message or message.format(model=model, window=window, tokens=tokens)
        return Refused(message, status=fail.status or status, kind=kind, code=code, param=param)

    def elsewhere(self, method: str, path: str, known: bool) -> Refused:
        return Refused(f"Invalid URL ({method} {path})", status=405 if known else 404)

    def body(self, refused: Refused, request_id: str) -> dict[str, Any]:
        error = {"message": refused.message, "type": refused.kind, "param": refused.param, "code": refused.code}
        return {"error": error}


class AnthropicRefusals:
    def of(self, fail: Fail, model: str, window: int, tokens: int) -> Refused:
        status, kind, message = _ANTHROPIC[fail.fault]
        kind = _ANTHROPIC_KINDS.get(fail.status, kind)
        message = fail.message or message.format(model=model, window=window, tokens=tokens)
        return Refused(message, status=fail.status or status, kind=kind)

    def elsewhere(self, method: str, path: str, known: bool) -> Refused:
        if known:
            return Refused("Method Not Allowed", status=405)
        return Refused("Not found", status=404, kind="not_found_error")

    def body(self, refused: Refused, request_id: str) -> dict[str, Any]:
        error = {"type": refused.kind, "message": refused.message}
        return {"type": "error", "error": error, "request_id": request_id}
