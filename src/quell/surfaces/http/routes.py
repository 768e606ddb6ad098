"""The one table of routes: what answers, what it takes and gives. Router and OpenAPI are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from . import shapes as s
from .asking import Asked, Nothing
from .orders import Orders
from .reading import After, Form, Which

PREFIX = "/api/v1"
ALWAYS = (400, 401, 403, 413, 415)
"""What the guard, or the form of a request, may lead to anywhere."""

Handler = Callable[[Orders, Asked], Awaitable[Any]]


@dataclass(frozen=True)
class Route:
    """`gives` is the shape of the answer; where there is none, `media` says what it is."""

    method: str
    path: str
    handler: Handler
    summary: str
    gives: type[Any] | None = None
    status: int = 200
    takes: type[Any] | None = None
    query: type[Any] | None = None
    faults: tuple[int, ...] = ()
    media: tuple[str, ...] = ("application/json",)
    usage: int = 400
    """The status of a UsageError: 409 where it is the state of things that is in the way."""

    @property
    def name(self) -> str:
        return self.handler.__name__


def get(path: str, handler: Handler, summary: str, gives: type[Any] | None, *faults: int, **more: Any) -> Route:
    return Route("GET", path, handler, summary, gives, faults=faults, **more)


def post(
    path: str, handler: Handler, summary: str, takes: type[Any], gives: type[Any], *faults: int, **more: Any
) -> Route:
    return Route("POST", path, handler, summary, gives, takes=takes, faults=faults, **more)


ONE = "/sessions/{id}"
ROUTES: tuple[Route, ...] = (
    get("/state", Orders.state, "Everything, as of one event.", s.Snapshot),
    get("/agents", Orders.agents, "The agents that sessions can be opened with.", s.Agents),
    get("/sessions", Orders.sessions, "All sessions, the oldest first.", s.Sessions),
    post("/sessions", Orders.open, "Open a session.", s.Open, s.Card, 409, 503, status=201),
    get(ONE, Orders.session, "One session.", s.Card, 404),
    Route(
        "PATCH",
        ONE,
        Orders.amend,
        "Give it another title, agent or model.",
        s.Card,
        takes=s.Amend,
        faults=(404, 409, 503),
    ),
    Route(
        "DELETE",
        ONE,
        Orders.delete,
        "Stop it, then remove all of it from the log.",
        s.Stopped,
        faults=(404, 409, 503),
        usage=409,
    ),
    post(
        f"{ONE}/fork",
        Orders.fork,
        "A new session that begins with the history of this one.",
        s.Fork,
        s.Card,
        404,
        409,
        503,
        status=201,
    ),
    post(
        f"{ONE}/restart",
        Orders.restart,
        "Stop all of it, and begin it anew.",
        Nothing,
        s.Restarted,
        404,
        409,
        503,
        usage=409,
    ),
    get(
        f"{ONE}/export",
        Orders.export,
        "The whole conversation, as a file.",
        None,
        404,
        503,
        query=Form,
        media=("application/x-ndjson", "text/markdown"),
    ),
    get(f"{ONE}/events", Orders.events, "A page of its events, as the log has them.", s.Events, 404, 503, query=After),
    get(
        f"{ONE}/history", Orders.history, "The whole conversation, without parts of ended streams.", s.Events, 404, 503
    ),
    post(f"{ONE}/messages", Orders.say, "Say something to the agent.", s.Say, s.Said, 404, 409, 503, status=202),
    get(f"{ONE}/queue", Orders.queue, "The messages that wait.", s.Queue, 404),
    post(
        f"{ONE}/queue/release",
        Orders.release,
        "Let parked messages run.",
        s.Pick,
        s.Picked,
        404,
        409,
        503,
        usage=409,
    ),
    post(f"{ONE}/queue/discard", Orders.discard, "Drop parked messages.", s.Pick, s.Picked, 404, 409, 503, usage=409),
    get("/approvals", Orders.approvals, "What waits for a person's yes or no.", s.Approvals),
    post(f"{ONE}/approvals/{{number}}", Orders.answer, "Say yes or no.", s.Answer, s.Answer, 404, 409, 503),
    get("/grants", Orders.grants, "What is always allowed.", s.Grants, 503),
    Route(
        "DELETE",
        "/grants/{digest}",
        Orders.revoke,
        "Have it asked again.",
        s.Granted,
        faults=(404, 409, 503),
        usage=409,
    ),
    post(f"{ONE}/stop", Orders.stop, "End the turn, or all of the session.", s.Halt, s.Stopped, 404, 503),
    post("/stop", Orders.stop_all, "Close admission, and end everything.", s.HaltAll, s.Stopped, 503),
    get("/admission", Orders.admission, "Whether new work is let in.", s.Admission),
    post("/admission/close", Orders.close_admission, "Let nothing new in.", s.Gate, s.Admission, 503),
    post("/admission/reopen", Orders.reopen_admission, "Let new work in again.", Nothing, s.Admission, 503),
    get("/receipts", Orders.receipts, "The last receipts, the newest first.", s.Receipts, 404, query=Which),
    get("/receipts/{number}", Orders.receipt, "One receipt, by the number of its event.", s.Slip, 404, 503),
    get("/processes", Orders.processes, "All commands that run, with what they started.", s.Processes, 503),
    get(f"{ONE}/processes", Orders.processes_of, "Those of one session.", s.Processes, 404, 503),
    get("/plugins", Orders.plugins, "The plugins that are loaded.", s.Plugins, 503),
    get("/config", Orders.config, "Settings and agents, without secrets.", s.Config),
    Route("PATCH", "/config", Orders.configure, "Change settings.", s.Config, takes=s.Change, faults=(503,)),
    get("/health", Orders.health, "How the server is.", s.Health),
    get("/metrics", Orders.metrics, "Figures for Prometheus.", None, media=("text/plain",)),
    post("/markdown", Orders.render, "Markdown as HTML that is safe in a page.", s.Render, s.Rendered),
    post("/launches", Orders.launch, "An address that opens the page, once.", Nothing, s.Launch, 409, status=201),
    post("/down", Orders.down, "Stop the server.", s.Down, s.Down, status=202),
)
