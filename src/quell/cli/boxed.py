"""Run one command in a box while signals are held back: the first asks it to end, the second forces, none is lost.

Nothing of the command is left when this returns, whatever happened (H22).
"""

from __future__ import annotations

import os
import select
import threading

from ..errors import QuellError
from ..supervise import NULL, Ladder
from ..supervise.keeper.light import signal
from ..supervise.keeper.linux import SignalFd
from ..supervise.sync import SyncSupervisor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..supervise import Receipt

SIGNALS: dict[int, str] = {
    signal.SIGINT: "SIGINT",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGHUP",
    signal.SIGQUIT: "SIGQUIT",
}
LADDER = Ladder(ask=1.0, term=2.0)


def hold_only_ours(mask: list[int]) -> None:
    """Of all signals that were held back at the start, only those that `Boxed` hears."""
    signal.pthread_sigmask(signal.SIG_SETMASK, {*mask, *SIGNALS})


class Boxed:
    """The command runs in a thread's hands; the main thread hears signals."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], output: int) -> None:
        self.code: int | None = None
        """How it ended; None when it was stopped before it was seen to."""
        self.error: QuellError | None = None
        self.receipt: Receipt | None = None
        self._argv = list(argv)
        self._env = dict(env)
        self._output = output
        self._heard = 0
        self._supervisor: SyncSupervisor | None = None
        self._ended, self._end = os.pipe2(os.O_CLOEXEC)

    def run(self) -> int:
        """Until all of it is over. The number of the signal that broke it off, or 0."""
        wanted = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]  # nohup, a script's `&`
        signals = SignalFd(wanted)
        poller = select.poll()
        poller.register(signals, select.POLLIN)
        poller.register(self._ended, select.POLLIN)
        worker = _start(self._work)
        try:
            while self._ended not in {fd for fd, _ in poller.poll()}:
                for one in signals.read():
                    self._stop(one.number)
            worker.join()
            for one in signals.read():  # it came when all was over, and before we say so
                self._heard = self._heard or one.number
        finally:
            signals.close()
            os.close(self._ended)
            os.close(self._end)
        return self._heard

    def _work(self) -> None:
        try:
            supervisor = SyncSupervisor(ladder=LADDER)
            with supervisor:
                self._supervisor = supervisor
                if not self._heard:
                    process = supervisor.spawn(
                        self._argv, env=self._env, stdin=NULL, stdout=self._output, stderr=self._output
                    )
                    self.code = process.wait()
            self.receipt = supervisor.receipt
        except QuellError as error:
            self.error = error
        finally:
            os.write(self._end, b".")

    def _stop(self, number: int) -> None:
        """`_heard` before `_supervisor`: the worker sets and asks in the other order, so one of the two stops it."""
        again, self._heard = bool(self._heard), self._heard or number
        supervisor = self._supervisor
        if supervisor is not None:
            _start(lambda: _ask(supervisor, SIGNALS[number], again))


def _ask(supervisor: SyncSupervisor, reason: str, force: bool) -> None:
    try:
        supervisor.stop(reason=reason, force=force)
    except (QuellError, RuntimeError):
        return  # it is over already


def _start(call: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=call, name="quell plugin", daemon=True)
    thread.start()
    return thread
