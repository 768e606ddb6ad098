"""One stop of a session, from the moment it is recorded to its receipt. Nobody can cancel it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..events import StopRequested
from ..supervise import Receipt, Scope
from ..supervise.errand import Fact
from ..supervise.receipt import PARTS, of_nobody
from .ends import receipt_of
from .hosting import leave

if TYPE_CHECKING:
    from .session import Session


class Halt:
    """`done` tells the receipt, once it is recorded."""

    def __init__(
        self,
        session: Session,
        asked: StopRequested,
        scope: Scope | None,
        below: Sequence[Fact[Receipt]],
        grace: float | None,
    ) -> None:
        self._session = session
        self._asked = asked
        self._scope = scope
        self._below = below
        self._grace = grace
        self._turn = session.turn
        session.halts.add(self)
        self.done: Fact[Receipt] = session.host.see_to(self._run)

    async def _run(self) -> Receipt:
        session, asked = self._session, self._asked
        receipt = of_nobody(asked.reason)
        if self._scope is not None:
            receipt = await self._scope.begin_stop(asked.reason, self._grace, asked.force).wait()
        for child in self._below:
            await child.wait()
        if self._turn is not None:
            await self._turn.over.wait()
        if asked.reach != "turn":
            leave(session, asked.reason)
        await session.host.journal.seen_to(session.emit(receipt_of(asked, receipt)))
        session.halts.discard(self)
        session.go_on()
        return receipt


def total(reason: str, receipts: Sequence[Receipt]) -> Receipt:
    """The sum of many: confirmed if all are; each phase as long as the longest."""
    receipts = list({id(one): one for one in receipts}.values())  # one stop around the loop may have ended several
    seen: dict[str, Any] = {
        name: [vars(one) for receipt in receipts for one in getattr(receipt, name)] for name in ("processes", *PARTS)
    }
    phases: dict[str, float] = {}
    for receipt in receipts:
        for name, seconds in receipt.phases.items():
            phases[name] = max(seconds, phases.get(name, 0.0))
    rungs = {one.rung for one in receipts if one.rung != "none"}
    nobody = of_nobody(reason)
    return Receipt(
        reason=reason,
        confirmed=all(one.confirmed for one in receipts),
        rung=rungs.pop() if len(rungs) == 1 else "none" if not rungs else "mixed",
        command=[],
        exit=None,
        survivors=[pid for receipt in receipts for pid in receipt.survivors],
        signalled=sum(receipt.signalled for receipt in receipts),
        phases=phases or nobody.phases,
        started=min((one.started for one in receipts), default=nobody.started),
        **seen,
    )
