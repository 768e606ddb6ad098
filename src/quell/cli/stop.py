"""`quell stop`: end a session, its turn, or everything, and print the receipt.

It needs neither the kernel's loop nor a server that answers: one that is silent is passed by, over the control socket.
"""

from __future__ import annotations

import enum
import select
import signal
import threading
import time
from types import FrameType
from typing import Annotated, Any

import typer

from ..errors import NoSupervisorError, QuellError, UsageError
from ..supervise.state import owner_of
from . import terminals
from .client import ANSWER, Call, Client, MuteServerError, NoServerError, RefusedError, path
from .flags import QUICK, Json, State, complete_running, named
from .receipts import describe
from .screen import Screen, note

UNCONFIRMED, OURS, INTERRUPTED = 1, 125, 130
TICK = 0.1  # seconds between two looks at what came, and at Ctrl+C
PROBE = 2.0  # seconds for a server that is busy with a stop to say that it is there
LAST = 120.0  # seconds for a stop by the control socket, beyond its grace


class Reach(enum.StrEnum):
    turn = "turn"
    session = "session"


def stop(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID...", help="Sessions to stop, all at once.", autocompletion=complete_running),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="End every session; the server lets none in.")] = False,
    reach: Annotated[
        Reach | None, typer.Option("--reach", help="Only the turn, or all of the session, which is the default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Kill at once, without asking to end first.")] = False,
    grace: Annotated[
        float | None, typer.Option("--grace", metavar="SECONDS", min=0, max=3600, help="Time to end by itself first.")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="Written on the receipt.")] = None,
    as_json: Json = False,
    state: State = None,
) -> int:
    """End sessions and print the receipts: what was there, how each process ended, who lives on.

    Those of the server, and of `quell run` and `quell chat` in other terminals: a run ends then, a chat waits for you.
    With --state only those of that server. Ctrl+C while it waits: the stop goes on; a second one asks to force it.
    With --json: one line for each stop.

    Exit codes: 0 confirmed; 1 unconfirmed, and the pids are named; 125 a fault of quell's or of its options.

    \b
    quell stop build
    quell stop 1f0c 2a9d --grace 1
    quell stop --all --force
    """
    if everything == bool(sessions):
        raise UsageError("quell stop needs sessions, or --all, and not both; see quell stop --help")
    if everything and reach is not None:
        raise UsageError("--all ends every session whole: it has no --reach")
    for one in sessions or ():
        named("ID", one)
    wish: dict[str, Any] = {"force": force, "grace": grace, "reason": reason}
    wish = {name: value for name, value in wish.items() if value is not None}
    client = Client(state)
    if everything:
        orders = [Order(client, "", wish)]
        orders += [Aside(client, "", wish, one) for one in ([] if state else terminals.live(client.folder))]
    else:
        wish["reach"] = (reach or Reach.session).value
        orders = [_order(client, one, wish, apart=state is None) for one in sessions or ()]
    if not Vigil(client, orders).keep():
        return INTERRUPTED
    return _report(orders, as_json)


def _order(client: Client, session: str, wish: dict[str, Any], *, apart: bool) -> Order:
    """Of the server, or of a terminal that has it. UsageError if both have one that is called so."""
    found = terminals.find(session, client.folder) if apart else None
    if found is None:
        return Order(client, session, wish)
    try:
        other = client.card(session, within=QUICK)["id"]
    except QuellError:
        return Aside(client, found[1], wish, found[0])
    raise UsageError(f"{session!r} may be {other} or {found[1]}: name one by its id")


def reopen(as_json: Json = False, state: State = None) -> int:
    """Let new work in again, after a stop of all.

    Exit codes: 0; 125 a fault of quell's or of its options.

    \b
    quell reopen
    """
    answer, screen = Client(state).post("admission", "reopen"), Screen()
    if as_json:
        screen.json(answer, 2)
    else:
        screen.line("admission is open")
    return 0


class Order:
    """One stop, until there is an answer or a fault."""

    def __init__(self, client: Client, session: str, wish: dict[str, Any]) -> None:
        self.session = session
        self.answer: dict[str, Any] | None = None
        self.fault: QuellError | None = None
        self.calls: list[Call] = []
        self.passed_by: QuellError | None = None
        """Why it was asked for by the control socket, and not of the server."""
        self._client = client
        self._wish = wish

    @property
    def over(self) -> bool:
        return self.answer is not None or self.fault is not None

    def ask(self) -> None:
        try:
            steps = ("sessions", self._client.step(self.session), "stop") if self.session else ("stop",)
        except RefusedError as error:
            self.fault = error
            return
        self.calls.append(self._client.begin("POST", path(*steps), self._wish))

    def hear(self, ready: set[int]) -> None:
        """Whatever came; whichever answer is first counts."""
        for call in [one for one in self.calls if one.fileno() in ready]:
            self.calls.remove(call)
            try:
                self.answer = self.answer or call.answer(ANSWER)
            except RefusedError as error:
                self.fault = error
            except QuellError as error:
                self.pass_by(error)

    def press(self) -> None:
        """Ask again, by force."""
        self._wish = {**self._wish, "force": True}
        try:
            if self.passed_by is None:
                self.ask()
                return
        except QuellError as error:
            self.passed_by = error
        self._begin_beside()

    def pass_by(self, error: QuellError) -> None:
        """The server cannot be asked: the supervisor's own thread listens on the control socket."""
        if self.passed_by is not None:
            return
        if self._wish.get("reach") == "turn":
            self.fault = QuellError(f"{error}; without it only a whole session can be stopped: leave out --reach turn")
            return
        self.passed_by = error
        self._begin_beside()

    def _begin_beside(self) -> None:
        threading.Thread(target=self._stop_beside, name=f"stop of {self.session or 'all'}", daemon=True).start()

    def _stop_beside(self) -> None:
        from ..supervise.control import ask_stop

        wish, silent = self._wish, isinstance(self.passed_by, MuteServerError)
        try:
            receipt = ask_stop(
                self._client.folder,
                scope=f"sessions/{self.session}" if self.session else "sessions",
                reason=wish.get("reason", "stop" if self.session else "stop all"),
                grace=wish.get("grace"),
                force=wish["force"],
                timeout=LAST + (wish.get("grace") or 0.0),
            )
        except NoSupervisorError as absent:
            self.fault = absent if silent else self.passed_by
        except QuellError as error:
            self.fault = QuellError(f"{error}; while the server is silent, a session is found by its whole id only")
        else:
            self.answer = terminals.as_answer(receipt)


class Aside(Order):
    """The same of a `quell run` or `quell chat` in another terminal."""

    def __init__(self, client: Client, session: str, wish: dict[str, Any], where: terminals.Elsewhere) -> None:
        super().__init__(client, session, wish)
        self.where = where
        self.passed_by = NoServerError(f"{where} is no server")

    def ask(self) -> None:
        if self._wish.get("reach") == "turn":
            self.fault = UsageError(f"session {self.session} is in another terminal: Ctrl+C there stops its turn alone")
        else:
            self._begin_beside()

    def _stop_beside(self) -> None:
        usual = {"reason": "stop" if self.session else "stop all"}
        try:
            wish = {**usual, **self._wish}
            receipt = terminals.stop(self.where, self.session, wish, LAST + (wish.get("grace") or 0.0))
        except NoSupervisorError as gone:
            self.fault = gone if owner_of(self.where.folder) else NoServerError(f"{self.where} has ended meanwhile")
        except QuellError as error:
            self.fault = error
        else:
            self.answer = terminals.as_answer(receipt)


class Vigil:
    """Waits until every order is over. Ctrl+C changes nothing but what the person is told, and then forces."""

    def __init__(self, client: Client, orders: list[Order]) -> None:
        self._client = client
        self._orders = orders
        self._pressed = 0
        self._heard = time.monotonic()

    def keep(self) -> bool:
        """Whether all are over: a third Ctrl+C leaves them to the server."""
        before = signal.signal(signal.SIGINT, self._press)
        told = 0
        try:
            self._begin()
            while pending := [one for one in self._orders if not one.over]:
                self._wait(pending)
                if self._pressed > told:
                    told += 1
                    self._say(told, pending)
                if told > 2:
                    return False
            return True
        finally:
            signal.signal(signal.SIGINT, before)
            for call in [call for order in self._orders for call in order.calls]:
                call.close()

    def _begin(self) -> None:
        served = [one for one in self._orders if not isinstance(one, Aside)]
        for one in self._orders:
            if isinstance(one, Aside):  # first: a server that is silent holds nobody else up
                one.ask()
        try:
            for order in served:
                order.ask()
        except (MuteServerError, NoServerError) as error:
            self._pass_by(error, served)

    def _wait(self, pending: list[Order]) -> None:
        poller = select.poll()
        for call in [call for order in pending for call in order.calls]:
            poller.register(call, select.POLLIN)
        ready = {fd for fd, _ in poller.poll(TICK * 1000)}
        for order in pending:
            order.hear(ready)
        asked = [one for one in pending if one.passed_by is None]
        if time.monotonic() - self._heard < ANSWER or not asked:
            return
        try:
            self._client.get("health", within=PROBE)  # a stop may take longer than a server may be silent
        except (MuteServerError, NoServerError) as error:
            self._pass_by(error, asked)
        self._heard = time.monotonic()

    def _pass_by(self, error: QuellError, orders: list[Order]) -> None:
        if isinstance(error, MuteServerError) and any(one.passed_by is None for one in orders):
            note(f"{error}; stopping by the control socket, which closes no admission")
        for order in orders:
            order.pass_by(error)

    def _press(self, _number: int, _frame: FrameType | None) -> None:
        self._pressed += 1

    def _say(self, times: int, pending: list[Order]) -> None:
        if times == 1:
            note("the stop goes on; Ctrl+C again forces it")
        elif times == 2:
            note("forcing; Ctrl+C again leaves, and the stop goes on without being watched")
            for order in pending:
                order.press()


def _report(orders: list[Order], as_json: bool) -> int:
    screen = Screen()
    absent = [one for one in orders if not one.session and isinstance(one.fault, NoServerError)]
    if len(absent) < len(orders):  # of all that there are: who is not there is no fault
        orders = [one for one in orders if one not in absent]
    for order in orders:
        where = order.where if isinstance(order, Aside) else None
        if order.answer is None:
            note(str(order.fault))
        elif as_json:
            screen.json({"session": order.session, **({"pid": where.pid} if where else {}), **order.answer})
        else:
            name = f"session {order.session}" if order.session else "all sessions"
            name += f" in {where}" if where else ""
            screen.line(("bold", name))
            screen.lines(describe(order.answer["receipt"], order.answer["confirmed"]))
            if not order.session and order.passed_by is None:
                screen.line(("dim", "admission is closed: quell reopen lets new work in"))
    if any(order.answer is not None and not order.answer["confirmed"] for order in orders):
        return UNCONFIRMED
    return OURS if any(order.fault is not None for order in orders) else 0
