"""`quell receipts`: what stops observed, and the words in which any command shows a receipt."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from .client import Client, RefusedError
from .flags import Json, State, complete_session
from .screen import Line, Screen, one_line

FEW = 40  # processes that are shown unless all are asked for
PARTS = ("tasks", "closers", "requests", "threads")


def receipts(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="ID|SEQ",
            help="A session, or the number of one receipt, which is then shown in full.",
            autocompletion=complete_session,
        ),
    ] = None,
    number: Annotated[int, typer.Option("-n", metavar="N", min=1, max=200, help="So many, the newest first.")] = 20,
    as_json: Json = False,
    state: State = None,
) -> int:
    """What stops observed, the newest first.

    Exit codes: 0, whatever they say; 125 a fault of quell's or of its options.

    \b
    quell receipts
    quell receipts build
    quell receipts 42 --json
    """
    client, screen = Client(state), Screen()
    if what is not None and what.isdecimal():
        try:
            slip = client.get("receipts", int(what))
        except RefusedError as error:
            if error.status != 404:
                raise
        else:
            if as_json:
                screen.json(slip, 2)
            else:
                screen.lines([*head(slip), *describe(slip["receipt"], slip["confirmed"], None)])
            return 0
    answer = client.get("receipts", session=what, limit=number)
    if as_json:
        screen.json(answer, 2)
        return 0
    for slip in answer["receipts"]:
        screen.lines([*head(slip), *_brief(slip)])
    if not answer["receipts"]:
        screen.line("no receipts")
    return 0


def head(slip: dict[str, Any]) -> list[Line]:
    """What was asked for."""
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(slip["at"]))
    of = f"session {slip['session']}" if slip["session"] else "all"
    return [
        [("bold", f"receipt {slip['seq']}"), ("dim", f"  {at}  stop of {of}, reach {slip['reach']}: {slip['reason']}")]
    ]


def _brief(slip: dict[str, Any]) -> list[Line]:
    return [[("", "  "), ("green" if slip["confirmed"] else "alarm", verdict(slip["receipt"], slip["confirmed"]))]]


def verdict(receipt: dict[str, Any], confirmed: bool) -> str:
    """In one line: the word, and how many are concerned."""
    seen = len(receipt.get("processes", []))
    took = receipt.get("phases", {}).get("total", 0.0)
    if confirmed and not seen:
        return "confirmed: nobody was there"
    if confirmed:
        ended = "1 process" if seen == 1 else f"{seen} processes"
        return f"confirmed: {ended} ended in {took:.3f} s, nobody is left"
    pids = ", ".join(map(str, receipt.get("survivors", [])[:FEW]))
    left = [f"{one['name']}" for part in PARTS for one in receipt.get(part, []) if one.get("end") == "alive"]
    said = [f"alive: pid {pids}" if pids else "", f"not ended: {', '.join(left[:FEW])}" if left else ""]
    return f"unconfirmed after {took:.2f} s; {'; '.join(filter(None, said)) or 'what is left is not known'}"


def describe(receipt: dict[str, Any], confirmed: bool, most: int | None = FEW) -> list[Line]:
    """The receipt for a person: the verdict, each process with how it ended, the times; who lives on in red."""
    lines: list[Line] = [[("green" if confirmed else "alarm", verdict(receipt, confirmed))]]
    processes = sorted(receipt.get("processes", []), key=lambda one: one.get("end") != "alive")
    for one in processes[:most]:
        alive = one.get("end") == "alive"
        when = "" if alive or one.get("at") is None else f"{one['at']:.3f} s"
        words = one_line(" ".join(one.get("argv") or ["?"]), 0 if most is None else 100)
        text = f"  {one['pid']:>8}  {one.get('end') or 'gone':10} {when:8}  {words}"
        lines.append([("alarm" if alive else "", text)])
    if most is not None and len(processes) > most:
        lines.append([("dim", f"  and {len(processes) - most} more; quell receipts SEQ shows all")])
    for part in PARTS:
        for one in receipt.get(part, []):
            if one.get("end") == "alive" or most is None:
                where = f" at {one['where']}" if one.get("where") else ""
                style = "alarm" if one.get("end") == "alive" else ""
                lines.append([(style, f"  {part[:-1]:>8}  {one.get('end', '')}  {one['name']}{where}")])
    phases = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in receipt.get("phases", {}).items())
    facts = f"  signalled {receipt.get('signalled', 0)}; {phases}; containment {receipt.get('rung', 'none')}"
    return [*lines, [("dim", facts)]]
