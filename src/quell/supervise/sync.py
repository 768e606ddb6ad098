"""The supervisor for scripts without asyncio. Its event loop turns in a thread of its own; callers wait.

with quell.supervise() as s:
    print(s.run(["make", "-j8"]).returncode)
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import SpawnError
from .errand import Errand
from .ladder import Ladder
from .process import Member, Process
from .receipt import Receipt
from .scope import Scope
from .supervisor import Supervisor
from .tree import NULL, PIPE

if TYPE_CHECKING:
    from types import TracebackType

T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """A command that has ended. `returncode` is -n after signal n; output is empty unless it was captured."""

    argv: list[str]
    returncode: int
    stdout: bytes
    stderr: bytes


class SyncProcess:
    """A command that runs."""

    def __init__(self, owner: SyncSupervisor, process: Process) -> None:
        self.pid = process.pid
        self.argv = process.argv
        self._owner = owner
        self._process = process

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    def wait(self) -> int:
        return self._owner.do(self._process.wait())

    def communicate(self, data: bytes | None = None) -> tuple[bytes, bytes]:
        return self._owner.do(self._process.communicate(data))

    def signal(self, number: int) -> None:
        self._process.signal(number)

    def tree(self) -> list[Member]:
        return self._owner.do(self._process.tree())

    def stop(self, *, reason: str = "stop", grace: float | None = None, force: bool = False) -> Receipt:
        return self._owner.do(self._process.stop(reason=reason, grace=grace, force=force))


class SyncSupervisor:
    """Made by `quell.supervise()`. Any thread may call it; leaving the block ends everything."""

    def __init__(
        self, *, state_dir: str | os.PathLike[str] | None = None, ladder: Ladder | None = None, contain: str = "auto"
    ) -> None:
        self._supervisor = Supervisor(state_dir=state_dir, ladder=ladder, contain=contain)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def state_dir(self) -> str:
        return self._supervisor.state_dir

    @property
    def receipt(self) -> Receipt | None:
        """Of its end, once it is over."""
        return self._supervisor.receipt

    def __enter__(self) -> SyncSupervisor:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, args=(self._loop,), name="quell loop", daemon=True)
        self._thread.start()
        try:
            self.do(self._supervisor.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.do(self._supervisor.__aexit__(kind, error, trace))
        except KeyboardInterrupt:
            while not self._supervisor.closed:  # H61: the end is seen to, however often
                with contextlib.suppress(KeyboardInterrupt):
                    self.do(self._supervisor.stop(reason="interrupted", force=True))
            raise
        finally:
            self._end()

    def run(
        self,
        argv: Sequence[str],
        *,
        input: bytes | None = None,  # noqa: A002  the name that subprocess.run gave it
        capture: bool = False,
        timeout: float | None = None,
        check: bool = False,
        **options: Any,
    ) -> Finished:
        """Run a command to its end; `options` are those of `Scope.spawn`.

        `timeout` ends its tree and raises TimeoutError; `check` raises SpawnError unless it exits with 0. An interrupt
        (Ctrl+C) ends its tree too. What it put into the background lives on until the block ends.
        """
        if capture:
            options = {"stdout": PIPE, "stderr": PIPE, **options}
        options = {"stdin": PIPE if input is not None else NULL, **options}
        scope = self.do(self._scope("run"))
        try:
            finished = self.do(self._run(scope, argv, input, timeout, options))
        except BaseException:
            self.do(scope.stop(reason="interrupted", force=True))
            raise
        if not scope.processes:
            self.do(scope.stop())
        if check and finished.returncode:
            raise SpawnError(f"{finished.argv[0]} ended with {finished.returncode}", finished.returncode & 255)
        return finished

    async def _run(
        self, scope: Scope, argv: Sequence[str], data: bytes | None, limit: float | None, options: dict[str, Any]
    ) -> Finished:
        process = await scope.spawn(argv, **options)
        assert self._loop is not None
        clock, late = None, []
        if limit is not None:
            term = self._supervisor.ladder.term
            clock = self._loop.call_later(limit, lambda: late.append(process.begin_stop("timeout", term)))
        out, err = await process.communicate(data)
        if clock is not None:
            clock.cancel()
        if late:
            await late[0].wait()
            raise TimeoutError(f"{process.argv[0]} did not end within {limit:g} s; it was ended")
        return Finished(process.argv, process.returncode or 0, out, err)

    def spawn(self, argv: Sequence[str], **options: Any) -> SyncProcess:
        """Start a command and go on; `options` are those of `Scope.spawn`."""
        return SyncProcess(self, self.do(self._supervisor.spawn(argv, **options)))

    def stop(self, *, reason: str = "stop", grace: float | None = None, force: bool = False) -> Receipt:
        """End everything that was started here and say what was seen. Nothing can be started after it."""
        return self.do(self._supervisor.stop(reason=reason, grace=grace, force=force))

    # -- inside

    async def _scope(self, name: str) -> Scope:
        return self._supervisor.scope(name)

    def do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run this in the loop's thread, and wait for it in ours."""
        result: Future[T] = Future()

        def start() -> None:
            assert self._loop is not None
            errand = Errand(self._loop, coroutine)
            errand.done.then(lambda: _hand_over(errand.done.get, result))

        if self._loop is None or self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("this supervisor is not running: use it inside its `with` block")
        self._loop.call_soon_threadsafe(start)
        return result.result()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            asyncio.set_event_loop(None)
            loop.close()

    def _end(self) -> None:
        assert self._loop is not None and self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _hand_over(get: Callable[[], T], result: Future[T]) -> None:
    try:
        result.set_result(get())
    except BaseException as error:  # noqa: BLE001  a boundary: raised again where it was asked for
        result.set_exception(error)
