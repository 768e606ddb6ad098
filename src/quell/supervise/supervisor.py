"""A supervisor: the root of all scopes, and what they need: a zygote, an owned event loop, and a thread for stops.

    async with Supervisor() as sup:
        scope = sup.scope("build")
        process = await scope.spawn(["make"])
        await process.wait()
        receipt = await scope.stop()

Start it in order, stop it in reverse, at any half-started point (H22).
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, TypeVar

from ..errors import ContainmentError, ScopeStoppedError
from .contain import order
from .control import Listener
from .errand import Errand, Fact, see_to
from .hub import Hub
from .ladder import Ladder
from .ownership import install, own_threads, uninstall
from .place import Place
from .receipt import Receipt, of_nobody
from .scope import Scope, probe
from .shared import Shared
from .stopping import Stop

if TYPE_CHECKING:
    Self = TypeVar("Self", bound="Supervisor")


class Supervisor(Scope):
    """`state_dir`: taken exclusively; without one, a fresh folder below the usual place. `contain`: the rung.

    `ladder` may be changed at any time, and acts on the next stop.
    """

    def __init__(
        self, *, state_dir: str | os.PathLike[str] | None = None, ladder: Ladder | None = None, contain: str = "auto"
    ) -> None:
        order(contain)  # a rung that is not there is said at once
        super().__init__(Shared(ladder or Ladder(), contain), "", None, False)
        self._named = None if state_dir is None else os.fspath(state_dir)
        self._listener: Listener | None = None
        self._started: Fact[None] | None = None
        self._closed: Fact[Receipt] | None = None

    @property
    def ladder(self) -> Ladder:
        return self._shared.ladder

    @ladder.setter
    def ladder(self, ladder: Ladder) -> None:
        self._shared.ladder = ladder

    @property
    def state_dir(self) -> str:
        """Where its control socket is, for `quell.ask_stop`."""
        if self._listener is None or self._listener.folder is None:
            raise ScopeStoppedError("the supervisor has not been started: enter it with `async with`")
        return self._listener.folder.path

    @property
    def closed(self) -> bool:
        """Whether everything of it is taken down."""
        return self._closed is not None and self._closed.known

    # -- starting

    async def __aenter__(self: Self) -> Self:
        if self._started is not None or self.over:
            raise ScopeStoppedError("a supervisor is started once: make a new one")
        self._started = Errand(asyncio.get_running_loop(), self._start()).done
        try:
            await self._started.wait()
        except BaseException as error:
            await self._end("not started", None, True).insist()
            if isinstance(error, OSError):
                why = error.strerror or str(error)
                raise ContainmentError(f"the supervisor could not be started: {why}") from None
            raise
        if self._closed is not None:
            await self._closed.insist()
            raise ScopeStoppedError("the supervisor was stopped while it started")
        self._take_block()
        return self

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        ready: Fact[Hub] = Fact(loop)

        def told(hub: Hub | Exception) -> None:
            if isinstance(hub, Hub):
                loop.call_soon_threadsafe(ready.tell, hub)
            else:
                loop.call_soon_threadsafe(ready.fail, hub)

        self._shared.loop_thread = threading.get_ident()
        self._listener = Listener(self._shared, self, self._named, told)
        self._listener.start()
        hub = await ready.wait()
        self._shared.start(loop, hub)
        hub.attach(loop)
        self._shared.wake = self._listener.wake
        self._shared.factory = install(loop)
        own_threads(loop)
        self.place = self.home = Place(hub, loop)
        probe(loop)
        self._shared.trusted = loop.get_task_factory()

    # -- stopping

    def begin_stop(self, reason: str, grace: float | None = None, force: bool = False) -> Fact[Receipt]:
        return self._end(reason, grace, force)

    def _end(self, reason: str, grace: float | None, force: bool) -> Fact[Receipt]:
        """Stop all scopes and take everything down, or join whoever does; `force` cuts it short."""
        if self._closed is None:
            self._closed = see_to(asyncio.get_running_loop(), lambda: self._stop_and_close(reason, grace, force))
        elif force and self.stopping is not None:
            self.stopping.force()
        return self._closed

    async def _stop_and_close(self, reason: str, grace: float | None, force: bool) -> Receipt:
        if self._started is not None:
            try:
                await self._started.wait()
            except BaseException:  # noqa: BLE001  told to whoever starts it: what is half started is taken down here
                force = True
        receipt = of_nobody(reason)
        if self._shared.running:
            stop = self.plan_stop(reason, grace, force)
            stop.start()
            receipt = await stop.result.wait()
        await self._close()
        self.ended(receipt)
        return receipt

    def take_up(self, stop: Stop) -> None:
        """In the loop: go on with a stop that came by the control socket."""
        if stop.scope is self:
            self._end(stop.reason, stop.grace, False)
        stop.start()

    async def _close(self) -> None:
        """In reverse: the loop's tasks are its own again, then the thread takes down hub, socket and lock."""
        loop, shared, listener = asyncio.get_running_loop(), self._shared, self._listener
        if shared.factory is not None:
            uninstall(loop, shared.factory)
            shared.factory = None
        if shared.running:
            shared.hub.detach()
        if listener is not None:
            closed: Fact[None] = Fact(loop)
            listener.end(lambda: loop.call_soon_threadsafe(closed.tell, None))
            if listener.ident is not None:
                await closed.wait()
                listener.join()
