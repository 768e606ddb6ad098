"""`quell exec -- CMD…`: run a command contained, and leave nothing behind, whatever happens to CMD or to quell.

Synchronous and light. CMD stays in quell's own session and process group, so that terminals, pipelines and job
control work as without it; keyboard signals are CMD's alone, and quell mirrors CMD's stops.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import stat
import time

from ..errors import QuellError, SpawnError, UsageError
from ..supervise.box import Box
from ..supervise.contain import order
from ..supervise.keeper.light import signal
from ..supervise.keeper.link import milliseconds
from ..supervise.keeper.linux import SI_KERNEL, Signal, SignalFd, rename
from ..supervise.keeper.proc import Proc
from ..supervise.keeper.streams import fill_gaps, inherited, let_go
from ..supervise.ledger import Ledger
from ..supervise.receipt import Receipt
from ..supervise.tree import Tree
from ..supervise.zygote import Zygote
from .options import HELP, Options, parse
from .terminal import Terminal
from .words import plain, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

TIMED_OUT, OURS, UNCONFIRMED = 124, 125, 1
_LOST, _FAILED = ("keeper died", "zygote died"), "keeper failed"  # reasons of receipts that are not the command's
RECONCILE_LIMIT = 0.2  # seconds that a start waits for what a crash left to be gone
SAME = 0.05  # seconds: two stop signals closer than this are one that `timeout` sent to quell and to its group

_PIECE = select.PIPE_BUF  # bytes that a pipe which takes any takes whole
_STOPS: dict[int, str] = {signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
_NOT_OURS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ, *_FAULTS}


def run(words: Sequence[str], mask: list[int]) -> int:
    """`mask` is the signal mask that we were started with; by now all are held back."""
    gaps = fill_gaps()
    try:
        options = parse(words)
        if options.help:
            return show(HELP)
        order(options.contain)
        receipt_fd = _open_receipt(options.receipt)
        return Exec(options, gaps, mask, receipt_fd).run()
    except SpawnError as error:
        return _say(str(error), error.code)
    except QuellError as error:
        return _say(str(error), OURS)
    except OSError as error:  # the machine refuses us a process or a descriptor; nothing of the command is left
        return _say(f"the command could not be run: {error.strerror or error}", OURS)


class Exec:
    def __init__(self, options: Options, gaps: list[int], mask: list[int], receipt_fd: int | None) -> None:
        self._options = options
        self._mask = mask
        self._gaps = gaps
        self._receipt_fd = receipt_fd
        self._ignored = _ignored_signals()
        wanted = signal.valid_signals() - _NOT_OURS - self._ignored
        self._signals = SignalFd(wanted)
        signal.pthread_sigmask(signal.SIG_SETMASK, wanted | set(mask))
        self._terminal = Terminal()
        self._proc = Proc()
        self._deadline: float | None = None
        self._timed_out = False
        self._keyboard = 0
        self._early: list[int] = []
        self._last: dict[int, float] = {}
        self._interrupted = False
        self._terminated = False
        self._box: Box
        self._tree: Tree

    def run(self) -> int:
        env = _environment()
        passed = inherited()
        rename("quell exec")
        zygote = Zygote.fork(env, _ledger())
        try:
            self._box = zygote.box(self._options.contain, let_go=passed)
            self._tree = self._box.ask_spawn(self._spec(passed), [])
            let_go(passed, standard=(0, 1))
            receipt = self._attend()
        except BaseException:
            zygote.close()
            raise
        zygote.close(wait=receipt.confirmed)
        self._terminal.take_back()
        return self._conclude(receipt)

    def _spec(self, passed: list[int]) -> dict[str, object]:
        return {
            "argv": self._options.command,
            "ignored": [int(number) for number in self._ignored],
            "mask": self._mask,
            "closed": self._gaps,
            "let_go": passed,
            "last_grace": self._options.grace,
        }

    # -- while CMD runs

    def _attend(self) -> Receipt:
        if self._options.timeout is not None:
            self._deadline = time.monotonic() + self._options.timeout
        while self._box.receipt is None:
            ready = self._wait()
            for one in self._signals.read():
                self._on_signal(one)
            self._box.handle(ready)
            if self._tree.failure is not None:
                raise self._tree.failure
            if self._tree.started:
                self._pass_on_early()
            if self._deadline is not None and time.monotonic() >= self._deadline and not self._tree.ended:
                self._deadline, self._timed_out = None, True
                self._box.ask_stop("timeout", self._options.grace)
            if self._tree.stopped_by and not self._box.stopping():
                self._stop_like(self._tree.stopped_by)
        return self._box.receipt

    def _wait(self) -> set[int]:
        poller = select.poll()
        poller.register(self._signals, select.POLLIN)
        self._box.watch(poller)
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        limits = [limit for limit in (left, self._box.wait_left()) if limit is not None]
        return {fd for fd, _ in poller.poll(milliseconds(min(limits, default=None)))}

    def _on_signal(self, one: Signal) -> None:
        number, now = one.number, time.monotonic()
        if number == signal.SIGCHLD:
            return
        if number in _STOPS:
            again = now - self._last.get(number, 0.0) < SAME
            self._last[number] = now
            if not again:
                self._on_stop_signal(number)
        elif one.code == SI_KERNEL:
            self._on_keyboard(number)
        elif number == signal.SIGCONT and one.sender == self._box.zygote_pid:
            return  # woken because CMD went on
        elif number == signal.SIGINT and (self._interrupted or self._box.stopping()):
            self._box.ask_stop("SIGINT", 0)
        else:
            self._interrupted = self._interrupted or number == signal.SIGINT
            everybody = self._to_everybody(number)
            if not everybody or (number == signal.SIGCONT and self._leads_a_group()):
                self._tree.signal(number)

    def _to_everybody(self, number: int) -> bool:
        """Whether it was sent to our group: then CMD has it too. A key press may have wiped a SIGCONT out since."""
        heard = self._box.zygote_heard()
        return number in heard or (number == signal.SIGCONT and signal.SIGTSTP in heard)

    def _leads_a_group(self) -> bool:
        try:
            return os.getpgid(self._tree.pid) != os.getpgrp()
        except ProcessLookupError:
            return False

    def _on_keyboard(self, number: int) -> None:
        """The terminal sent it to CMD as well, unless CMD was not born yet or is gone."""
        self._keyboard = number
        if not self._tree.started:
            self._early.append(number)
        elif self._tree.ended and number in (signal.SIGINT, signal.SIGQUIT):
            self._box.ask_stop("SIGINT", 0)

    def _pass_on_early(self) -> None:
        for number in self._early:
            self._tree.signal(number)
        self._early.clear()

    def _on_stop_signal(self, number: int) -> None:
        second = number == signal.SIGTERM and self._terminated
        self._terminated = self._terminated or number == signal.SIGTERM
        grace = 0 if second else self._options.grace
        self._box.ask_stop(_STOPS[number], grace, ask=number, spare_group=self._to_everybody(number))

    def _stop_like(self, number: int) -> None:
        """CMD has been stopped: stop in the same way, so that the shell sees its job stopped; go on together."""
        self._tree.stopped_by = 0
        stat = self._proc.stat(self._tree.pid)
        if stat is None or stat.state not in "Tt":
            return  # old news: it goes on already
        if not _STOPS.keys().isdisjoint(signal.sigpending()):
            return  # somebody wants it ended: that is answered now, not slept over
        if number != signal.SIGSTOP:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # while it is blocked, so that the terminal's and this one are one
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
        signal.pthread_sigmask(signal.SIG_BLOCK, [number])
        self._terminal.lend(self._tree.pid)

    # -- when all is over

    def _conclude(self, receipt: Receipt) -> int:
        code = self._code(receipt)
        if not receipt.confirmed:
            _say(receipt.sentence(), code)
        elif receipt.reason in _LOST:
            _say(f"the {receipt.reason.split()[0]} was killed, so the command was ended; nothing of it is left", code)
        elif receipt.reason.startswith(_FAILED):
            _say(f"the {receipt.reason}, so the command was ended; nothing of it is left", code)
        elif receipt.reason == "exit" and receipt.signalled and not self._options.quiet:
            name = os.path.basename(self._options.command[0])
            count = f"{receipt.signalled} process{'' if receipt.signalled == 1 else 'es'}"
            _say(f"ended {count} that {name} left behind", code)
        if self._receipt_fd is not None:
            code = _write_receipt(self._receipt_fd, self._options.receipt or "", receipt, code)
        number = (receipt.exit or {}).get("signal", 0)
        if number and code == 128 + number and (self._terminal.there or number == self._keyboard):
            _die_of(number)
        return code

    def _code(self, receipt: Receipt) -> int:
        if not receipt.confirmed:
            return UNCONFIRMED
        if self._timed_out:
            return TIMED_OUT
        if receipt.exit is None:
            return OURS if receipt.reason in _LOST or receipt.reason.startswith(_FAILED) else 128 + signal.SIGKILL
        return receipt.exit["code"] if "code" in receipt.exit else 128 + receipt.exit["signal"]


def _say(sentence: str, code: int) -> int:
    """One line on stderr. Returns the code, for `return _say(…)`."""
    try:
        write_out(2, f"quell: {plain(sentence)}\n".encode(errors="backslashreplace"))
    except OSError:
        return code
    return code


def write_out(fd: int, data: bytes) -> None:
    """Write all, in the background of a terminal with `tostop` too. Who does not read holds us up, but not a signal."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTTOU])
    impatient = SignalFd([signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
    poller = select.poll()
    poller.register(fd, select.POLLOUT)
    poller.register(impatient, select.POLLIN)
    try:
        while data:
            ready = {found for found, _ in poller.poll()}
            if fd in ready:
                data = data[os.write(fd, data[:_PIECE]) :]
            elif impatient.read():
                raise OSError(errno.EINTR, "interrupted")
    finally:
        impatient.close()


def _ignored_signals() -> set[int]:
    """What our parent made us ignore (nohup, a shell's `&`). Python itself ignores SIGPIPE and SIGXFSZ."""
    return {number for number in signal.valid_signals() - _NOT_OURS if signal.getsignal(number) == signal.SIG_IGN}


def _environment() -> dict[bytes, bytes]:
    """The environment as it was handed to us: Python may have added LC_CTYPE to its own copy."""
    with open("/proc/self/environ", "rb") as file:
        pairs = [entry.partition(b"=") for entry in file.read().split(b"\0") if b"=" in entry]
    return {name: value for name, _, value in pairs if name}


def _ledger() -> Ledger | None:
    """Without a writable state directory there is no ledger; `quell doctor` says so."""
    try:
        ledger = Ledger()
        ledger.reconcile(RECONCILE_LIMIT)
        return ledger
    except OSError:
        return None


def _open_receipt(path: str | None) -> int | None:
    if path is None:
        return None
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    except OSError as error:
        why = "nobody reads from it" if error.errno == errno.ENXIO else error.strerror
        raise UsageError(f"the receipt cannot be written to {path}: {why}; choose another file") from None


def _write_receipt(fd: int, path: str, receipt: Receipt, code: int) -> int:
    """A receipt that cannot be written whole is none, and is shown instead: nothing is lost."""
    data = receipt.to_json().encode() + b"\n"
    try:
        write_out(fd, data)
        return code
    except OSError as error:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            os.unlink(path)
        why = f"the receipt could not be written to {path}: {error.strerror}"
        _say(f"{why}; here it is, and the command's code is {code}", code)
        try:
            write_out(2, data)
        except OSError:
            return OURS
        return OURS
    finally:
        os.close(fd)


def _die_of(number: int) -> None:
    """End as CMD ended: a shell then breaks its loop, says what happened and mends the terminal's modes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [number])
    os.kill(os.getpid(), number)
