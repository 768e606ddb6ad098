"""How a request ends when nobody is left to answer it: stopped with its turn, or found open after a crash."""

from __future__ import annotations

import json
from typing import Any

from ..events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    HarnessEnded,
    HarnessStarting,
    ModelFailed,
    ModelRequested,
    StopReceipt,
    StopRequested,
    ToolEnded,
    ToolRefused,
    ToolRequested,
    TurnEnded,
    TurnStarted,
)
from ..supervise import Receipt


def end_of(request: Event, reason: str, begun: bool) -> Event:
    """`begun`: a tool's effect may have started, so that it cannot be called refused."""
    envelope: dict[str, Any] = {
        "session": request.session,
        "turn": request.turn,
        "epoch": request.epoch,
        "cause": request.seq,
        "request": request.seq,
    }
    match request:
        case ToolRequested():
            return ToolEnded(**envelope, error=reason) if begun else ToolRefused(**envelope, reason=reason)
        case ModelRequested():
            return ModelFailed(**envelope, error=reason)
        case ApprovalAsked():
            return ApprovalWithdrawn(**envelope, reason=reason)
        case TurnStarted():
            return TurnEnded(**envelope, end="interrupted", reason=reason)
        case StopRequested():
            return StopReceipt(**envelope, confirmed=False, receipt={"reason": reason})
        case HarnessStarting():
            return HarnessEnded(**envelope, reason=reason)
    raise TypeError(f"{request.kind} is not a request")


def receipt_of(asked: StopRequested, receipt: Receipt) -> StopReceipt:
    """The end of a stop: what was observed."""
    return StopReceipt(
        session=asked.session,
        turn=asked.turn,
        epoch=asked.epoch,
        cause=asked.seq,
        request=asked.seq,
        confirmed=receipt.confirmed,
        receipt=json.loads(receipt.to_json()),
    )
