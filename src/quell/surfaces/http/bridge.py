"""What the front's loop asks of the kernel's. An order that is not taken up in time is withdrawn and never runs later.

A stop is never withdrawn, and does not need the kernel's loop: while that is blocked, the supervisor's own thread ends
the trees and says what it saw (H25). Letting go of an order that was taken up breaks nothing off (H20).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ...errors import NoSupervisorError, QuellError, ScopeStoppedError, UsageError
from ...kernel.halting import total
from ...supervise.contain import order as order_of
from ...supervise.control import ask_stop
from ...supervise.errand import Errand, Fact
from ...supervise.receipt import Receipt, of_nobody
from ...supervise.stopping import LOOP_LIMIT
from .crossing import Order, post
from .faults import BusyError

if TYPE_CHECKING:
    from ...events import Reach
    from ...kernel.runtime import Runtime
    from ...supervise import Scope

__all__ = ["LIMIT", "Bridge", "post"]

T = TypeVar("T")
LIMIT = 10.0
"""Seconds for the kernel's loop to take an order up."""
MARGIN = 30.0
"""Seconds beyond the ladder for the supervisor's thread to answer."""
CROWD = 100
"""Stops that ask the supervisor's thread at the same time."""


class Bridge:
    """Made in the kernel's loop; asked in the front's. `scope` is where what is asked for runs."""

    def __init__(self, runtime: Runtime, scope: Scope) -> None:
        self.runtime = runtime
        self.scope = scope
        self.agents = tuple(runtime.host.agents.values())
        self.rung = order_of(runtime._contain)[0]
        self._kernel = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._orders: set[Order[Any]] = set()
        self._closed = ""
        self._crowd = asyncio.Semaphore(CROWD)

    async def ask(self, make: Callable[[Runtime], Awaitable[T]], limit: float = LIMIT) -> T:
        """The result, or what was raised. BusyError: it was not taken up within the limit, and never will be."""
        order: Order[T] = Order(asyncio.get_running_loop())
        self._send(order, lambda: self._run(order, make))
        clock = asyncio.get_running_loop().call_later(limit, self._withdraw, order, limit)
        try:
            return await order.answer
        finally:
            clock.cancel()
            order.claim()
            self._forget(order)

    async def stop(
        self, session: str | None, reach: Reach, reason: str, grace: float | None = None, force: bool = False
    ) -> Receipt:
        """Of one session, or of all: the first receipt that is known. It is recorded when the kernel's loop turns."""
        front = asyncio.get_running_loop()
        order: Order[Receipt] = Order(front)
        outside: asyncio.Future[Receipt | None] = front.create_future()
        scope, within = self._scope_of(session, reach), self._tops() if session is None else []
        self._send(order, lambda: self._begin_stop(order, session, reach, reason, grace, force))
        try:
            if not await self._settled(order):
                scope = self._scope_of(session, reach) or scope
                receipt = await self._from_outside(order, outside, scope, reason, grace, force)
                if receipt is not None:
                    ended = [one.receipt for one in within if one.receipt is not None]  # before the thread was asked
                    return total(reason, [receipt, *ended]) if ended else receipt
                done, _ = await asyncio.wait([order.answer], timeout=LIMIT)
                if not done:
                    raise BusyError("the runtime is busy: the stop is carried out, and recorded, as soon as it goes on")
            return await order.answer
        finally:
            order.answer.cancel()
            outside.cancel()
            self._forget(order)

    @property
    def ending(self) -> bool:
        """Whether the runtime, or this server, is on its way out. A single look, from any thread."""
        host = self.runtime._host
        return bool(self._closed) or self.runtime._ended is not None or host is None or host.closing

    @property
    def last(self) -> int:
        """The number of the last event. A single look, from any thread."""
        journal = self.runtime._journal
        return journal.last if journal is not None else 0

    def redact(self, thing: T) -> T:
        """Without known secrets: for what is said past the log. From any thread."""
        return self.runtime.redact(thing)

    async def turns(self, limit: float = LOOP_LIMIT) -> bool:
        """Whether the kernel's loop turns: a call into it comes back in time."""
        beat = self._beat()
        await asyncio.wait([beat], timeout=limit)
        return beat.done()

    def close(self, reason: str = "the server stops") -> None:
        """From any thread: whoever waits is told so, and whoever asks from now on. What was taken up goes on."""
        with self._lock:
            self._closed = reason
            orders = list(self._orders)
        for order in orders:
            order.claim()
            order.fail(ScopeStoppedError(f"{reason}: ask again when it is back"))

    # -- in the front's loop

    def _send(self, order: Order[Any], run: Callable[[], None]) -> None:
        with self._lock:
            if self._closed:
                raise ScopeStoppedError(f"{self._closed}: ask again when it is back")
            self._orders.add(order)

        def taken() -> None:
            if order.claim():
                run()

        if not post(self._kernel, taken):
            self._forget(order)
            raise ScopeStoppedError("the runtime has ended: start the server again")

    def _withdraw(self, order: Order[Any], limit: float) -> None:
        if order.claim() and not order.answer.done():
            order.answer.set_exception(
                BusyError(f"the runtime did not take this up within {limit:g} s, and will not any more: try again")
            )

    def _forget(self, order: Order[Any]) -> None:
        with self._lock:
            self._orders.discard(order)

    def _beat(self) -> asyncio.Future[None]:
        front = asyncio.get_running_loop()
        beat: asyncio.Future[None] = front.create_future()

        def back() -> None:
            if not beat.done():
                beat.set_result(None)

        post(self._kernel, partial(post, front, back))
        return beat

    async def _settled(self, order: Order[Any]) -> bool:
        """Until it is answered (True), or the kernel's loop does not turn any more (False)."""
        while True:
            beat = self._beat()
            done, _ = await asyncio.wait([order.answer], timeout=LOOP_LIMIT)
            if done or not beat.done():
                return bool(done)

    def _scope_of(self, session: str | None, reach: Reach) -> Scope | None:
        """Where the work is that a stop ends, if there is any now. Single looks, which need no loop."""
        host = self.runtime._host
        live = host.live.get(session) if host is not None and session is not None else None
        scope: Scope | None = None
        if host is not None and session is None:
            scope = host._ground
        elif live is not None and reach == "turn":
            scope = live.turn.scope if live.turn is not None else None
        elif live is not None:
            scope = live._scope
        return scope if scope is not None and not scope.over else None

    def _tops(self) -> list[Scope]:
        """Of every session that has one now. A copy, which is made in one step."""
        host = self.runtime._host
        found = [one._scope for one in list(host.live.values()) if one.parent is None] if host is not None else []
        return [one for one in found if one is not None and not one.over]

    async def _from_outside(
        self,
        order: Order[Receipt],
        answer: asyncio.Future[Receipt | None],
        scope: Scope | None,
        reason: str,
        grace: float | None,
        force: bool,
    ) -> Receipt | None:
        """What the supervisor's thread saw. None: the order is quicker, or there is nobody to stop."""
        if scope is None:
            return None
        async with self._crowd:
            if not scope.over and not order.answer.done():
                self._ask_outside(answer, scope.path, reason, grace, force)
                both: list[asyncio.Future[Any]] = [order.answer, answer]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if order.answer.done():
            return None
        seen = answer.result() if answer.done() else None
        return seen or scope.receipt  # it was over, and the loop was blocked before it could say so

    def _ask_outside(
        self, answer: asyncio.Future[Receipt | None], path: str, reason: str, grace: float | None, force: bool
    ) -> None:
        """In a thread of its own: many stops at once must not wait for each other."""
        front, folder = asyncio.get_running_loop(), self.runtime.state_dir
        settings = self.runtime.settings
        patience = settings.ask + (settings.term if grace is None else grace) + MARGIN

        def tell(receipt: Receipt | None) -> None:
            if not answer.done():
                answer.set_result(receipt)

        def run() -> None:
            receipt = None
            try:
                receipt = ask_stop(folder, scope=path, reason=reason, grace=grace, force=force, timeout=patience)
            except (UsageError, NoSupervisorError):
                pass  # it has ended meanwhile: the order in the kernel's loop says how
            finally:
                post(front, partial(tell, receipt))

        threading.Thread(target=run, name=f"stop of {path}", daemon=True).start()

    # -- in the kernel's loop

    def _run(self, order: Order[T], make: Callable[[Runtime], Awaitable[T]]) -> None:
        try:
            self.scope.task(self._carry_out(order, make), name="an order of the front")
        except QuellError as error:
            order.fail(error)

    async def _carry_out(self, order: Order[T], make: Callable[[Runtime], Awaitable[T]]) -> None:
        try:
            order.tell(await make(self.runtime))
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked
            order.fail(error)
        except BaseException:
            order.fail(ScopeStoppedError("the runtime stops: ask again when it is back"))
            raise

    def _begin_stop(
        self, order: Order[Receipt], session: str | None, reach: Reach, reason: str, grace: float | None, force: bool
    ) -> None:
        """No task: the end of the scope must not take the answer along."""
        try:
            done = self._stopping(session, reach, reason, grace, force)
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked
            order.fail(error)
            return

        def told() -> None:
            try:
                order.tell(done.get())
            except Exception as error:  # noqa: BLE001  a boundary: told to whoever asked
                order.fail(error)
            except BaseException:  # noqa: BLE001  it was raised where it came from
                order.fail(ScopeStoppedError("the stop was interrupted: ask again"))

        done.then(told)

    def _stopping(
        self, session: str | None, reach: Reach, reason: str, grace: float | None, force: bool
    ) -> Fact[Receipt]:
        if session is None:
            return Errand(self._kernel, self.runtime.stop_all(reason=reason, grace=grace, force=force)).done
        live = self.runtime.host.live.get(session)
        if live is not None:
            return live.begin_stop(reach, reason, grace, force)
        nothing: Fact[Receipt] = Fact(self._kernel)  # a session that is only in the log has nobody
        nothing.tell(of_nobody(reason))
        return nothing
