"""A scope's box, as the event loop sees it: made when it is first needed, gone with its scope."""

from __future__ import annotations

import asyncio

from ..errors import ContainmentError, ScopeStoppedError
from .box import START_LIMIT, Box
from .errand import Errand, Fact
from .hub import Hub
from .receipt import Receipt

REFILL_AFTER = 0.002  # seconds: the news of a short command's end is not kept waiting for it


class Place:
    """One box at a time. Where its keeper was killed, the next command gets a new box, which is another one (H06)."""

    def __init__(self, hub: Hub, loop: asyncio.AbstractEventLoop) -> None:
        self._hub = hub
        self._loop = loop
        self._box: Box | None = None  # where the next command goes
        self._boxes: list[Box] = []  # all that are not over: one whose keeper was killed may still be ending
        self._made: Fact[Box] | None = None
        self._refused = False
        self._refilling = False
        self.over: Fact[None] = Fact(loop)  # told once there will never be anybody in it again
        self.receipts: list[Receipt] = []  # of the stop, and of boxes that ended before with somebody left

    def need(self) -> Fact[Box]:
        """The box, made if there is none."""
        if self._made is None or (self._made.known and not self._usable()):
            self._box = None
            self._made = Errand(self._loop, self._make()).done
        return self._made

    def _usable(self) -> bool:
        return self._box is not None and not self._box.over() and not self._box.stopping()

    async def _make(self) -> Box:
        reasons = []
        for rung in self._hub.zygote.rungs():
            try:
                return await self._try(rung)
            except ContainmentError as error:
                reasons.append(str(error))
        raise ContainmentError("; ".join(reasons))

    async def _try(self, rung: str) -> Box:
        with self._hub.lock:
            box = self._hub.begin(rung)
            self._hub.add(box, lambda: self._ended(box))
            if not box.settled():
                box.hurry()
        if not box.settled():
            await self._settled(box)
        with self._hub.lock:
            if not self._refused:
                try:
                    box.confirm()
                except ContainmentError:
                    self._hub.drop(box)
                    box.abandon()
                    raise
                self._box = box
                self._boxes.append(box)
                return box
            self._hub.drop(box)
            box.abandon()
        raise ScopeStoppedError("the scope was stopped before its box was there")

    async def _settled(self, box: Box) -> None:
        """Until it is known whether the box is there, or for so long that it is not."""
        known: Fact[None] = Fact(self._loop)

        def look() -> None:
            if box.settled():
                known.tell(None)

        self._hub.watch(box, look)
        look()
        clock = self._loop.call_later(START_LIMIT, known.tell, None)
        await known.wait()
        clock.cancel()
        self._hub.watch(box, None)

    def refill_soon(self) -> None:
        """Have boxes made ahead, after whoever waits for this one has gone on."""
        if not self._refilling:
            self._refilling = True
            self._loop.call_later(REFILL_AFTER, self._refill)

    def _refill(self) -> None:
        self._refilling = False
        with self._hub.lock:
            if not self._refused:
                self._hub.zygote.refill()

    # -- ends

    def ask_stop(self, reason: str, grace: float) -> None:
        """From any thread. Nobody comes in any more; those who are there are ended."""
        with self._hub.lock:
            self._refused = True
            for box in [box for box in self._boxes if not box.over()]:
                box.ask_stop(reason, grace)
                self._hub.look(box)

    def end_soon(self) -> None:
        """In the loop, after `ask_stop`: tell `over` if there is nothing to wait for."""
        if self.settled:
            self.over.tell(None)

    @property
    def settled(self) -> bool:
        """From any thread, after `ask_stop`: whether nobody is in it any more, or that is as far as it goes."""
        return all(box.over() for box in self._boxes)

    def seen(self) -> list[Receipt]:
        """From any thread: every receipt that matters."""
        late = [box.receipt for box in list(self._boxes) if box.receipt is not None]
        return [*self.receipts, *(one for one in late if one not in self.receipts)]

    def _ended(self, box: Box) -> None:
        if box not in self._boxes:
            return
        self._boxes.remove(box)
        if box.receipt is not None and (self._refused or not box.receipt.confirmed):
            self.receipts.append(box.receipt)
        if self._refused:
            self.end_soon()
