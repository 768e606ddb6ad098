"""A server that says what a test wants, on a Unix socket as `quell serve` has one: for what a real one does not do.

An answer is a value, `(status, value)`, or a function of the body. A stream is a list of messages for each connection;
HOLD keeps it open, and a list without it ends as when the server is killed.
"""

import json
import os
import signal
import socketserver
import tempfile
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from quell.cli import main
from tests.cli import oracle

HOLD = "hold"
MUTE = "mute"
PREFIX = "/api/v1"


class StandIn:
    def __init__(self, folder: Path, answers: dict[str, Any], streams: list[list[Any]] | None = None) -> None:
        self.folder = folder
        self.asked: list[tuple[str, Any]] = []
        """Method and path, with the body or the query."""
        self.over = threading.Event()
        self._answers = answers
        self._streams = list(streams or [])
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "api.sock"
        path.unlink(missing_ok=True)
        self._server = Server(str(path), Handler)
        self._server.house = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server is not None
        assert self._thread is not None
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        (self.folder / "api.sock").unlink(missing_ok=True)

    def bodies(self, what: str) -> list[Any]:
        """What was asked with that method and path."""
        return [body for name, body in self.asked if name == what]

    def waits_for(self, what: str, times: int = 1) -> None:
        oracle.wait_for(lambda: len(self.bodies(what)) >= times, f"{what} to be asked {times} times")

    def answer(self, what: str, body: Any) -> Any:
        self.asked.append((what, body))
        value = self._answers.get(what, (404, {"code": "no_route", "message": f"there is no {what}"}))
        return value(body) if callable(value) else value

    def script(self) -> list[Any]:
        return self._streams.pop(0) if self._streams else [HOLD]


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    house: StandIn
    daemon_threads = False
    request_queue_size = 64


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        path = parts.path.removeprefix(PREFIX)
        if path == "/events":
            self.server.house.asked.append(("GET /events", query))
            self._stream()
        else:
            self._reply(self.server.house.answer(f"GET {path}", query))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert self.headers["Content-Type"] == "application/json"
        self._reply(self.server.house.answer(f"POST {self.path.removeprefix(PREFIX)}", body))

    def do_DELETE(self) -> None:
        self._reply(self.server.house.answer(f"DELETE {self.path.removeprefix(PREFIX)}", None))

    def _reply(self, value: Any) -> None:
        self.close_connection = True
        if value == MUTE:
            self.server.house.over.wait()
            return
        status, value = value if isinstance(value, tuple) else (200, value)
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._chunk(b"retry: 1000\n\n:\n\n")
        for message in self.server.house.script():
            if message == HOLD:
                self.server.house.over.wait()
            elif callable(message):
                message()
            else:
                mark = f"id: {message['seq']}\n" if "seq" in message else ""
                data = f"event: {message['type']}\n{mark}data: {json.dumps(message)}\n\n".encode()
                for at in range(0, len(data), 1000):  # pieces that end anywhere
                    self._chunk(data[at : at + 1000])

    def _chunk(self, data: bytes) -> None:
        try:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:
            return  # the client has gone

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name of the library's
        return


def card(id_: str, **facts: Any) -> dict[str, Any]:
    """A session as the API tells it."""
    usual: dict[str, Any] = {
        "id": id_, "title": "", "agent": "scripted", "cwd": "/", "parent": "", "origin": "", "opened": 1.0,
        "changed": 1.0, "state": "idle", "turn": 0, "end": "", "reason": "", "asked": "", "last": "", "queue": [],
        "approvals": [], "processes": [], "stopped": 0, "confirmed": True,
    }  # fmt: skip
    assert set(facts) <= set(usual)
    return {**usual, **facts}


def board(*cards: dict[str, Any], open_: bool = True) -> dict[str, Any]:
    return {
        "seq": 9,
        "admission": {"open": open_, "reason": "" if open_ else "stop all", "since": 0.0},
        "sessions": [*cards],
    }


def receipt(confirmed: bool = True, survivors: list[int] | None = None) -> dict[str, Any]:
    """What a stop answers."""
    processes = [{"pid": 41, "inner": 2, "argv": ["sleep", "77"], "end": "signal 15", "at": 0.01}]
    processes += [{"pid": pid, "inner": None, "argv": ["stuck"], "end": "alive", "at": 0.5} for pid in survivors or []]
    facts = {
        "version": 1, "verdict": "confirmed" if confirmed else "unconfirmed", "confirmed": confirmed, "reason": "stop",
        "rung": "pidns", "command": [], "exit": None, "processes": processes, "survivors": survivors or [],
        "signalled": 1, "phases": {"ask": 0.0, "kill": 0.1, "total": 0.12}, "started": "2026-01-01T00:00:00Z",
        "scope": "sessions/a", "tasks": [], "closers": [], "requests": [], "threads": [],
    }  # fmt: skip
    return {"confirmed": confirmed, "sentence": "said", "receipt": facts}


def said(seq: int, text: str, session: str = "aaaa", **more: Any) -> dict[str, Any]:
    return {"kind": "message.user", "seq": seq, "at": 1.0, "source": "user", "session": session, "text": text, **more}


def bundle(*events: dict[str, Any]) -> dict[str, Any]:
    return {"type": "events", "events": list(events), "seq": events[-1]["seq"]}


def heard(*words: str) -> tuple[int, str, str]:
    """The exit code of a command and what it says, run in this process: a start costs more than all that it does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        kept = {1: os.dup(1), 2: os.dup(2)}
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])  # some hold signals back to the end of their process
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = main(words)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for fd, copy in kept.items():
                os.dup2(copy, fd)
                os.close(copy)
        return code, *(file.seek(0) or file.read().decode() for file in (out, err))  # type: ignore[return-value]
