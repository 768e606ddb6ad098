"""Work of ours on the event loop that user code cannot reach: it is no task, so nobody can list or cancel it (H02).

A `Fact` is what its askers wait for. Cancelling one of them, once or ten times, changes nothing for the work or
for the others.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Fact(Generic[T]):
    """Something that becomes known once: a value, or why there is none."""

    __slots__ = ("_error", "_loop", "_then", "_value", "_waiters", "known")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.known = False
        self._loop = loop
        self._value: T | None = None
        self._error: BaseException | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._then: list[Callable[[], object]] = []

    def tell(self, value: T) -> None:
        """The first word counts."""
        if not self.known:
            self._value = value
            self._settle()

    def fail(self, error: BaseException) -> None:
        if not self.known:
            self._error = error
            self._settle()

    def _settle(self) -> None:
        self.known = True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        for call in self._then:
            call()
        self._then.clear()

    def then(self, call: Callable[[], object]) -> None:
        """Call this when it is known: now, or at that moment."""
        if self.known:
            call()
        else:
            self._then.append(call)

    def repeat(self, other: Fact[T]) -> None:
        """Tell what the other tells, when it does."""

        def told() -> None:
            try:
                self.tell(other.get())
            except Exception as error:  # noqa: BLE001  a boundary: told to whoever waits
                self.fail(error)

        other.then(told)

    def forget(self, call: Callable[[], object]) -> None:
        """Do not call this any more."""
        if call in self._then:
            self._then.remove(call)

    def get(self) -> T:
        """What is known. Each asker gets an exception of its own, so that no traceback grows on a shared one."""
        assert self.known
        if self._error is not None:
            raise self._error.with_traceback(None)
        return self._value  # type: ignore[return-value]  # known, and no error: it was told

    async def wait(self) -> T:
        """Until it is known. Cancelling the asker ends only its own wait."""
        if not self.known:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return self.get()

    async def insist(self) -> T:
        """Until it is known, however often the asker is cancelled; the cancel reaches it then."""
        cancelled: asyncio.CancelledError | None = None
        while not self.known:
            try:
                await self.wait()
            except asyncio.CancelledError as error:
                cancelled = error
            except BaseException as error:
                if cancelled is None or isinstance(error, GeneratorExit):
                    raise
        if cancelled is not None:
            raise cancelled
        return self.get()


class Errand(Generic[T]):
    """Runs a coroutine of ours, at once up to its first wait. `done` tells its result.

    It has no current task, so what it awaits must not ask for one: facts, futures and `asyncio.wait` do not.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, T]) -> None:
        self.done: Fact[T] = Fact(loop)
        self._loop = loop
        self._coroutine = coroutine
        self._context = contextvars.Context()  # nobody's: what it makes belongs to whom it says
        self._context.run(self._step)

    def _step(self, awaited: asyncio.Future[Any] | None = None) -> None:
        try:
            wanted = self._coroutine.send(None)
        except StopIteration as end:
            self.done.tell(end.value)
        except BaseException as error:
            self.done.fail(error)
            if not isinstance(error, Exception):
                raise
        else:
            if wanted is None:
                self._loop.call_soon(self._step, context=self._context)
            else:
                wanted._asyncio_future_blocking = False  # the handshake of every asyncio future with whoever drives
                wanted.add_done_callback(self._step, context=self._context)


def _raise(error: BaseException) -> None:
    raise error


def see_to(loop: asyncio.AbstractEventLoop, make: Callable[[], Coroutine[Any, Any, T]]) -> Fact[T]:
    """Run an errand that can be begun again, and do so as often as an interrupt (a second Ctrl+C) breaks it off."""
    done: Fact[T] = Fact(loop)

    def attempt() -> None:
        try:
            errand = Errand(loop, make())
        except (KeyboardInterrupt, SystemExit) as error:  # in its very first step, which is somebody else's too
            loop.call_soon(attempt)
            loop.call_soon(_raise, error)
            return
        errand.done.then(lambda: settle(errand.done))

    def settle(ended: Fact[T]) -> None:
        try:
            done.tell(ended.get())
        except Exception as error:  # noqa: BLE001  a boundary: told to whoever waits
            done.fail(error)
        except BaseException:
            attempt()
            raise

    attempt()
    return done
