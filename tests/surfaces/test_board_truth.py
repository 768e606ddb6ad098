"""In simulations, at every quiet moment: the board shows what the kernel has, and what a new one reads from the log."""

from __future__ import annotations

import asyncio
import functools
import os
from collections import Counter

import msgspec
import pytest

from quell.errors import QuellError
from quell.events import ApprovalAsked, Event, StopRequested, decode
from quell.kernel.runtime import Runtime
from quell.kernel.session import Session
from quell.surfaces.http.board import Board
from quell.surfaces.http.shapes import Card
from tests.simulation import script
from tests.simulation.simulate import report, simulate
from tests.simulation.world import Run, World

SEEDS = int(os.environ.get("QUELL_SEEDS", "40"))
LOOKS = 0.37
"""Seconds of simulated time between two looks."""
STILL = 12
"""Turns of the loop without any event: by then everybody has heard the last."""


class Witness:
    """Has a board that was read from the log, as a server's is, and then hears every event as it is published."""

    def __init__(self) -> None:
        self.board = Board()
        self.offences: list[str] = []
        self.seen: Counter[str] = Counter()

    def begin(self, world: World) -> None:
        """A runtime starts, perhaps after a crash that came before all on disk was published."""
        self.board = read(world)

    def hear(self, event: Event) -> None:
        self.board.apply(event)
        if len(self.board.changed) != len(self.board.cards()):
            self.offences.append(f"after {event.kind} {event.seq} the changed are not those that are there")

    async def watch(self, run: Run) -> None:
        """Until the runtime stops, or is dead."""
        runtime = run.runtime
        while runtime._ended is None and run.well:
            await asyncio.sleep(LOOKS)
            try:
                if await self.is_quiet(runtime):
                    await self.look(run)
            except QuellError:
                return  # it is over: the disk failed, or everything was stopped

    async def is_quiet(self, runtime: Runtime) -> bool:
        last = self.board.seq
        for _ in range(STILL):
            if runtime._ended is not None or runtime.host.journal.last != last or runtime.host.journal._waiting:
                return False
            await asyncio.sleep(0)
        return runtime._ended is None

    async def look(self, run: Run) -> None:
        runtime, board = run.runtime, self.board
        self.compare_live(runtime)
        before = board.seq
        infos = await runtime.sessions()
        if board.seq != before or not await self.is_quiet(runtime):
            return
        listed = [(one.id, one.title, one.agent, one.cwd, one.parent, one.opened) for one in infos]
        shown = [(one.id, one.title, one.agent, one.cwd, one.parent, one.opened) for one in board.cards()]
        self.same("sessions", listed, shown)
        self.compare_log(run.world)

    # -- with the kernel

    def compare_live(self, runtime: Runtime) -> None:
        host, board = runtime.host, self.board
        self.same("admission", host.admitting, board.admission().open)
        requests = host.journal.requests.values()
        asked = sorted(one.seq for one in requests if isinstance(one, ApprovalAsked))
        self.same("approvals", asked, [one.request for one in board.approvals()])
        self.same("stops", sorted(one.seq for one in requests if isinstance(one, StopRequested)), sorted(board._stops))
        for card in board.cards():
            session = host.live.get(card.id)
            if session is None:
                self.compare_resting(card)
            else:
                self.compare_session(card, session)

    def compare_session(self, card: Card, session: Session) -> None:
        id_, board = card.id, self.board
        self.seen[card.state] += 1
        state = {"asking": "running", "closed": "idle"}.get(card.state, card.state)
        self.same(f"state of {id_}", session.state, state)
        self.same(f"turn of {id_}", session.turn.number if session.turn else 0, board.turn(id_))
        self.same(f"turns of {id_}", session.turns, card.turn)
        self.same(f"title of {id_}", session.title, card.title)
        queue = board.queue(id_)
        self.same(f"parked of {id_}", [one.seq for one in session.parked], [one.message for one in queue if one.parked])
        waiting = [one.message for one in queue if not one.parked]
        self.same(f"waiting of {id_}", [one.seq for one in session.waiting], waiting)
        here = [(one.pid, one.background, one.turn, one.since) for one in session.processes()]
        shown = [(one.pid, one.background, one.turn, one.since) for one in card.processes]
        self.same(f"processes of {id_}", here, shown)
        self.seen.update(
            {"parked": len(session.parked), "waiting": len(waiting), "processes": len(here)},
            background=sum(one.background for one in card.processes),
            children=bool(card.parent),
            forks=bool(card.origin),
        )

    def compare_resting(self, card: Card) -> None:
        """Of one that is in the log only nothing runs."""
        self.seen["resting"] += 1
        if card.state not in ("idle", "closed") or card.processes or not all(one.parked for one in card.queue):
            self.offences.append(f"{card.id} rests, and the board says {card}")

    # -- with a board that is new

    def compare_log(self, world: World) -> None:
        fresh = read(world)
        for one, other in zip(fresh.cards(), self.board.cards(), strict=True):
            self.same(f"{one.id} of the log", settled(one), settled(other))
        self.same("the log's admission", fresh.admission(), self.board.admission())
        self.same("the log's receipts", fresh.receipts(), self.board.receipts())
        self.same("the log's stops", fresh._stops, self.board._stops)
        self.seen["logs"] += 1
        self.seen["receipts"] += len(fresh.receipts())

    def same(self, what: str, truth: object, shown: object) -> None:
        if truth != shown:
            self.offences.append(f"{what} at {self.board.seq}: the truth is {truth}, and the board says {shown}")


def read(world: World) -> Board:
    board = Board()
    for row in world.disk.rows:
        if row.kind in Board.KINDS:
            board.apply(decode(row.body))
    return board


def settled(card: Card) -> Card:
    """What streams in a turn that runs is seen by those who were there."""
    return msgspec.structs.replace(card, last="") if card.end == "" else card


@pytest.fixture
def witnesses(monkeypatch: pytest.MonkeyPatch) -> dict[int, Witness]:
    """One for each simulated world."""
    found: dict[int, Witness] = {}
    by_runtime: dict[int, Witness] = {}
    take_up, publish = script.take_up, Runtime._publish

    def hear(runtime: Runtime, event: Event) -> None:
        publish(runtime, event)
        if (witness := by_runtime.get(id(runtime))) is not None:
            witness.hear(event)

    @functools.wraps(Run.__init__)
    def begin(run: Run, world: World) -> None:
        made(run, world)
        by_runtime[id(run.runtime)] = witness = found.setdefault(world.seed, Witness())
        witness.begin(world)

    async def look_too(run: Run) -> None:
        asyncio.create_task(found[run.world.seed].watch(run), name="witness")  # noqa: RUF006  it ends with the runtime
        await take_up(run)

    made = Run.__init__
    monkeypatch.setattr(Run, "__init__", begin)
    monkeypatch.setattr(Runtime, "_publish", hear)
    monkeypatch.setattr(script, "take_up", look_too)
    return found


def look_at(seeds: range, witnesses: dict[int, Witness]) -> Counter[str]:
    for seed in seeds:
        world = simulate(seed)
        assert not world.offences, report(world)
        assert not witnesses[seed].offences, f"seed {seed}:\n" + "\n".join(witnesses[seed].offences[:3])
    return sum((one.seen for one in witnesses.values()), Counter[str]())


def test_the_board_shows_what_the_kernel_has(witnesses: dict[int, Witness]) -> None:
    """H36: what it shows follows from the events alone, live and from the log."""
    seen = look_at(range(SEEDS), witnesses)
    rare = {"asking", "stopping", "closed", "parked", "waiting", "background", "children", "forks", "receipts"}
    assert not rare - set(seen), seen


@pytest.mark.soak
def test_the_board_shows_what_the_kernel_has_in_many_simulations(witnesses: dict[int, Witness]) -> None:
    """H36: the same for longer."""
    look_at(range(SEEDS, 10 * SEEDS), witnesses)
