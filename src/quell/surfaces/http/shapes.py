"""What the HTTP API takes and gives, as types: the same in the answers, in the streams, in `--json` and in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from ...events import Extent, Image

State = Literal["running", "asking", "stopping", "idle", "closed"]
"""`asking`: an approval is open, and everything of the turn may wait for it."""
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Words = Annotated[str, msgspec.Meta(min_length=1, max_length=500_000)]
Model = Annotated[str, msgspec.Meta(max_length=500)]
Title = Annotated[str, msgspec.Meta(max_length=500)]
Seq = Annotated[int, msgspec.Meta(ge=1, le=(1 << 53) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]


# -- what is there


class Running(msgspec.Struct, frozen=True):
    """A command that runs. What it started itself, `GET …/processes` tells."""

    pid: int
    argv: list[str]
    background: bool
    turn: int
    since: float


class Question(msgspec.Struct, frozen=True):
    """An open approval: `request` names it."""

    request: int
    session: str
    tool: str
    arguments: dict[str, Any]
    digest: str
    at: float


class Queued(msgspec.Struct, frozen=True):
    message: int
    text: str
    at: float
    parked: bool


class Slip(msgspec.Struct, frozen=True):
    """A receipt, with what was asked for. `session` is empty for a Stop All."""

    seq: int
    session: str
    reach: str
    reason: str
    at: float
    confirmed: bool
    receipt: dict[str, Any]


class Card(msgspec.Struct, frozen=True):
    """A session, as a list shows it."""

    id: str
    title: str
    agent: str
    model: str
    """`provider:model`, once it is known: since it was chosen, or first asked."""
    cwd: str
    parent: str
    """The session whose sub-agent it is."""
    origin: str
    """The session that it was forked from."""
    opened: float
    changed: float
    state: State
    turn: int
    """The last one; 0 before the first."""
    end: str
    """How that ended: `completed`, `stopped`, `failed`, `interrupted`, `limit`; empty while it runs."""
    reason: str
    """Why it ended so."""
    asked: str
    """The last message, shortened."""
    last: str
    """The last output of model or tool, shortened."""
    queue: list[Queued]
    approvals: list[Question]
    processes: list[Running]
    stopped: int
    """The `seq` of its last receipt; 0 if it has none."""
    confirmed: bool
    """What that said; true if there is none."""


class Admission(msgspec.Struct, frozen=True):
    open: bool
    reason: str = ""
    since: float = 0.0


class Snapshot(msgspec.Struct, frozen=True):
    """How everything is after the event `seq`."""

    seq: int
    admission: Admission
    sessions: list[Card]
    """The oldest first."""


class Sessions(msgspec.Struct, frozen=True):
    sessions: list[Card]


class AgentView(msgspec.Struct, frozen=True):
    name: str
    model: str
    harness: str
    strategy: str
    tools: list[str]
    memory: str
    isolation: str


class Agents(msgspec.Struct, frozen=True):
    agents: list[AgentView]
    default: str
    """Who answers where none is named; empty if nobody can."""


class Queue(msgspec.Struct, frozen=True):
    queue: list[Queued]


class Approvals(msgspec.Struct, frozen=True):
    approvals: list[Question]


class Granted(msgspec.Struct, frozen=True):
    """Always allowed: this agent may do exactly that in this folder."""

    digest: str
    agent: str
    cwd: str
    tool: str
    arguments: dict[str, Any]
    at: float
    sandbox: str = ""
    """In which it was asked for; empty where there was none."""


class Grants(msgspec.Struct, frozen=True):
    grants: list[Granted]
    """The oldest first."""


class Receipts(msgspec.Struct, frozen=True):
    receipts: list[Slip]
    """The newest first."""


class Member(msgspec.Struct, frozen=True):
    pid: int
    argv: list[str]


class Command(msgspec.Struct, frozen=True):
    """A command that runs, with everything that it started."""

    session: str
    pid: int
    argv: list[str]
    background: bool
    turn: int
    since: float
    members: list[Member]


class Processes(msgspec.Struct, frozen=True):
    processes: list[Command]


class PluginView(msgspec.Struct, frozen=True):
    name: str
    version: str
    provides: list[str]
    errors: int


class Plugins(msgspec.Struct, frozen=True):
    plugins: list[PluginView]


class Config(msgspec.Struct, frozen=True):
    """Secrets are masked."""

    file: str
    settings: dict[str, float]
    agents: list[dict[str, Any]]


class Health(msgspec.Struct, frozen=True):
    status: Literal["ok", "blocked", "broken", "stopping"]
    """`blocked`: the kernel's loop does not turn; stops work all the same. `broken`: the log cannot be written."""
    version: str
    pid: int
    rung: str
    started: float
    seq: int
    admitting: bool


class Events(msgspec.Struct, frozen=True):
    events: list[dict[str, Any]]
    """As `docs/events.md` has them."""


# -- what is asked


class Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[str, msgspec.Meta(max_length=200)] = ""
    """Empty: whoever is configured to answer, else the offline one."""
    cwd: str = ""
    """A folder; empty for the server's own."""
    title: Title = ""
    text: Annotated[str, msgspec.Meta(max_length=500_000)] = ""
    """A first message, if there is one already."""
    model: Model = ""
    """In the place of the agent's own."""


class Amend(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    title: Title | None = None
    agent: Name | None = None
    model: Model | None = None
    """Agent and model answer from the next turn on; refused while one runs."""


class Fork(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    upto: Seq | None = None
    """The event that it is forked at; without one, where it is now."""


class Say(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Words
    images: list[Image] = []
    """PNG, JPEG, GIF or WebP in base64. A body has at most 1 MB, so all of them together about 700 kB."""


class Said(msgspec.Struct, frozen=True):
    message: int
    """On disk: the `seq` of its event. The turn that answers it has it as its `cause`."""
    queued: bool


class Pick(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: list[Seq] | None = None
    """Parked messages; without them, all."""


class Picked(msgspec.Struct, frozen=True):
    messages: list[int]


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    allow: bool
    digest: str = ""
    """Of the question that was looked at: refused if it is another. Empty: not compared."""
    reason: Title = ""
    extent: Extent = "once"
    """How far a yes goes: for the same call in this session, or always. In the answer `once`: it could not be kept."""


class Halt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reach: Literal["turn", "session"] = "session"
    reason: Title = "stop"
    grace: Seconds | None = None
    force: bool = False


class HaltAll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Title = "stop all"
    grace: Seconds | None = None
    force: bool = False


class Stopped(msgspec.Struct, frozen=True):
    """`receipt` is as `docs/design.md` has it."""

    confirmed: bool
    sentence: str
    receipt: dict[str, Any]


class Restarted(msgspec.Struct, frozen=True):
    confirmed: bool
    sentence: str
    receipt: dict[str, Any]
    session: Card


class Gate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Title = "closed by hand"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Seconds]


class Render(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    texts: Annotated[list[str], msgspec.Meta(max_length=500)]


class Rendered(msgspec.Struct, frozen=True):
    html: list[str]
    """Sanitised: safe to be put into a page."""


class Launch(msgspec.Struct, frozen=True):
    url: str
    """Opens the page, once."""


class Down(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    force: bool = False


class Fault(msgspec.Struct, frozen=True):
    """Every answer that is not 2xx."""

    code: str
    message: str
    """One sentence: what is wrong, and what to do."""
