"""The front: HTTP and WebSocket on a thread and an event loop of their own, so that they answer whatever blocks the
kernel's (H25). It is begun and ended from the kernel's loop, at any half-started point, and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import QuellError, ScopeStoppedError
from ...events import decode
from ...kernel.journal import PAGE
from ...supervise.errand import Fact
from . import sockets
from .app import Parts, ServerInfo, build
from .board import Board
from .bridge import Bridge
from .feed import Feed, pump
from .guard import Guard
from .protocol import Door

if TYPE_CHECKING:
    from ...kernel.runtime import Runtime
    from ...ports import Row
    from .keys import Keys

BYE = 1.0
"""Seconds for the last answers to be read."""
LAST = 0.5
"""Seconds for requests whose connection was cut off to notice."""
JOIN = 5.0
"""Seconds for the thread to be gone when all of that is done."""
WEB = Path(__file__).parents[1] / "web"
_LOOK = 0.01
_log = logging.getLogger("quell")


class Front:
    """Made and called in the kernel's loop. It owns the sockets it is given; `down` is called in its own thread."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        tcp: socket.socket | None,
        unix: socket.socket | None,
        keys: Keys,
        hosts: frozenset[str],
        url: str,
        down: Callable[[bool], object],
        started: float = 0.0,
        config_file: str = "",
        usual: Callable[[str], str] | None = None,
    ) -> None:
        from ... import __version__

        self._runtime = runtime
        self._sockets = [one for one in (tcp, unix) if one is not None]
        self._keys = keys
        self._hosts = hosts
        self._info = ServerInfo(__version__, runtime.state_dir, url, started or time.time(), config_file)
        if usual is not None:
            self._info = replace(self._info, usual=usual)
        self._down = down
        self._kernel = asyncio.get_running_loop()
        self._ready: Fact[Feed] = Fact(self._kernel)
        self._ended: Fact[None] = Fact(self._kernel)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._bell: asyncio.Event | None = None
        self._finishing = ""
        self._ending = False
        self._bridge: Bridge | None = None

    # -- in the kernel's loop

    async def start(self) -> None:
        """Listening, with all that is in the log on the board. What it raises is why it cannot."""
        scope = self._runtime.scope("front")
        board = await self._read_log()
        if self._finishing:
            raise ScopeStoppedError("the server was stopped while it started")
        self._bridge = Bridge(self._runtime, scope)
        self._thread = threading.Thread(target=self._run, args=(board, self._bridge), name="quell front", daemon=True)
        after = board.seq
        self._thread.start()
        feed = await self._ready.wait()
        assert self._loop is not None
        pump(self._runtime, scope, self._loop, feed, after)

    async def _read_log(self) -> Board:
        """What is there now; whatever comes after it comes by the feed (H36)."""
        journal, board = self._runtime.host.journal, Board()
        upto, after = journal.last, 0
        while True:
            rows = await journal.rows(after, upto, None, Board.KINDS, PAGE)
            await self._kernel.run_in_executor(None, _fold, board, rows)
            if len(rows) < PAGE:
                board.seq = upto
                return board
            after = rows[-1].seq

    def finish(self, reason: str) -> None:
        """Nobody is let in any more, and streams say goodbye and end; requests that are under way go on."""
        self._finishing = self._finishing or reason
        try:
            sockets.remove(self._runtime.state_dir)  # while the directory is ours
        except OSError as error:  # the disk is read-only by now, say: who ends must end all the same
            _log.warning("%s could not be removed: %s", sockets.API, error.strerror)
        self._ring()

    async def stop(self) -> None:
        """Answer what was asked, and take everything down. Idempotent."""
        if not self._finishing:
            self.finish("the server stops")
        self._ending = True
        if self._bridge is not None:
            self._bridge.close()
        self._ring()
        if self._thread is not None:
            await self._ended.wait()
            self._thread.join(JOIN)
        for one in self._sockets:
            one.close()

    def _ring(self) -> None:
        loop, bell = self._loop, self._bell
        if loop is not None and bell is not None:
            try:
                loop.call_soon_threadsafe(bell.set)
            except RuntimeError:  # closed: the thread is on its way out
                return

    # -- in its own thread

    def _run(self, board: Board, bridge: Bridge) -> None:
        try:
            with asyncio.Runner() as runner:
                runner.run(self._serve(board, bridge))
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever starts it, or to the log
            if not self._finishing:
                _log.exception("the front has failed")
            self._tell(self._ready.fail, error if isinstance(error, QuellError) else _failed(error))
        finally:
            self._tell(self._ready.fail, ScopeStoppedError("the server was stopped while it started"))
            self._tell(self._ended.tell, None)

    def _tell(self, told: Callable[[Any], None], value: object) -> None:
        try:
            self._kernel.call_soon_threadsafe(told, value)
        except RuntimeError:  # the kernel's loop is gone: nobody waits
            return

    async def _serve(self, board: Board, bridge: Bridge) -> None:
        """Begun and ended as it is written here."""
        self._loop, self._bell = asyncio.get_running_loop(), asyncio.Event()
        feed = Feed(board)
        app = build(Parts(board, feed, bridge, self._keys, self._info, self._down, WEB))
        doors = [self._door(one, app) for one in self._sockets]
        try:
            for door in doors:
                await door.open()
            self._tell(self._ready.tell, feed)
            await self._until(lambda: bool(self._finishing))
        finally:
            for door in doors:
                door.shut()
        feed.end(self._finishing)
        _usher(doors)
        await self._until(lambda: self._ending)
        await self._answers_end(doors)

    def _door(self, sock: socket.socket, app: Any) -> Door:
        keys = None if sock.family == socket.AF_UNIX else self._keys
        return Door(sock, Guard(app, keys, self._hosts))

    async def _until(self, fact: Callable[[], bool]) -> None:
        assert self._bell is not None
        while not fact():
            await self._bell.wait()
            self._bell.clear()

    async def _answers_end(self, doors: Sequence[Door]) -> None:
        """Whoever asked before the end is answered; then everybody is cut off."""
        _usher(doors)
        await _over(doors, BYE)
        for one in [one for door in doors for one in door.connections()]:
            one.transport.abort()
        await _over(doors, LAST)


def _usher(doors: Sequence[Door]) -> None:
    for door in doors:
        door.usher()


async def _over(doors: Sequence[Door], limit: float) -> None:
    """Until every request has its answer, and every connection is closed, or a bound."""
    clock = asyncio.get_running_loop().time
    until = clock() + limit
    while clock() < until and any(door.tasks or door.connections() for door in doors):  # noqa: ASYNC110  uvicorn tells nobody
        await asyncio.sleep(_LOOK)


def _fold(board: Board, rows: Sequence[Row]) -> None:
    for row in rows:
        board.apply(decode(row.body))


def _failed(error: Exception) -> QuellError:
    return QuellError(f"the server could not be started: {type(error).__name__}: {error}")
