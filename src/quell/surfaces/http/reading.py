"""How things are. What the board knows is answered from it, also while the kernel's loop is blocked."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from starlette.responses import Response

from ...config import Agent, Settings
from ...errors import UsageError
from ...events import DELTAS, ENDERS, SessionForked, StopReceipt, decode
from ...kernel.export import to_markdown
from ...kernel.journal import PAGE
from ...kernel.redaction import MASK
from . import metrics
from .asking import Asked
from .faults import RefusedError
from .markdown import render_all
from .shapes import (
    Admission,
    Agents,
    AgentView,
    Approvals,
    Card,
    Command,
    Config,
    Granted,
    Grants,
    Health,
    Member,
    Plugins,
    PluginView,
    Processes,
    Queue,
    Receipts,
    Rendered,
    Sessions,
    Slip,
    Snapshot,
)

if TYPE_CHECKING:
    from ...kernel.commands import Spawned
    from ...kernel.grants import Grant
    from ...kernel.runtime import Runtime
    from ...ports import Row
    from ...supervise import Scope
    from .parts import Parts

LOOK = 1.5
"""Seconds for all trees together to be looked at; who has not answered by then is shown without what it started."""
BEAT = 0.5
"""Seconds for the kernel's loop to show that it turns."""


class After(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    after: Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE)] = 500


class Which(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    session: Annotated[str, msgspec.Meta(max_length=500)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=200)] = 50


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    form: Literal["jsonl", "markdown"] = "jsonl"


class Page(msgspec.Struct, frozen=True):
    """The events of the log as they are written: not read and written again."""

    events: list[msgspec.Raw]


class Asker(msgspec.Struct):
    """What is needed of an event to tell whether a stream is over."""

    request: int = 0


class Reading:
    """Each is a route."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.board = parts.board
        self.bridge = parts.bridge

    # -- from the board

    async def state(self, asked: Asked) -> Snapshot:
        return self.board.snapshot()

    async def sessions(self, asked: Asked) -> Sessions:
        return Sessions(self.board.cards())

    async def session(self, asked: Asked) -> Card:
        return self.card(self.board.resolve(asked.session))

    async def queue(self, asked: Asked) -> Queue:
        return Queue(self.board.queue(self.board.resolve(asked.session)))

    async def approvals(self, asked: Asked) -> Approvals:
        return Approvals(self.board.approvals())

    async def admission(self, asked: Asked) -> Admission:
        return self.board.admission()

    async def receipts(self, asked: Asked) -> Receipts:
        which: Which = asked.query
        session = self.board.resolve(which.session) if which.session else None
        return Receipts(self.board.receipts(session, which.limit))

    def card(self, id_: str) -> Card:
        card = self.board.card(id_)
        if card is None:
            raise RefusedError(404, "no_session", f"there is no session {id_!r} any more")
        return card

    async def agents(self, asked: Asked) -> Agents:
        try:
            usual = self.parts.info.usual("")
        except UsageError:  # the one that is configured is not there, or has no model
            usual = ""
        return Agents([view(one) for one in self.bridge.agents], usual)

    async def config(self, asked: Asked) -> Config:
        settings: Settings = self.bridge.runtime.settings
        agents = [masked(one) for one in self.bridge.agents]
        return self.bridge.redact(Config(self.parts.info.config_file, msgspec.structs.asdict(settings), agents))

    async def metrics(self, asked: Asked) -> Response:
        text = metrics.text(self.board, self.parts.feed, self.parts.info)
        return Response(text, headers={"Content-Type": metrics.CONTENT_TYPE})

    async def render(self, asked: Asked) -> Rendered:
        texts: list[str] = asked.body.texts
        return Rendered(await asyncio.to_thread(render_all, texts))

    async def health(self, asked: Asked) -> Health:
        info, bridge = self.parts.info, self.bridge
        turns = await bridge.turns(BEAT)
        status: Literal["ok", "blocked", "broken", "stopping"] = "ok" if turns else "blocked"
        if bridge.runtime.failed is not None:
            status = "broken"
        elif bridge.ending:
            status = "stopping"
        admitting = self.board.admission().open and status in ("ok", "blocked")
        return Health(status, info.version, os.getpid(), bridge.rung, info.started, self.board.seq, admitting)

    # -- from the kernel

    async def receipt(self, asked: Asked) -> Slip:
        kept = self.board.receipt(asked.number)
        return kept if kept is not None else await self.bridge.ask(lambda rt: slip_of(rt, asked.number))

    async def processes(self, asked: Asked) -> Processes:
        return self.bridge.redact(await self.bridge.ask(lambda rt: trees(rt, self.bridge.scope, None)))

    async def processes_of(self, asked: Asked) -> Processes:
        id_ = self.board.resolve(asked.session)
        return self.bridge.redact(await self.bridge.ask(lambda rt: trees(rt, self.bridge.scope, id_)))

    async def grants(self, asked: Asked) -> Grants:
        async def look(rt: Runtime) -> Grants:
            return Grants([granted(one) for one in await rt.granted()])

        return self.bridge.redact(await self.bridge.ask(look))

    async def plugins(self, asked: Asked) -> Plugins:
        async def look(rt: Runtime) -> Plugins:
            return Plugins(
                [
                    PluginView(one.name, one.version, rt.host.registry.provides(one.name), one.failures)
                    for one in rt.plugins.loaded.values()
                ]
            )

        return await self.bridge.ask(look)

    async def events(self, asked: Asked) -> Page:
        id_, after = self.board.resolve(asked.session), asked.query
        rows = await self.bridge.ask(lambda rt: rt.host.journal.rows(after.after, None, id_, limit=after.limit))
        return Page([msgspec.Raw(row.body) for row in rows])

    async def rows(self, after: int, upto: int | None, session: str | None, limit: int) -> list[Row]:
        """A page of the log, for streams that catch up."""
        return await self.bridge.ask(lambda rt: rt.host.journal.rows(after, upto, session, limit=limit))

    async def history(self, asked: Asked) -> Page:
        id_ = self.board.resolve(asked.session)
        rows = await self.bridge.ask(lambda rt: conversation(rt, id_))
        return Page([msgspec.Raw(row.body) for row in without_streams(rows)])

    async def export(self, asked: Asked) -> Response:
        form: Form = asked.query
        card = self.card(self.board.resolve(asked.session))
        rows = await self.bridge.ask(lambda rt: conversation(rt, card.id))
        if form.form == "jsonl":
            return attached(b"".join(row.body + b"\n" for row in rows), card, "jsonl", "application/x-ndjson")
        text = await asyncio.to_thread(lambda: to_markdown([decode(row.body) for row in rows], card.title or card.id))
        return attached(text.encode(), card, "md", "text/markdown")


def granted(grant: Grant) -> Granted:
    return Granted(grant.digest, grant.agent, grant.cwd, grant.tool, grant.arguments, grant.at, grant.sandbox)


def view(agent: Agent) -> AgentView:
    return AgentView(
        agent.name,
        agent.model,
        agent.harness,
        agent.strategy,
        list(agent.tools),
        agent.memory,
        agent.isolation,
    )


def masked(agent: Agent) -> dict[str, Any]:
    """As it is configured; of what its commands are given, only the names."""
    return {**msgspec.to_builtins(agent), "env": dict.fromkeys(agent.env, MASK)}


async def conversation(rt: Runtime, id_: str, upto: int | None = None) -> list[Row]:
    """All rows of a session; those of its origin first, if it is a fork."""
    rows: list[Row] = []
    before: list[Row] = []
    after = 0
    while page := await rt.host.journal.rows(after, upto, id_):
        for row in page:
            if row.kind == SessionForked.kind and isinstance(forked := decode(row.body), SessionForked):
                before = await conversation(rt, forked.origin, forked.upto)
        rows += page
        after = page[-1].seq
    return [*(before if upto is None else [row for row in before if row.seq <= upto]), *rows]


def without_streams(rows: list[Row]) -> list[Row]:
    """Parts of an answer are left out once the whole is there."""
    ended = {_request(row) for row in rows if row.kind in ENDERS}
    return [row for row in rows if row.kind not in DELTAS or _request(row) not in ended]


_asker = msgspec.json.Decoder(Asker)


def _request(row: Row) -> int:
    return _asker.decode(row.body).request


def attached(body: bytes, card: Card, ending: str, media: str) -> Response:
    """A name that no shell, header or file system takes amiss, whatever the title says."""
    title = re.sub(r"[^A-Za-z0-9]+", "-", card.title)[:40].strip("-").lower()
    name = "-".join(word for word in ("quell", card.id, title) if word)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(body, headers=headers, media_type=media)


async def slip_of(rt: Runtime, seq: int) -> Slip:
    """A receipt of the log, with what was asked for."""
    rows = await rt.host.journal.rows(seq - 1, seq, None, (StopReceipt.kind,), limit=1)
    if not rows or not isinstance(receipt := decode(rows[0].body), StopReceipt):
        raise RefusedError(404, "no_receipt", f"event {seq} is not a receipt: GET /api/v1/receipts lists the last ones")
    asked = await rt.host.journal.rows(receipt.request - 1, receipt.request, None, ("stop.requested",), limit=1)
    stop: Any = decode(asked[0].body) if asked else None
    reach, reason = (stop.reach, stop.reason) if stop is not None else ("", str(receipt.receipt.get("reason", "")))
    return Slip(receipt.seq, receipt.session, reach, reason, receipt.at, receipt.confirmed, receipt.receipt)


async def trees(rt: Runtime, scope: Scope, only: str | None) -> Processes:
    """All at once: one keeper that does not answer must not hold up the others."""
    found = [(id_, one) for id_, session in rt.host.live.items() if only in (None, id_) for one in session.processes()]
    looks = [scope.task(one.process.tree(), name=f"a look at {one.pid}") for _, one in found]
    if looks:
        await asyncio.wait(looks, timeout=LOOK)
    commands = []
    for (id_, one), look in zip(found, looks, strict=True):
        seen = look.done() and not look.cancelled() and look.exception() is None
        members = [Member(each.pid, list(each.argv)) for each in look.result()] if seen else []
        look.cancel()
        if members or not seen:  # else it has ended meanwhile
            commands.append(command(id_, one, members))
    return Processes(commands)


def command(session: str, one: Spawned, members: list[Member]) -> Command:
    return Command(session, one.pid, list(one.argv), one.background, one.turn, one.since, members)
