"""A canary secret in the environment, in the file of settings and in what tools say is found nowhere afterwards.

Nor are the server's own: its token, the cookie that stands for it, and the codes that buy the cookie.
"""

import http.client
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin

from quell.configfile import load
from quell.errors import UsageError
from quell.surfaces.http.keys import Keys
from tests.cli.command import BOUND, quell
from tests.cli.oracle import argv, below, comm, wait_for
from tests.cli.serving import Served

CONFIG = """
[agents.keeper]
approval = {{ "*" = "allow" }}
env = {{ GITHUB_TOKEN = "{}" }}

[agents.careful]
approval = {{ "*" = "ask" }}
"""
NEAR, FAR = "the-text-before", "the-text-after"
COMMAND = f"$ sh -c 'sleep 600; true' $GITHUB_TOKEN {NEAR}"
WEB = Path(__file__).resolve().parents[2] / "src/quell/surfaces/web"


class Canaries:
    """What may be seen nowhere; of the ones that are made here, not even a half."""

    def __init__(self) -> None:
        self.env, self.file = (f"canary{secrets.token_hex(14)}" for _ in range(2))
        self.known = {"environment": self.env, "file": self.file}
        for name in list(self.known):
            whole = self.known[name]
            self.known |= {f"{name}, first half": whole[:17], f"{name}, second half": whole[17:]}

    def add(self, name: str, value: str) -> None:
        assert len(value) >= 16
        self.known[name] = value

    def absent(self, where: str, told: bytes) -> None:
        found = [name for name, value in self.known.items() if value.encode() in told]
        assert not found, f"{found} in {where}: {told[:2000]!r}"


class Web:
    """Asks over TCP, as a browser or a program does, and looks for canaries in all that comes back."""

    def __init__(self, server: Served, canaries: Canaries) -> None:
        self._server = server
        self._canaries = canaries
        self.texts: dict[str, str] = {}

    def ask(self, method: str, target: str, body: bytes | None = None) -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=BOUND)) as connection:
            headers = {"Authorization": f"Bearer {self._server.token}", "Content-Type": "application/json"}
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            told = answer.read()
        self._canaries.absent(f"the answer to {method} {target}", str(answer.getheaders()).encode() + told)
        if answer.status < 300:
            self.texts[target] = told.decode()
        return answer.status

    def misspeak(self, words: str) -> None:
        """A first message on a WebSocket that is not understood: why it was closed."""
        origin, bearer = Origin(self._server.url), {"Authorization": f"Bearer {self._server.token}"}
        address = f"ws://127.0.0.1:{self._server.port}/api/v1/ws"
        with connect(address, origin=origin, additional_headers=bearer, proxy=None) as talker:
            talker.send(words)
            with pytest.raises(ConnectionClosed) as closed:
                talker.recv(BOUND)
        self._canaries.absent("the end of a WebSocket", str(closed.value).encode())

    def stream(self, query: str, upto: int) -> None:
        """The bytes of a stream, until that event."""
        with closing(http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=BOUND)) as connection:
            headers = {"Authorization": f"Bearer {self._server.token}"}
            connection.request("GET", f"/api/v1/events?{query}", headers=headers)
            told, seq = b"", -1
            with connection.getresponse() as answer:
                while seq < upto:
                    line = answer.readline()
                    assert line
                    told += line
                    seq = int(line[4:]) if line.startswith(b"id: ") else seq
        self._canaries.absent(f"the stream {query}", told)


def say(server: Served, canaries: Canaries, keys: Keys) -> list[str]:
    """Have every canary said, by people and by tools, whole and in parts."""
    half = "${GITHUB_TOKEN%" + "?" * 17 + "}"
    rest = "${GITHUB_TOKEN#" + "?" * 17 + "}"
    note = server.folder.with_name("note")  # of what is typed a command has only the mask
    note.write_text(f"{NEAR} {canaries.env} {FAR}\n{NEAR} {keys.cookie} {FAR}\n")
    texts = [
        f"$ echo {NEAR} $GITHUB_TOKEN {FAR}",
        f"$ printf '{NEAR} %s' {half}; sleep 0.2; printf '%s {FAR}' {rest}",
        f"$ printf '{NEAR} %s' {half} >&2; sleep 0.2; printf '%s {FAR}' {rest} >&2; exit 3",
        f"$ echo {NEAR} {canaries.env} {FAR}",
        f"$ cat {note} {server.folder.parent}/stat?/token",  # by its name it would be asked
        f"$ head -c 30 {note}; sleep 0.2; tail -c +31 {note}",
        f"{NEAR} {canaries.env} {FAR}",
    ]
    found = [server.session(text, agent="keeper", title=f"{NEAR} {canaries.file} {FAR}") for text in texts]
    wait_for(lambda: all(one["end"] for one in server.client.get("sessions")["sessions"]), "all have said it", BOUND)
    return found


def gets(server: Served, session: str, number: int) -> Iterator[str]:
    """Every GET of the API, with what it wants filled in."""
    for path, methods in server.client.get("openapi.json")["paths"].items():
        if "get" not in methods or (path.endswith(("/events", "/ws")) and "{" not in path):
            continue
        target = path.replace("{id}", session).replace("{number}", str(number))
        assert "{" not in target
        target = target if target.startswith("/api/v1") else f"/api/v1{target}"
        yield from [f"{target}?form={one}" for one in ("jsonl", "markdown")] if "/export" in target else [target]


def faults(canaries: Canaries, session: str) -> Iterator[tuple[str, str, Any]]:
    """Requests that are refused, with a secret wherever a word is repeated to whoever sent it."""
    secret = canaries.env
    yield "GET", f"/api/v1/sessions/{secret}", None
    yield "GET", f"/api/v1/{secret}", None
    yield "GET", f"/static/{secret}", None
    yield "PUT", f"/api/v1/sessions/{secret}", {}
    yield "GET", f"/api/v1/receipts?session={secret}", None
    yield "GET", f"/api/v1/receipts?limit={secret}", None
    yield "GET", f"/api/v1/receipts/{secret}", None
    yield "GET", f"/api/v1/sessions/{session}/export?form={secret}", None
    yield "GET", f"/api/v1/sessions/{session}/events?{secret}=1", None
    yield "GET", f"/api/v1/events?after={secret}", None
    yield "GET", f"/api/v1/events?board={secret}", None
    yield "POST", "/api/v1/sessions", {"agent": secret}
    yield "POST", "/api/v1/sessions", {"cwd": f"/{secret}"}
    yield "POST", "/api/v1/sessions", {secret: 1}
    yield "POST", "/api/v1/sessions", secret
    yield "PATCH", "/api/v1/config", {"settings": {secret: 1}}
    yield "POST", f"/api/v1/sessions/{session}/stop", {"reach": secret}
    yield "POST", f"/api/v1/sessions/{session}/approvals/{secret}", {"allow": True}
    yield "POST", f"/api/v1/sessions/{session}/queue/release", {"messages": [secret]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_no_secret_is_found_anywhere_afterwards(folder: Path, tmp_path: Path) -> None:
    canaries = Canaries()
    config = tmp_path / "config.toml"
    config.write_text(CONFIG.format(canaries.file))
    config.chmod(0o600)
    with Served(folder, "--config", str(config), env={"FOO_API_KEY": canaries.env}) as server:
        keys = Keys(server.token)
        canaries.add("token", keys.token)
        canaries.add("cookie", keys.cookie)
        canaries.add("launch code", server.link.partition("code=")[2])
        web = Web(server, canaries)
        sessions = say(server, canaries, keys)
        number = stop_one(server, canaries, web)
        ask_one(server, canaries)
        restart_one(server, web)
        server.client.post("admission", "close", body={"reason": f"{NEAR} {canaries.env} {FAR}"})
        look_at_answers(server, canaries, web, [*sessions, server.client.get("sessions")["sessions"][-1]["id"]], number)
        assert_the_rest_is_intact(web, sessions)
        look_at_commands(server, canaries, number)
        launch(server, canaries, web)
        for pid in [server.process.pid, *below(server.process.pid)]:
            if comm(pid).startswith("quell") or pid == server.process.pid:
                canaries.absent(f"the argv of {comm(pid)}", "\0".join(argv(pid)).encode())
        look_at_files(folder, canaries)  # while it runs: what is not yet in the log proper
        server.configure(term=0.2)
        ended = quell("down", "--state", folder)
        canaries.absent("what down says", ended.stdout + ended.stderr)
        canaries.absent("what it complains of", server.err.encode())
        canaries.known.pop("launch code")
        canaries.absent("what it says", server.out.encode())
    look_at_files(folder, canaries)
    assert "***" in (folder / "stopped.json").read_text(), "what ran to the end is named"


def test_a_websocket_is_not_told_its_own_words_again(folder: Path) -> None:
    """Why it was closed is read by whoever looks at the connection, and so is no place for a secret either."""
    canaries = Canaries()
    with Served(folder, env={"FOO_API_KEY": canaries.env}) as server:
        web = Web(server, canaries)
        for words in (canaries.env, json.dumps({canaries.env: 1}), json.dumps({"after": canaries.env})):
            web.misspeak(words)
        assert quell("down", "--state", folder).returncode == 0


@pytest.mark.parametrize("text", ["[agents]\nGITHUB_TOKEN = '{}'", "agents = '{}'", "[agents.x]\nlimits = '{}'"])
def test_a_secret_at_the_wrong_place_of_the_file_is_not_repeated(text: str, tmp_path: Path) -> None:
    canaries, config = Canaries(), tmp_path / "config.toml"
    config.write_text(text.format(canaries.file))
    with pytest.raises(UsageError, match="is a table") as refused:
        load(str(config), {})
    canaries.absent("the sentence that refuses the file", str(refused.value).encode())


def stop_one(server: Served, canaries: Canaries, web: Web) -> int:
    """A stop whose receipt names commands with a secret in their argv: its number."""
    session = server.session(f"{COMMAND} & {COMMAND[2:]}", agent="keeper")
    wait_for(lambda: len(members(server, session)) >= 4, "they run")
    assert any(canaries.file in argv(pid) for pid in below(server.process.pid)), "the kernel knows it, and may tell us"
    for target in ("processes", "state", f"sessions/{session}", f"sessions/{session}/processes"):
        assert web.ask("GET", f"/api/v1/{target}") == 200
        assert NEAR in web.texts[f"/api/v1/{target}"]
    halt = json.dumps({"reason": f"{NEAR} {canaries.env}", "force": True}).encode()
    assert web.ask("POST", f"/api/v1/sessions/{session}/stop", halt) == 200
    receipt = web.texts[f"/api/v1/sessions/{session}/stop"]
    assert NEAR in receipt and "***" in receipt, receipt
    return int(wait_for(lambda: server.client.get("sessions", session)["stopped"], "the receipt is in the log"))


def restart_one(server: Served, web: Web) -> None:
    """Commands with a secret in their argv, ended by other ways than a stop; one still runs when the server ends."""
    sessions = [server.session(COMMAND, agent="keeper") for _ in range(3)]
    wait_for(lambda: all(len(members(server, one)) >= 2 for one in sessions), "they run")
    for method, target in (("POST", f"{sessions[0]}/restart"), ("DELETE", sessions[1])):
        body = b"{}" if method == "POST" else None
        assert web.ask(method, f"/api/v1/sessions/{target}", body) == 200
        assert "***" in web.texts[f"/api/v1/sessions/{target}"], "the receipt names it"


def members(server: Served, session: str) -> list[Any]:
    told = server.client.get("sessions", session, "processes", within=BOUND)["processes"]
    return [member for one in told for member in one["members"]]


def ask_one(server: Served, canaries: Canaries) -> None:
    """An approval that waits, with a secret in what it asks for."""
    session = server.session(f"$ echo {NEAR} {canaries.env} {FAR}", agent="careful")
    wait_for(lambda: server.client.get("sessions", session)["approvals"], "it asks")


def look_at_answers(server: Served, canaries: Canaries, web: Web, sessions: list[str], number: int) -> None:
    for session in sessions:
        for target in gets(server, session, number):
            if target in web.texts and session not in target:
                continue  # it is of no session, and was seen
            assert web.ask("GET", target) == 200, target
    for method, target, body in faults(canaries, sessions[0]):
        status = web.ask(method, target, None if body is None else json.dumps(body).encode())
        assert 400 <= status < 500, (method, target, status)
    assert web.ask("POST", "/api/v1/sessions", f'{{"agent": {canaries.env}'.encode()) == 400
    for target in ["/", *(f"/static/{one.name}" for one in WEB.iterdir() if one.is_file() and one.suffix != ".html")]:
        assert web.ask("GET", target) == 200, target
    last = server.client.get("state")["seq"]
    for query in ("after=0", "board=1", f"after=0&board=1&session={sessions[0]}"):
        web.stream(query, 0 if "session" in query else last)


def assert_the_rest_is_intact(web: Web, sessions: list[str]) -> None:
    """What stands beside a secret is as it was."""
    for session in sessions:
        for target in (f"sessions/{session}/history", f"sessions/{session}/export?form=markdown"):
            text = web.texts[f"/api/v1/{target}"]
            assert re.search(rf"{NEAR}\W+\*\*\*\W+{FAR}", text), (target, text)
    titles = [card["title"] for card in json.loads(web.texts["/api/v1/sessions"])["sessions"]]
    assert titles[0] == f"{NEAR} *** {FAR}"


def look_at_commands(server: Served, canaries: Canaries, number: int) -> None:
    for words in (["ps"], ["ps", "--json"], ["logs"], ["logs", "--json"], ["receipts", str(number)], ["receipts"]):
        ended = quell(*words, "--state", server.folder)
        assert ended.returncode == 0 and ended.stdout, (words, ended.stderr)
        canaries.absent(f"quell {words}", ended.stdout + ended.stderr)


def launch(server: Served, canaries: Canaries, web: Web) -> None:
    """A code is in the address that is made for it, and in nothing that stays."""
    url = str(server.client.post("launches")["url"])
    code = url.partition("code=")[2]
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=BOUND)) as connection:
        connection.request("GET", f"/launch?code={code}")
        answer = connection.getresponse()
        told = answer.read()
        assert answer.status == 200 and "HttpOnly" in str(answer.getheader("Set-Cookie"))
    canaries.absent("the page of a launch", told)
    canaries.add("used launch code", code)
    assert web.ask("GET", "/api/v1/state") == 200


def look_at_files(folder: Path, canaries: Canaries) -> None:
    """All but the token itself, which only its owner may read."""
    names = set()
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "token":
            names.add(path.name)
            canaries.absent(str(path.relative_to(folder)), path.read_bytes())
    assert {"serve.log", "log.sqlite"} <= names
