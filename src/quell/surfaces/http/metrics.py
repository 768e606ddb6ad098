"""The board as Prometheus reads it: the text format, version 0.0.4. Every label that can be there always is."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Protocol, get_args

from ...events import EndCause, Reach
from .board import Board
from .counts import BOUNDS, Counts
from .shapes import State

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
VERDICTS = ("confirmed", "unconfirmed")

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]
"""What comes after the name of its family, the labels, the value."""


class StreamFacts(Protocol):
    cuts: int
    """Clients that were cut off because they were too slow."""

    def __len__(self) -> int:
        """Clients that follow now."""
        ...


class ServerFacts(Protocol):
    @property
    def version(self) -> str: ...

    @property
    def started(self) -> float:
        """Seconds since 1970."""
        ...


def text(board: Board, streams: StreamFacts, info: ServerFacts) -> str:
    return "".join(
        [
            *_of_sessions(board),
            *_of_counts(board.counts),
            one("quell_admission_open", "gauge", "Whether new work is let in.", board.admission().open),
            one("quell_events_total", "counter", "Events of the log, by the number of the last.", board.seq),
            one("quell_stream_clients", "gauge", "Clients that follow events now.", len(streams)),
            one("quell_stream_cuts_total", "counter", "Clients that were too slow and were cut off.", streams.cuts),
            family("quell_build_info", "gauge", "The version that runs.", [("", {"version": info.version}, 1)]),
            one("process_start_time_seconds", "gauge", "When the server was started, since 1970.", info.started),
            one("process_resident_memory_bytes", "gauge", "Memory of the server's process.", resident()),
        ]
    )


def _of_sessions(board: Board) -> Iterable[str]:
    states: Counter[str] = Counter()
    queue: Counter[bool] = Counter()
    processes = approvals = 0
    for card in board.cards():
        states[card.state] += 1
        processes += len(card.processes)
        approvals += len(card.approvals)
        queue.update(waiting.parked for waiting in card.queue)
    by_state: list[Sample] = [("", {"state": state}, states[state]) for state in get_args(State)]
    by_parked: list[Sample] = [("", {"parked": str(parked).lower()}, queue[parked]) for parked in (False, True)]
    yield family("quell_sessions", "gauge", "Sessions, by what they do.", by_state)
    yield one("quell_processes", "gauge", "Commands of tools that run.", processes)
    yield one("quell_approvals_open", "gauge", "Questions that wait for a person.", approvals)
    yield family("quell_queue", "gauge", "Messages that wait; the parked ones wait for a person.", by_parked)


def _of_counts(counts: Counts) -> Iterable[str]:
    turns: list[Sample] = [("", {"end": end}, counts.turns[end]) for end in get_args(EndCause)]
    stops: list[Sample] = [
        ("", {"reach": reach, "verdict": verdict}, counts.stops[reach, verdict])
        for reach in get_args(Reach)
        for verdict in VERDICTS
    ]
    seconds: list[Sample] = [
        *(("_bucket", {"le": number(bound)}, many) for bound, many in zip(BOUNDS, counts.within, strict=True)),
        ("_bucket", {"le": "+Inf"}, counts.timed),
        ("_sum", {}, counts.seconds),
        ("_count", {}, counts.timed),
    ]
    yield family("quell_turns_total", "counter", "Turns that ended, by how.", turns)
    yield family("quell_stops_total", "counter", "Stops, by their reach and what their receipt says.", stops)
    yield family("quell_stop_seconds", "histogram", "How long a stop took, from the request to the verdict.", seconds)


def one(name: str, kind: str, words: str, value: float) -> str:
    """A family of one sample."""
    return family(name, kind, words, [("", {}, value)])


def family(name: str, kind: str, words: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {_escaped(words)}", f"# TYPE {name} {kind}"]
    for suffix, labels, value in samples:
        inside = ",".join(f'{label}="{_escaped(said, quote=True)}"' for label, said in labels.items())
        lines.append(f"{name}{suffix}{f'{{{inside}}}' if inside else ''} {number(value)}")
    return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """An integer where it is one: `repr` of a large float would round it."""
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(words: str, quote: bool = False) -> str:
    words = words.replace("\\", "\\\\").replace("\n", "\\n")
    return words.replace('"', '\\"') if quote else words


def resident() -> int:
    """Bytes of this process; 0 where nobody says."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
