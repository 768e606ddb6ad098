"""What may happen, as types: a closed, versioned set of events with one JSON form for log, API, `--json` and exports.

Every event carries the same envelope. An event that answers a request cannot be built without saying which (H34, H40).
A request is named by the `seq` of the event that opened it.
"""

from __future__ import annotations

import functools
import math
import operator
from typing import Any, ClassVar, Literal

import msgspec

VERSION = 1
"""Of the whole set. A field may be added with a default; anything else is a new version with a migration."""

EndCause = Literal["completed", "stopped", "failed", "interrupted", "limit"]
Reach = Literal["turn", "session", "all"]
Channel = Literal["text", "reasoning", "notice"]
Extent = Literal["once", "session", "always"]


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The envelope. `seq` and `at` are given by the log, and nobody else."""

    seq: int = 0
    """Position in the log, counted over all sessions; never used twice, not even after a crash."""
    at: float = 0.0
    """Seconds since 1970."""
    source: str = "kernel"
    """Who says it: `kernel`, `user`, `model`, `tool:NAME`, `plugin:NAME`."""
    session: str = ""
    turn: int = 0
    """Number of the turn within its session, from 1; 0 for what belongs to none."""
    epoch: int = 0
    """What the fence compares: of the turn that it belongs to, else of the session at that moment."""
    cause: int = 0
    """The `seq` of the event that led to this one; 0 where a person or the world did."""
    request: int = 0
    """The `seq` of the request that this belongs to or answers; 0 where there is none."""

    kind: ClassVar[str] = ""
    delta: ClassVar[bool] = False
    """Part of a stream: it never forces a commit."""
    opens: ClassVar[tuple[str, ...]] = ()
    """A request, which ends with exactly one of these kinds."""


class Reply(Event, frozen=True, kw_only=True):
    """Belongs to a request, and says to which."""

    def __post_init__(self) -> None:
        if self.request <= 0:
            raise ValueError(f"{self.kind}: an event that answers must name its request")


# -- runtime


class RuntimeReady(Event, frozen=True, tag="runtime.ready"):
    version: str = ""
    rung: str = ""


class RuntimeStopping(Event, frozen=True, tag="runtime.stopping"):
    reason: str = ""


class RuntimeStopped(Event, frozen=True, tag="runtime.stopped"):
    confirmed: bool = True


class RuntimeErrored(Event, frozen=True, tag="runtime.error"):
    error: str = ""
    """`Type: message`; never empty (H41)."""
    where: str = ""


# -- admission, subscribers, settings


class AdmissionClosed(Event, frozen=True, tag="admission.closed"):
    reason: str = ""


class AdmissionReopened(Event, frozen=True, tag="admission.reopened"):
    pass


class SubscriberCut(Event, frozen=True, tag="subscriber.cut"):
    subscriber: str = ""
    reason: str = ""
    missed: int = 0


class ConfigChanged(Event, frozen=True, tag="config.changed"):
    changed: dict[str, Any] = {}


# -- harnesses


class HarnessStarting(Event, frozen=True, tag="harness.starting"):
    opens: ClassVar[tuple[str, ...]] = ("harness.ended",)
    harness: str = ""


class HarnessReady(Reply, frozen=True, tag="harness.ready"):
    pass


class HarnessIdle(Reply, frozen=True, tag="harness.idle"):
    pass


class HarnessEnded(Reply, frozen=True, tag="harness.ended"):
    reason: str = ""


# -- plugins


class PluginLoaded(Event, frozen=True, tag="plugin.loaded"):
    plugin: str = ""
    version: str = ""
    provides: list[str] = []


class PluginRemoved(Event, frozen=True, tag="plugin.removed"):
    plugin: str = ""
    reason: str = ""


class PluginError(Event, frozen=True, tag="plugin.error"):
    plugin: str = ""
    call: str = ""
    error: str = ""


# -- sessions


class SessionOpened(Event, frozen=True, tag="session.opened"):
    agent: str = ""
    cwd: str = ""
    title: str = ""
    parent: str = ""
    """The session whose sub-agent this is."""
    depth: int = 0


class SessionRenamed(Event, frozen=True, tag="session.renamed"):
    title: str = ""


class SessionForked(Event, frozen=True, tag="session.forked"):
    """In the new session: its history begins as that of `origin` was, up to and with the event `upto`."""

    origin: str = ""
    upto: int = 0


class SessionConfigured(Event, frozen=True, tag="session.configured"):
    """From here on these answer: the agent of that name, with that model."""

    agent: str = ""
    model: str = ""
    chosen: bool = False
    """A person named the agent, and not only its model: it is in its own sandbox, and in nobody else's."""


class SessionCompacted(Event, frozen=True, tag="session.compacted"):
    summary: str = ""
    upto: int = 0
    """What the summary stands for: everything of the session up to and with this event."""


class SessionClosed(Event, frozen=True, tag="session.closed"):
    reason: str = ""


class SessionDeleted(Event, frozen=True, tag="session.deleted"):
    """All that is left of it."""

    events: int = 0


# -- turns and messages


class TurnStarted(Event, frozen=True, tag="turn.started"):
    """`cause` is the message that it answers."""

    opens: ClassVar[tuple[str, ...]] = ("turn.ended",)


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was used: tokens in and out, and the price in dollars where it is known."""

    input: int = 0
    output: int = 0
    cost: float = 0.0
    cached: int = 0
    """Of the input: what the provider had in its cache."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input, self.output + other.output, self.cost + other.cost, self.cached + other.cached
        )


class TurnEnded(Reply, frozen=True, tag="turn.ended"):
    end: EndCause
    reason: str = ""
    steps: int = 0
    usage: Usage = Usage()


class Image(msgspec.Struct, frozen=True):
    """A picture that goes with a message."""

    media: str
    """`image/png`, say."""
    data: str
    """In base64."""


class MessageUser(Event, frozen=True, tag="message.user"):
    text: str = ""
    images: list[Image] = []


class MessageDelta(Reply, frozen=True, tag="message.delta"):
    """Text of the answer as it comes; `request` is the turn."""

    delta: ClassVar[bool] = True
    text: str = ""


class MessageDone(Reply, frozen=True, tag="message.done"):
    """The whole answer of the turn that `request` names."""

    text: str = ""


# -- models


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model wants done."""

    id: str
    tool: str
    arguments: dict[str, Any] = {}


class ModelRequested(Event, frozen=True, tag="model.requested"):
    opens: ClassVar[tuple[str, ...]] = ("model.answered", "model.failed")
    model: str = ""
    messages: int = 0
    purpose: Literal["answer", "compact"] = "answer"


class ModelDelta(Reply, frozen=True, tag="model.delta"):
    delta: ClassVar[bool] = True
    text: str = ""
    channel: Channel = "text"


class ModelRestarted(Reply, frozen=True, tag="model.restarted"):
    """What it has said to this request so far is void, and it says it again; `reason` tells the person why."""

    reason: str = ""


class ModelAnswered(Reply, frozen=True, tag="model.answered"):
    text: str = ""
    calls: list[ToolCall] = []
    usage: Usage = Usage()
    kept: dict[str, Any] = {}
    """What the model wants back with this answer, by who can read it: signed reasoning, say."""


class ModelFailed(Reply, frozen=True, tag="model.failed"):
    error: str = ""


# -- tools


class ToolRequested(Event, frozen=True, tag="tool.requested"):
    opens: ClassVar[tuple[str, ...]] = ("tool.ended", "tool.refused")
    tool: str = ""
    call: str = ""
    """The model's own name for it, which the answer to the model repeats."""
    arguments: dict[str, Any] = {}


class ToolStarted(Reply, frozen=True, tag="tool.started"):
    """The intent: on disk before the effect begins."""


class ToolOutput(Reply, frozen=True, tag="tool.output"):
    delta: ClassVar[bool] = True
    text: str = ""
    channel: Channel = "text"


class ToolEnded(Reply, frozen=True, tag="tool.ended"):
    result: str = ""
    error: str = ""
    """Empty when all went well."""


class ToolRefused(Reply, frozen=True, tag="tool.refused"):
    """It was not begun, or was kept from beginning."""

    reason: str = ""


# -- approvals


class ApprovalAsked(Event, frozen=True, tag="approval.asked"):
    """`cause` is the tool request that needs it."""

    opens: ClassVar[tuple[str, ...]] = ("approval.answered", "approval.withdrawn")
    tool: str = ""
    arguments: dict[str, Any] = {}
    digest: str = ""
    """Of tool and arguments: what an approval is bound to."""


class ApprovalAnswered(Reply, frozen=True, tag="approval.answered"):
    allow: bool = False
    reason: str = ""
    extent: Extent = "once"
    """How far a yes goes: for the same tool with the same arguments, in this session or always."""


class ApprovalWithdrawn(Reply, frozen=True, tag="approval.withdrawn"):
    reason: str = ""


# -- the queue


class QueueParked(Event, frozen=True, tag="queue.parked"):
    messages: list[int] = []
    """The `seq` of each message that waits."""
    reason: str = ""


class QueueReleased(Event, frozen=True, tag="queue.released"):
    messages: list[int] = []


class QueueDiscarded(Event, frozen=True, tag="queue.discarded"):
    messages: list[int] = []
    reason: str = ""


# -- stops


class StopRequested(Event, frozen=True, tag="stop.requested"):
    """From here on nothing of an earlier epoch starts an effect."""

    opens: ClassVar[tuple[str, ...]] = ("stop.receipt",)
    reach: Reach = "turn"
    reason: str = ""
    force: bool = False


class StopReceipt(Reply, frozen=True, tag="stop.receipt"):
    confirmed: bool = False
    receipt: dict[str, Any] = {}


# -- processes


class ProcessSpawned(Event, frozen=True, tag="process.spawned"):
    pid: int = 0
    argv: list[str] = []
    """As it was asked for; a receipt has it as it was seen."""
    background: bool = False
    isolation: str = ""
    """The sandbox that it runs in; empty where there is none."""


class ProcessEnded(Event, frozen=True, tag="process.ended"):
    pid: int = 0
    end: str = ""
    """`exit N`, `signal N` or `gone`."""


# -- memory


class MemoryStored(Event, frozen=True, tag="memory.stored"):
    text: str = ""


class MemoryRecalled(Event, frozen=True, tag="memory.recalled"):
    query: str = ""
    found: list[str] = []


class PluginEvent(Event, frozen=True, kw_only=True, tag="x"):
    """A kind of a plugin's own: `x.<plugin>.<name>` in JSON."""

    plugin: str
    name: str
    data: Any = None


def _kinds() -> dict[str, type[Event]]:
    found: dict[str, type[Event]] = {}
    for one in (*Event.__subclasses__(), *Reply.__subclasses__()):
        if one is not Reply:
            found[str(one.__struct_config__.tag)] = one
    return found


KINDS: dict[str, type[Event]] = _kinds()
"""Every kind by its name; `x` stands for those of plugins."""

for _kind, _type in KINDS.items():
    _type.kind = _kind

OPENERS: dict[str, tuple[str, ...]] = {kind: one.opens for kind, one in KINDS.items() if one.opens}
"""Which kinds are requests, and the kinds that end them."""

ENDERS: frozenset[str] = frozenset(end for ends in OPENERS.values() for end in ends)
DELTAS: frozenset[str] = frozenset(kind for kind, one in KINDS.items() if one.delta)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(
    functools.reduce(operator.or_, (one for kind, one in KINDS.items() if kind != "x"))
)


def kind_of(event: Event) -> str:
    """As it is written in the log and shown: plugins' own kinds by their full name."""
    return f"x.{event.plugin}.{event.name}" if isinstance(event, PluginEvent) else event.kind


def encode(event: Event) -> bytes:
    """The one JSON form."""
    if isinstance(event, PluginEvent):
        body = msgspec.to_builtins(event)
        del body["plugin"], body["name"]
        return _encoder.encode(body | {"kind": kind_of(event)})
    return _encoder.encode(event)


def mend(event: Event) -> None:
    """Make an event fit for the log, in place: half a character, a strange type, a number for a text become words.

    Whatever a plugin hands over, no row may be written that cannot be read again.
    """
    for field in msgspec.structs.fields(event):
        value = plain(getattr(event, field.name))
        try:
            fit = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            nothing = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
            fit = str(value) if field.type is str else nothing
        if fit is not msgspec.NODEFAULT:
            msgspec.structs.force_setattr(event, field.name, fit)


DEEP = 100
"""How far values may nest. What is deeper, or contains itself, is cut off there."""


def plain(value: Any, depth: int = DEEP) -> Any:
    """What JSON has a form for, all the way down."""
    if not depth:
        return "…"
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case float():
            return value if math.isfinite(value) else 0.0  # JSON has no other
        case None | bool() | int():
            return value
        case bytes():
            return value.decode("utf-8", "replace")
        case dict():
            return {str(plain(key, depth - 1)): plain(one, depth - 1) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one, depth - 1) for one in value]
        case msgspec.Struct():
            return {name: plain(getattr(value, name), depth - 1) for name in value.__struct_fields__}
    try:
        return repr(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  a boundary: what cannot be told in words is still told of
        return f"a {type(value).__name__}"


def decode(body: bytes | str) -> Event:
    """ValueError (msgspec's own errors are) says what is wrong with it."""
    try:
        return _decoder.decode(body)
    except msgspec.ValidationError:
        loose = msgspec.json.decode(body)
        words = str(loose.pop("kind", "")).split(".", 2) if isinstance(loose, dict) else []
        if len(words) != 3 or words[0] != "x":
            raise
        return msgspec.convert(loose | {"plugin": words[1], "name": words[2]}, PluginEvent)
