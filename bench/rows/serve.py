"""The server: its start, its cost while nothing happens, and a stop by HTTP with and without a crowd that follows."""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.line import Line, lines
from bench.rows.kernel import BUSY, MEMORY_LIMIT, READY_LIMIT, STOP_LIMIT, limited
from bench.safety import safely
from bench.sampling import spread, tell

CLIENTS, EACH, STALLED = 50, 4, 5
IDLE = 3.0
"""Seconds over which a server that has nothing to do is watched."""


def measure(quick: bool) -> list[Line]:
    return lines([*safely(starts, 3 if quick else 10), *safely(stops, 30 if quick else 200)])


# -- start, and doing nothing


def starts(rounds: int) -> list[Line]:
    ready, sizes, ticks = [], [], 0.0
    for number in range(rounds):
        tell(f"serve: start {number + 1}/{rounds}")
        with tempfile.TemporaryDirectory(prefix="quell-bench-serve-") as folder:
            command = [f"{os.path.dirname(sys.executable)}/quell", "serve", "--port", "0", "--no-browser"]
            began = time.perf_counter()
            with subprocess.Popen([*command, "--state", folder], stdout=subprocess.PIPE) as program:
                assert program.stdout is not None
                program.stdout.readline()
                ready.append(time.perf_counter() - began)
                sizes.append(memory_of(program.pid))
                if number == 0:
                    time.sleep(1)  # what a start leaves to be done is done
                    before = ticks_of(program.pid)
                    time.sleep(IDLE)
                    ticks = ticks_of(program.pid) - before
                program.send_signal(signal.SIGINT)
                program.wait(30)
    start, memory = spread(ready), spread(sizes)
    share = 100 * ticks / os.sysconf("SC_CLK_TCK") / IDLE
    return [
        limit(
            "`quell serve`: start → ready",
            f"{start.p50 * 1000:.0f} ms",
            f"≤ {READY_LIMIT:g} s",
            start.p50 <= READY_LIMIT,
        ),
        limit(
            "memory of `quell serve` before a model is used (RSS)",
            f"{memory.p50:.1f} MB",
            f"≤ {MEMORY_LIMIT:g} MB",
            memory.p50 <= MEMORY_LIMIT,
        ),
        limit(
            f"processor time of `quell serve` while nothing happens, over {IDLE:g} s", f"{share:.1f} %", "0", ticks == 0
        ),
    ]


def limit(work: str, says: str, target: str, met: bool) -> Line:
    return Line(work, "–", "–", says, "–", target, met)


def memory_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def ticks_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


# -- stops


def stops(count: int) -> list[Line]:
    """Alone first, then with the crowd, on one server."""
    with crowded() as server:
        ids = [server.open("chatty", "Go on.") for _ in range(BUSY)]
        time.sleep(1)
        tell("serve: stops")
        alone = [server.stop_and_go(ids[number % BUSY]) for number in range(count)]
        with server.followed(ids) as heard:
            time.sleep(2)
            before, began = heard(), time.perf_counter()
            among = [server.stop_and_go(ids[number % BUSY]) for number in range(count)]
            rate = (heard() - before) / (time.perf_counter() - began)
    what = f"stop (turn) by HTTP with {BUSY} busy sessions, p99 of {count}"
    crowd = f"{CLIENTS} clients following {EACH} each, {STALLED} of them stalled"
    return [
        limited(f"{what}: nobody follows", alone, STOP_LIMIT),
        limited(f"{what}: {crowd}", among, STOP_LIMIT),
        Line(f"events to {CLIENTS - STALLED} clients meanwhile, as bytes of JSON", "–", "–", f"{rate / 1e6:.1f} MB/s"),
    ]


class Server:
    """One that serves, from outside."""

    def __init__(self, port: int, token: str) -> None:
        self.port = port
        self.token = token
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        self._line.request("POST", f"/api/v1/{path}", json.dumps(body), self._headers)
        answer = self._line.getresponse()
        said = json.loads(answer.read())
        assert answer.status < 300, said
        return said

    def open(self, agent: str, text: str) -> str:
        return str(self.post("sessions", {"agent": agent, "text": text})["id"])

    def stop_and_go(self, id_: str) -> float:
        began = time.perf_counter()
        self.post(f"sessions/{id_}/stop", {"reach": "turn"})
        taken = time.perf_counter() - began
        self.post(f"sessions/{id_}/messages", {"text": "Go on."})
        return taken

    @contextmanager
    def followed(self, ids: list[str]) -> Iterator[Callable[[], int]]:
        """Clients that follow while the block runs, in a process of their own: how many bytes they have read."""
        command = [sys.executable, "-m", "bench.followers", str(self.port), self.token, str(CLIENTS), str(STALLED)]
        with subprocess.Popen(
            [*command, str(EACH), *ids], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        ) as crowd:
            assert crowd.stdin is not None and crowd.stdout is not None
            question, answer = crowd.stdin, crowd.stdout

            def heard() -> int:
                print(file=question)
                return int(answer.readline())

            yield heard
            question.close()


@contextmanager
def crowded() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="quell-bench-serve-") as folder:
        with subprocess.Popen([sys.executable, "-m", "bench.crowd_server", folder], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            server = Server(
                int(program.stdout.readline()), (Path(folder) / "token").read_text(encoding="utf-8").strip()
            )
            yield server
            server.post("down", {"force": True})
            program.wait(30)
