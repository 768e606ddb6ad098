"""Every error becomes one answer, here and nowhere else: a status, a code, and a sentence that says what to do.

An error of our own making that nobody foresaw is a 500 without detail, and is logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ...errors import (
    AdmissionClosedError,
    BusClosedError,
    FencedError,
    NoSessionError,
    NoSupervisorError,
    PluginRefusedError,
    QuellError,
    ScopeStoppedError,
    StoreError,
    UsageError,
)
from .shapes import Fault

if TYPE_CHECKING:
    from starlette.requests import Request

_log = logging.getLogger("quell")


class BusyError(QuellError):
    """Raised when the kernel's loop did not take an order up in time. It was withdrawn: it does not run later."""


class RefusedError(QuellError):
    """Raised where an answer has a status of its own."""

    def __init__(self, status: int, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code


OURS: tuple[tuple[type[QuellError], int, str], ...] = (
    (UsageError, 400, "bad_request"),
    (NoSessionError, 404, "no_session"),
    (AdmissionClosedError, 409, "admission_closed"),
    (FencedError, 409, "conflict"),
    (PluginRefusedError, 409, "conflict"),
    (BusyError, 503, "busy"),
    (ScopeStoppedError, 503, "stopping"),
    (BusClosedError, 503, "stopping"),
    (NoSupervisorError, 503, "stopping"),
    (StoreError, 503, "broken"),
    (QuellError, 503, "unavailable"),
)
"""The first that fits."""

STARLETTES = {
    404: ("no_route", "there is nothing at this path: GET /api/v1/openapi.json lists what there is"),
    405: ("no_method", "{method} is not for this path: the header Allow says what is"),
}
UNFORESEEN = Fault("internal", "something went wrong inside Quell: its log has the details")


def answer_of(
    error: Exception, where: str, *, usage: int = 400, redact: Callable[[str], str] = lambda said: said
) -> Response:
    """`usage` is the status of what makes no sense here, where that is not the fault of the request's form."""
    if isinstance(error, RefusedError):
        return fault(error.status, error.code, redact(str(error)))
    for kind, status, code in OURS:
        if isinstance(error, kind):
            if kind is UsageError and usage != status:
                status, code = usage, "conflict"
            return fault(status, code, redact(str(error)))
    _log.error("%s met an error that nobody foresaw", where, exc_info=error)
    return fault(500, UNFORESEEN.code, UNFORESEEN.message)


def fault(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    body = msgspec.json.encode(Fault(code, message.encode("utf-8", "replace").decode()))
    return Response(body, status, headers, media_type="application/json")


async def astray(request: Request, error: Exception) -> Response:
    """What the router says of a path or a method that is not there. The path is not repeated: it may hold a secret."""
    assert isinstance(error, HTTPException)
    code, sentence = STARLETTES.get(error.status_code, ("bad_request", "this {method} cannot be answered"))
    return fault(error.status_code, code, sentence.format(method=request.method), error.headers)
