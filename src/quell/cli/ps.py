"""`quell ps`: the sessions of a server, children below their parents; with --watch, drawn again as they change."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .client import Client, NoServerError
from .flags import Json, State
from .following import Follower, Patience
from .screen import Screen, note, one_line

if TYPE_CHECKING:
    from rich.console import RenderableType

Card = dict[str, Any]
Row = list[str]

HEAD = ["SESSION", "STATE", "TURN", "PROCESSES", "AGENT", "TITLE", "LAST OUTPUT"]
_NARROW, _MIDDLE = 60, 90  # columns of a terminal, below which the least important columns are left out
_LONG = {5: 40, 6: 80}  # characters of the columns that may be long, where no terminal has its own width
_STYLES = {"running": "green", "asking": "yellow", "stopping": "yellow", "idle": "", "closed": "dim"}


def ps(
    watch: Annotated[
        bool, typer.Option("--watch", help="Draw it again whenever something changes, until Ctrl+C.")
    ] = False,
    as_json: Json = False,
    state: State = None,
) -> int:
    """List the sessions: what each does, what it runs, what it said last.

    Those of the server, and of `quell run` and `quell chat` in other terminals; with --state or --watch, of the server
    alone. With --watch and --json: one line of JSON for each change. Exit codes: 0; 125 a fault of quell's or of its
    options.

    \b
    quell ps
    quell ps --watch
    quell ps --json
    """
    client, screen = Client(state), Screen()
    if watch:
        return _watch(client, screen, as_json)
    board = _board(client, apart=state is None)
    if as_json:
        screen.json(board, 2)
    elif screen.terminal:
        _draw_once(board, screen)
    else:
        screen.write(_plain(board))
    return 0


def _board(client: Client, *, apart: bool) -> dict[str, Any]:
    """As the server has it, and with what runs in other terminals. NoServerError if there is neither."""
    from . import terminals

    others = terminals.cards(client.folder) if apart else []
    try:
        board: dict[str, Any] = client.get("state")
    except NoServerError:
        if not others:
            raise
        board = {"seq": 0, "admission": {"open": True}, "sessions": []}
    return {**board, "terminals": others} if apart else board


# -- the table


def in_order(cards: list[Card]) -> list[tuple[int, Card]]:
    """Parents before their children, with how deep each is."""
    known = {card["id"] for card in cards}
    below: dict[str, list[Card]] = {}
    for card in cards:
        below.setdefault(card["parent"] if card["parent"] in known else "", []).append(card)
    found: list[tuple[int, Card]] = []
    waiting = [(0, card) for card in reversed(below.get("", []))]
    while waiting:
        depth, card = waiting.pop()
        found.append((depth, card))
        waiting += [(depth + 1, child) for child in reversed(below.get(card["id"], []))]
    return found


def rows_of(board: dict[str, Any]) -> list[tuple[Card, Row]]:
    """The server's, then those of other terminals."""
    served = [(card, row(depth, card)) for depth, card in in_order(board["sessions"])]
    return served + [(card, row_apart(depth, card)) for depth, card in in_order(board.get("terminals", []))]


def row_apart(depth: int, card: Card) -> Row:
    where = f"in process {card['pid']}" if card["pid"] else "in another container"
    return [
        "  " * depth + card["id"],
        card["state"],
        "-",
        str(card["processes"] or "-"),
        one_line(card["agent"]) or "-",
        one_line(card["title"] or card["asked"]) or "-",
        f"(another terminal, {where})",
    ]


def row(depth: int, card: Card) -> Row:
    return [
        "  " * depth + card["id"],
        said_state(card),
        str(card["turn"] or "-"),
        str(len(card["processes"]) or "-"),
        one_line(card["agent"]) or "-",
        one_line(card["title"] or card["asked"]) or "-",
        one_line(card["last"]) or "-",
    ]


def said_state(card: Card) -> str:
    """The state, and what one must know besides."""
    words = [card["state"]]
    if card["state"] in ("idle", "closed") and card["end"] not in ("", "completed"):
        words.append(card["end"])
    if parked := sum(one["parked"] for one in card["queue"]):
        words.append(f"{parked} parked")
    if waiting := len(card["queue"]) - parked:
        words.append(f"{waiting} queued")
    if not card["confirmed"]:
        words.append("UNCONFIRMED")
    return ", ".join(words)


def _gate(board: dict[str, Any]) -> str:
    admission = board["admission"]
    why = f" ({one_line(admission['reason'])})" if admission.get("reason") else ""
    return "" if admission["open"] else f"admission is closed{why}: quell reopen lets new work in"


def _plain(board: dict[str, Any]) -> str:
    """Aligned columns for pipes and files."""
    rows = [HEAD, *(cells for _, cells in rows_of(board))]
    rows = [[one_line(cell, _LONG[at]) if at in _LONG else cell for at, cell in enumerate(one)] for one in rows]
    widths = [max(len(one[at]) for one in rows) for at in range(len(HEAD) - 1)]
    lines = ["  ".join(map(str.ljust, one, [*widths, 0])).rstrip() for one in rows]
    return "\n".join([*filter(None, [_gate(board)]), *lines]) + "\n"


def _table(board: dict[str, Any], width: int) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = [0, 1, 5] if width < _NARROW else [0, 1, 2, 3, 5, 6] if width < _MIDDLE else list(range(len(HEAD)))
    table = Table(box=None, pad_edge=False, header_style="bold", expand=True)
    for at in shown:
        table.add_column(HEAD[at], no_wrap=True, overflow="ellipsis", ratio={5: 1, 6: 2}.get(at))
    for card, cells in rows_of(board):
        style = "bold red" if not card.get("confirmed", True) else _STYLES.get(card["state"], "")
        table.add_row(*(Text(cells[at], style=style if at == 1 else "") for at in shown))
    gate = _gate(board)
    return Group(*([Text(gate, style="bold yellow")] if gate else []), table)


def _draw_once(board: dict[str, Any], screen: Screen) -> None:
    from rich.console import Console

    Console(highlight=False).print(_table(board, screen.width))


# -- watching


def _watch(client: Client, screen: Screen, as_json: bool) -> int:
    """Until Ctrl+C. The terminal is left as it was, with the last table on it."""
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    follower = Follower(client, board=True)
    patience = Patience(follower, note)
    try:
        if screen.moves and not as_json:
            from rich.console import Console
            from rich.live import Live

            console = Console(file=sys.stdout, highlight=False)
            with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
                for board in _boards(follower, patience):
                    live.update(_table(board, screen.width), refresh=True)
        for board in _boards(follower, patience):
            if as_json:
                screen.json(board)
            else:
                screen.write(f"{time.strftime('%H:%M:%S')}\n{_plain(board)}\n")
    except KeyboardInterrupt:
        return 0
    finally:
        follower.close()
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _boards(follower: Follower, patience: Patience) -> Iterator[dict[str, Any]]:
    """The whole board, after each change of it."""
    board: dict[str, Any] = {"seq": 0, "admission": {"open": True}, "sessions": []}
    while True:
        changed = False
        for message in follower.take(1.0):
            if message["type"] == "snapshot":
                board = {name: message[name] for name in ("seq", "admission", "sessions")}
                changed = True
            elif message["type"] == "cards":
                board, changed = changed_board(board, message), True
        patience.look()
        if changed:
            yield board


def changed_board(board: dict[str, Any], message: dict[str, Any]) -> dict[str, Any]:
    """The board with newer cards in it; a new one comes last."""
    gone, newer = set(message["removed"]), {card["id"]: card for card in message["cards"]}
    kept = [newer.pop(card["id"], card) for card in board["sessions"] if card["id"] not in gone]
    sessions = kept + [card for card in newer.values() if card["id"] not in gone]
    return {"seq": message["seq"], "admission": message["admission"], "sessions": sessions}
