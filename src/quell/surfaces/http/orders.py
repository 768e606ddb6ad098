"""What a person asks for. Each order runs in the kernel's loop, and is answered when it is on disk and on the board."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ...errors import QuellError
from ...events import ApprovalAsked
from ...kernel.session import Session
from ...supervise import Receipt
from .asking import Asked
from .faults import RefusedError
from .reading import Reading, granted
from .shapes import (
    Admission,
    Amend,
    Answer,
    Card,
    Change,
    Config,
    Down,
    Fork,
    Gate,
    Granted,
    Halt,
    HaltAll,
    Launch,
    Open,
    Pick,
    Picked,
    Restarted,
    Said,
    Say,
    Stopped,
)

if TYPE_CHECKING:
    from ...events import Event, Reach
    from ...kernel.runtime import Runtime


SOON = 0.25
"""Seconds for the board to see a stop. While the kernel's loop is blocked it does not."""


class Orders(Reading):
    """Each is a route."""

    # -- sessions

    async def open(self, asked: Asked) -> Card:
        wish: Open = asked.body
        agent = wish.agent or self.parts.info.usual(wish.model)

        async def run(rt: Runtime) -> str:
            session = await rt.open(agent, wish.cwd or ".", title=wish.title, model=wish.model)
            if wish.text:
                try:
                    await session.send(wish.text).accepted()
                except QuellError:  # admission was closed meanwhile, say: nobody was told of this session
                    session.begin_close("its first message was refused")
                    raise
            return session.id

        return self.card(await self.parts.order(run))

    async def amend(self, asked: Asked) -> Card:
        id_ = self.board.resolve(asked.session)
        wish: Amend = asked.body
        if wish == Amend():
            raise RefusedError(400, "bad_request", "the body names nothing to change: a title, an agent or a model")

        async def run(rt: Runtime) -> None:
            session = await rt.resume(id_)
            if wish.agent is not None or wish.model is not None:
                if session.turn is not None:
                    sentence = f"session {id_} is busy: another agent or model answers only after the turn's end"
                    raise RefusedError(409, "conflict", sentence)
                await session.use(wish.agent, wish.model)
            if wish.title is not None:
                await session.rename(wish.title)

        await self.parts.order(run)
        return self.card(id_)

    async def fork(self, asked: Asked) -> Card:
        id_ = self.board.resolve(asked.session)
        wish: Fork = asked.body

        async def run(rt: Runtime) -> str:
            return (await (await rt.resume(id_)).fork(wish.upto)).id

        return self.card(await self.parts.order(run))

    async def restart(self, asked: Asked) -> Restarted:
        id_ = self.board.resolve(asked.session)

        async def run(rt: Runtime) -> Receipt:
            receipt, _ = await rt.restart(id_)
            return receipt

        told = self._stopped(await self.parts.order(run))
        return Restarted(told.confirmed, told.sentence, told.receipt, self.card(id_))

    async def delete(self, asked: Asked) -> Stopped:
        id_ = self.board.resolve(asked.session)
        return self._stopped(await self.parts.order(lambda rt: rt.delete(id_)))

    # -- messages and approvals

    async def say(self, asked: Asked) -> Said:
        id_ = self.board.resolve(asked.session)
        wish: Say = asked.body

        async def run(rt: Runtime) -> Said:
            sent = (await rt.resume(id_)).send(wish.text, wish.images)
            queued = sent.turn is None
            return Said((await sent.accepted()).seq, queued)

        return await self.parts.order(run)

    async def release(self, asked: Asked) -> Picked:
        return await self._pick(asked, Session.release)

    async def discard(self, asked: Asked) -> Picked:
        return await self._pick(asked, Session.discard)

    async def _pick(self, asked: Asked, act: Callable[[Session, list[int] | None], list[int]]) -> Picked:
        id_ = self.board.resolve(asked.session)
        wish: Pick = asked.body

        async def run(rt: Runtime) -> Picked:
            picked = act(await rt.resume(id_), wish.messages)
            await rt.host.journal.flushed()
            return Picked(picked)

        return await self.parts.order(run)

    async def answer(self, asked: Asked) -> Answer:
        id_, number = self.board.resolve(asked.session), asked.number
        wish: Answer = asked.body

        async def run(rt: Runtime) -> Answer:
            question, live = rt.host.journal.requests.get(number), rt.host.live.get(id_)
            if live is None or not isinstance(question, ApprovalAsked) or question.session != id_:
                sentence = f"there is no open approval {number} in session {id_}: it was answered or withdrawn"
                raise RefusedError(404, "no_approval", sentence)
            if wish.digest and wish.digest != question.digest:
                raise RefusedError(409, "conflict", f"approval {number} asks for something else: look at it again")
            event: Event = live.approve(number, wish.allow, wish.reason, wish.extent)
            keeping = live.keeping.get(number)
            await rt.host.journal.committed(event)
            kept = keeping is None or await keeping.wait()
            return msgspec.structs.replace(wish, digest=question.digest, extent=wish.extent if kept else "once")

        return await self.parts.order(run)

    async def revoke(self, asked: Asked) -> Granted:
        async def run(rt: Runtime) -> Granted:
            if not any(asked.digest and one.digest.startswith(asked.digest) for one in await rt.granted()):
                raise RefusedError(
                    404, "no_grant", "nothing of this digest is always allowed: GET /api/v1/grants lists it"
                )
            return granted(await rt.revoke(asked.digest))

        return self.bridge.redact(await self.parts.order(run))

    # -- stops and admission

    async def stop(self, asked: Asked) -> Stopped:
        id_ = self.board.resolve(asked.session)
        wish: Halt = asked.body
        return await self._stop(id_, wish.reach, wish)

    async def stop_all(self, asked: Asked) -> Stopped:
        wish: HaltAll = asked.body
        return await self._stop(None, "all", wish)

    async def _stop(self, id_: str | None, reach: Reach, wish: Halt | HaltAll) -> Stopped:
        receipt = await self.bridge.stop(id_, reach, wish.reason, wish.grace, wish.force)
        await self.parts.seen(self.bridge.last, SOON)
        return self._stopped(receipt)

    def _stopped(self, receipt: Receipt) -> Stopped:
        """It did not come by the log: what a command was called with may be a secret."""
        told = Stopped(receipt.confirmed, receipt.sentence(), msgspec.json.decode(receipt.to_json()))
        return self.bridge.redact(told)

    async def close_admission(self, asked: Asked) -> Admission:
        wish: Gate = asked.body

        async def run(rt: Runtime) -> None:
            rt.close_admission(wish.reason)
            await rt.host.journal.flushed()

        await self.parts.order(run)
        return self.board.admission()

    async def reopen_admission(self, asked: Asked) -> Admission:
        async def run(rt: Runtime) -> None:
            rt.reopen()
            await rt.host.journal.flushed()

        await self.parts.order(run)
        return self.board.admission()

    # -- the server

    async def configure(self, asked: Asked) -> Config:
        wish: Change = asked.body

        async def run(rt: Runtime) -> None:
            rt.configure(**wish.settings)
            await rt.host.journal.flushed()

        await self.parts.order(run)
        return await self.config(asked)

    async def launch(self, asked: Asked) -> Launch:
        keys, url = self.parts.keys, self.parts.info.url
        if keys is None or not url:
            raise RefusedError(409, "conflict", "this server has no address for a browser: start it with a port")
        return Launch(f"{url}/launch?code={keys.new_code()}")

    async def down(self, asked: Asked) -> Down:
        wish: Down = asked.body
        self.parts.down(wish.force)
        return wish
