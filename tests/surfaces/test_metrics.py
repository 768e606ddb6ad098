"""What Prometheus is told is what the board knows, in a form that the strictest reader takes."""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from quell.events import (
    AdmissionClosed,
    AdmissionReopened,
    ApprovalAsked,
    Event,
    MessageUser,
    ProcessSpawned,
    QueueParked,
    SessionClosed,
    SessionOpened,
    StopReceipt,
    StopRequested,
    TurnEnded,
    TurnStarted,
)
from quell.surfaces.http import metrics
from quell.surfaces.http.board import Board
from quell.surfaces.http.metrics import number, text


@dataclass
class Streams:
    cuts: int = 2

    def __len__(self) -> int:
        return 3


@dataclass(frozen=True)
class Info:
    version: str = "1.2.3"
    started: float = 1767225600.25


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]
NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


class Scrape:
    """A strict reader of the text format: each family is told of first, once, and all of it is in one place."""

    def __init__(self, body: str) -> None:
        assert body.endswith("\n") and "\n\n" not in body
        self.kinds: dict[str, str] = {}
        self.series: Series = {}
        self.order: list[str] = []
        self._help = ""
        for line in body[:-1].split("\n"):
            if line.startswith("# HELP "):
                self._help = self._told(line)
            elif line.startswith("# TYPE "):
                self._type(line)
            else:
                self._sample(line)
        for name in [name for name, kind in self.kinds.items() if kind == "histogram"]:
            self._histogram(name)

    @staticmethod
    def _told(line: str) -> str:
        found = re.fullmatch(rf"# HELP ({NAME}) ((?:[^\\\n]|\\\\|\\n)+)", line)
        assert found, line
        return found[1]

    def _type(self, line: str) -> None:
        found = re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|histogram)", line)
        assert found and found[1] == self._help and found[1] not in self.kinds, line
        self.kinds[found[1]] = found[2]
        self.order.append(found[1])
        assert found[2] != "counter" or found[1].endswith("_total")

    def _sample(self, line: str) -> None:
        found = re.fullmatch(rf"({NAME})(?:\{{(.+)\}})? (\S+)", line)
        assert found, line
        name, inside, value = found.groups()
        family = self.order[-1]
        assert name in [family + suffix for suffix in SUFFIXES.get(self.kinds[family], ("",))], line
        labels, place = {}, 0
        while place < len(inside or ""):
            label = LABEL.match(inside, place)
            assert label and label[1] not in labels, line
            labels[label[1]] = re.sub(r"\\(.)", lambda escaped: {"n": "\n"}.get(escaped[1], escaped[1]), label[2])
            place = label.end()
        key = name, frozenset(labels.items())
        assert key not in self.series, line
        self.series[key] = math.inf if value == "+Inf" else float(value)

    def _histogram(self, name: str) -> None:
        buckets = [(dict(labels)["le"], many) for (one, labels), many in self.series.items() if one == name + "_bucket"]
        bounds = [math.inf if bound == "+Inf" else float(bound) for bound, _ in buckets]
        counts = [many for _, many in buckets]
        assert bounds == sorted(set(bounds)) and bounds[-1] == math.inf
        assert counts == sorted(counts) and counts[-1] == self.get(name + "_count")

    def get(self, name: str, **labels: str) -> float:
        return self.series[name, frozenset(labels.items())]


def scrape(*events: Event, streams: Streams | None = None, info: Info | None = None) -> Scrape:
    board = Board()
    for event in events:
        board.apply(event)
    return Scrape(text(board, streams or Streams(), info or Info()))


def receipt(seq: int, request: int, session: str, seconds: float, confirmed: bool = True) -> StopReceipt:
    phases = {"ask": 0.0, "kill": 0.0, "total": seconds}
    return StopReceipt(seq=seq, session=session, request=request, confirmed=confirmed, receipt={"phases": phases})


def test_everything_is_told_before_anything_has_happened() -> None:
    found = scrape()
    assert set(found.kinds) == {
        *("quell_sessions", "quell_turns_total", "quell_stops_total", "quell_stop_seconds", "quell_processes"),
        *("quell_approvals_open", "quell_queue", "quell_admission_open", "quell_events_total"),
        *("quell_stream_clients", "quell_stream_cuts_total", "quell_build_info"),
        *("process_start_time_seconds", "process_resident_memory_bytes"),
    }
    assert found.get("quell_admission_open") == 1
    assert found.get("quell_turns_total", end="completed") == 0
    assert found.get("quell_stops_total", reach="all", verdict="unconfirmed") == 0


def test_sessions_are_counted_by_what_they_do() -> None:
    found = scrape(
        *(SessionOpened(seq=seq, session=f"s{seq}") for seq in range(1, 6)),
        MessageUser(seq=6, session="s1", text="a"),
        TurnStarted(seq=7, session="s1", turn=1, cause=6),
        ProcessSpawned(seq=8, session="s1", turn=1, pid=10, argv=["sleep"]),
        TurnStarted(seq=9, session="s2", turn=1),
        ApprovalAsked(seq=10, session="s2", turn=1, tool="shell"),
        StopRequested(seq=11, session="s3", reach="session"),
        SessionClosed(seq=12, session="s4"),
        MessageUser(seq=13, session="s1", text="b"),
        MessageUser(seq=14, session="s1", text="c"),
        QueueParked(seq=15, session="s1", messages=[13]),
    )
    for state in ("running", "asking", "stopping", "idle", "closed"):
        assert found.get("quell_sessions", state=state) == 1
    assert found.get("quell_processes") == 1
    assert found.get("quell_approvals_open") == 1
    assert found.get("quell_queue", parked="true") == found.get("quell_queue", parked="false") == 1
    assert found.get("quell_events_total") == 15


def test_ends_of_turns_and_stops_are_counted() -> None:
    found = scrape(
        SessionOpened(seq=1, session="a"),
        TurnStarted(seq=2, session="a", turn=1),
        StopRequested(seq=3, session="a", reach="turn"),
        TurnEnded(seq=4, session="a", turn=1, request=2, end="stopped"),
        receipt(5, 3, "a", 0.3),
        StopRequested(seq=6, reach="all"),
        receipt(7, 6, "", 9.25, confirmed=False),
        StopRequested(seq=8, session="a", reach="session"),
        StopReceipt(seq=9, session="a", request=8, confirmed=False, receipt={"reason": "interrupted"}),
        StopRequested(seq=10, session="a", reach="session"),
        receipt(11, 10, "a", 60.0),
    )
    assert found.get("quell_turns_total", end="stopped") == 1
    assert found.get("quell_stops_total", reach="turn", verdict="confirmed") == 1
    assert found.get("quell_stops_total", reach="all", verdict="unconfirmed") == 1
    assert found.get("quell_stops_total", reach="session", verdict="unconfirmed") == 1
    assert found.get("quell_stop_seconds_count") == 3  # of the one that a crash cut off nobody knows how long it took
    assert found.get("quell_stop_seconds_sum") == pytest.approx(69.55)
    assert found.get("quell_stop_seconds_bucket", le="0.25") == 0
    assert found.get("quell_stop_seconds_bucket", le="0.5") == 1
    assert found.get("quell_stop_seconds_bucket", le="10") == 2


def test_admission_is_told() -> None:
    assert scrape(AdmissionClosed(seq=1)).get("quell_admission_open") == 0
    assert scrape(AdmissionClosed(seq=1), AdmissionReopened(seq=2)).get("quell_admission_open") == 1


def test_the_server_is_told_of() -> None:
    found = scrape(info=Info(version='a"b\\c\nd'))
    assert found.get("quell_build_info", version='a"b\\c\nd') == 1
    assert found.get("process_start_time_seconds") == 1767225600.25
    assert found.get("quell_stream_clients") == 3
    assert found.get("quell_stream_cuts_total") == 2


def test_memory_is_what_the_kernel_says(monkeypatch: pytest.MonkeyPatch) -> None:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    assert scrape().get("process_resident_memory_bytes") == pytest.approx(int(found[1]) * 1024, rel=0.2)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(metrics, "open", refuse, raising=False)
    assert scrape().get("process_resident_memory_bytes") == 0


def test_numbers_are_exact() -> None:
    assert [number(value) for value in (0, True, 2.0, 0.1, 2**53, 1767225600.25)] == [
        *("0", "1", "2", "0.1", "9007199254740992", "1767225600.25")
    ]


def test_a_thousand_sessions_are_told_of_quickly() -> None:
    board = Board()
    for seq in range(1, 1001):
        board.apply(SessionOpened(seq=seq, session=f"s{seq}"))
    began = time.process_time()
    Scrape(text(board, Streams(), Info()))
    assert time.process_time() - began < 0.5
