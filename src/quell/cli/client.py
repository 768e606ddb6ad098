"""What the commands ask a server: HTTP over the Unix socket in its state directory, with the standard library alone.

Whoever is not there, or does not answer in time, is told in one sentence; nothing waits without a bound but a stop.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import time
from typing import Any
from urllib.parse import quote, urlencode

from ..errors import QuellError
from ..supervise.ledger import state_dir
from ..surfaces.http.sockets import connect_unix

PREFIX = "/api/v1"
HOME = "runtime"  # below the usual place, as quell.Runtime has it
ANSWER = 5.0  # seconds for an answer that needs nothing but the server's own memory
ORDER = 20.0  # seconds for what the kernel must do; the server gives up by itself before that
_AGAIN = 0.02  # seconds between two tries at a socket whose queue is full
_JSON = "application/json"


class NoServerError(QuellError):
    """Nobody listens in that state directory."""


class MuteServerError(QuellError):
    """Somebody listens, and does not answer in time."""


class RefusedError(QuellError):
    """The server said no; `code` is its word for why."""

    def __init__(self, sentence: str, code: str, status: int) -> None:
        super().__init__(sentence)
        self.code = code
        self.status = status


def usual_place() -> str:
    return os.path.join(state_dir(), HOME)


class Client:
    """`state` is the state directory of the server; without one, the usual place of this user."""

    def __init__(self, state: str | None = None) -> None:
        self.folder = os.path.abspath(state or usual_place())

    def get(self, *steps: str | int, within: float = ANSWER, **query: object) -> Any:
        return self.begin("GET", path(*steps, **query), limit=within).answer(within)

    def post(self, *steps: str | int, body: dict[str, Any] | None = None, limit: float = ORDER) -> Any:
        return self.begin("POST", path(*steps), body or {}).answer(limit)

    def card(self, word: str, within: float = ANSWER) -> Any:
        """A session, by its id, the beginning of it, or its title."""
        return self.get("sessions", self.step(word, within), within=within)

    def step(self, word: str, within: float = ANSWER) -> str:
        """What stands for a session in a path: a title with a slash would be two steps, and its id does."""
        if "/" not in word:
            return word
        found = [one["id"] for one in self.get("sessions", within=within)["sessions"] if one["title"] == word]
        if len(found) != 1:
            what = f"may be {' or '.join(found)}: name one by its id" if found else "is no session"
            raise RefusedError(f"{word!r} {what}", "no_session", 404)
        return str(found[0])

    def begin(self, method: str, target: str, body: dict[str, Any] | None = None, limit: float = ANSWER) -> Call:
        """Send a request; its answer is waited for by whoever wants it. So several can be under way at once."""
        return Call(self, method, target, body, limit)

    def reach(self, limit: float) -> socket.socket:
        """A connection to the server."""
        deadline = time.monotonic() + limit
        while True:
            try:
                return connect_unix(self.folder, limit)
            except BlockingIOError:  # as many wait to be let in as the kernel keeps
                if time.monotonic() > deadline:
                    raise self.mute(limit) from None
                time.sleep(_AGAIN)
            except TimeoutError:
                raise self.mute(limit) from None
            except PermissionError:
                raise NoServerError(f"the server on {self.folder} belongs to another user") from None
            except OSError:
                raise self.absent() from None

    def absent(self) -> NoServerError:
        return NoServerError(f"no server runs on {self.folder}: start one with quell serve")

    def lost(self) -> NoServerError:
        return NoServerError(f"the server on {self.folder} ended before it answered")

    def mute(self, limit: float) -> MuteServerError:
        return MuteServerError(f"the server on {self.folder} did not answer within {limit:g} s")


class Call(http.client.HTTPConnection):
    """One request, on a connection of its own."""

    def __init__(self, client: Client, method: str, target: str, body: dict[str, Any] | None, limit: float) -> None:
        super().__init__("localhost", timeout=limit)
        self._client = client
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": _JSON, "Connection": "close", **({} if data is None else {"Content-Type": _JSON})}
        self.sock = client.reach(limit)
        try:
            self.request(method, target, data, headers)
        except TimeoutError:
            self.close()
            raise client.mute(limit) from None
        except OSError:
            self.close()
            raise client.lost() from None

    def fileno(self) -> int:
        return self.sock.fileno()

    def answer(self, limit: float) -> Any:
        """The answer, as JSON or text. RefusedError has the server's own sentence."""
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        try:
            if not poller.poll(limit * 1000):
                raise self._client.mute(limit)
            response = self.getresponse()
            body = response.read()
        except TimeoutError:
            raise self._client.mute(limit) from None
        except (OSError, http.client.HTTPException):
            raise self._client.lost() from None
        finally:
            self.close()
        return understood(response.status, response.getheader("Content-Type") or "", body)


def understood(status: int, kind: str, body: bytes) -> Any:
    """What an answer says."""
    try:
        value = json.loads(body) if kind.startswith(_JSON) else body.decode(errors="replace")
    except ValueError:
        value = ""
    if 200 <= status < 300:
        return value
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        raise RefusedError(value["message"], str(value.get("code") or ""), status)
    raise RefusedError(f"the server answered {status}", "", status)


def path(*steps: str | int, **query: object) -> str:
    """A path of the API; each step is quoted, and what is None is left out of the query."""
    asked = urlencode({name: value for name, value in query.items() if value is not None}, doseq=True)
    return "/".join([PREFIX, *(quote(str(step), safe="") for step in steps)]) + (f"?{asked}" if asked else "")
