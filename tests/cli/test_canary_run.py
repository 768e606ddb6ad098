"""A canary in the environment, in the file of settings, in the address and the key of a model: it is found nowhere.

The server of the models is told what it must be told, and repeats it in every answer and every error.
"""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from quell.testing import Calls, Fails, ModelRequest, ModelServer, Reply, Says
from tests.cli.command import BOUND, QUELL, Running, quell
from tests.cli.oracle import argv, below, comm
from tests.cli.stand_in import heard

CONFIG = """
[settings]
term = 0.3

[agents.keeper]
approval = {{ "*" = "allow" }}
memory = "sqlite"
tools = ["shell", "read", "grep", "remember", "recall", "write"]
env = {{ GITHUB_TOKEN = "{file}" }}

[agents.careful]
tools = ["shell", "write"]

[models.chat]
base_url = "http://{address}/v1?api-token={query}"
key_env = "MINE"

[models.messages]
kind = "anthropic"
base_url = "http://{address}?api-token={query}"
key_env = "MINE"

[models.gone]
base_url = "http://127.0.0.1:1/v1?api-token={query}"
key_env = "MINE"
"""
NEAR, FAR = "the-text-before", "the-text-after"
RUNS = {
    "telling": ("openai", "--agent", "keeper", "--json"),
    "asking": ("openai", "--agent", "careful", "--yes"),
    "refused": ("messages",),
    "broken": ("chat",),
    "alone": ("gone", "--json"),
}


class Canaries(dict[str, str]):
    """By where each is; not even a half of one may be seen."""

    def __init__(self) -> None:
        names = ("env", "file", "key", "password", "query")
        super().__init__({name: f"canary{secrets.token_hex(14)}" for name in names})

    def absent(self, where: str, told: bytes) -> None:
        halves = {name: (value[:17], value[17:]) for name, value in self.items()}
        found = [name for name, both in halves.items() if any(one.encode() in told for one in both)]
        assert not found, f"{where} tells of the canary in {found}: {told.decode(errors='replace')[-3000:]}"


class Place:
    """A home of its own, and what the server of the models says there."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.server, self.canaries, self.broken = server, Canaries(), 0
        self.state, self.cwd, self.config = folder / "state", folder / "cwd", folder / "config/quell/config.toml"
        self.config.parent.mkdir(parents=True)
        address = server.root.removeprefix("http://")
        self.config.write_text(CONFIG.format(**self.canaries, address=address))
        self.config.chmod(0o600)
        self.cwd.mkdir()
        (self.cwd / "file").write_text(f"{NEAR} {self.canaries['env']} {FAR} {self.canaries['key']}\n")
        self.environ = {
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "QUELL_STATE_DIR": str(self.state),
            "FOO_API_KEY": self.canaries["env"],
            "MINE": self.canaries["key"],
            "OPENAI_BASE_URL": f"http://me:{self.canaries['password']}@{address}/v1?key={self.canaries['query']}",
            "OPENAI_LOG": "debug",
            "ANTHROPIC_LOG": "debug",
        }

    def run(self, words: Sequence[str]) -> Running:
        model, *flags = words
        loud = {"PYTHONASYNCIODEBUG": "1", "PYTHONWARNINGS": "always"} if model == "openai" else {}
        running = Running(
            [str(QUELL), "run", "-", "--model", f"{model}:it", "--cwd", str(self.cwd), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **self.environ, **loud},
        )
        assert running.stdin is not None
        running.stdin.write(f"{NEAR} {self.canaries['env']} {FAR}".encode())
        running.stdin.close()
        running.stdin = None
        return running

    def reply(self, request: ModelRequest) -> Reply:
        """Whatever was sent comes back."""
        sent = json.dumps([request.headers, *self.canaries.values()])
        key, body = request.headers.get("authorization", ""), json.dumps(request.body)
        if request.path == "/v1/messages":
            return Fails(401, message=sent)
        if key.startswith("Bearer"):
            self.broken += 1
            return Says(f"So {sent}") + Fails(500, message=sent) if self.broken == 1 else Fails(403, message=sent)
        if "You sent" in body or '"role": "tool"' in body:
            return Says(f"You sent {sent}")
        command = f"echo {NEAR} $GITHUB_TOKEN {FAR} {self.canaries['env']}; printenv; ls {self.canaries['query']}"
        return Says(f"You sent {sent}") + Calls(
            ("shell", {"command": command}),
            ("read", {"path": "file"}),
            ("grep", {"pattern": self.canaries["env"]}),
            ("write", {"path": "new", "text": "x", self.canaries["key"]: sent}),
            ("remember", {"text": f"{NEAR} {sent} {FAR}"}),
            (self.canaries["file"], {"key": sent}),
        )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ModelServer() as server:
        found = Place(tmp_path / "home", server)
        server.otherwise(found.reply)
        for name, value in found.environ.items():
            monkeypatch.setenv(name, value)
        yield found


def test_no_secret_is_found_anywhere_after_runs_with_models_over_http(place: Place) -> None:
    """Also with all switched on that Python and the SDKs have for finding faults."""
    with ExitStack() as stack:
        runs = {name: stack.enter_context(place.run(words)) for name, words in RUNS.items()}
        place.server.wait_request(bound=BOUND)
        look_at_processes(place, [one.pid for one in runs.values()])
        said = {name: tell(place, name, one) for name, one in runs.items()}
    sent = str([one.headers for one in place.server.requests])
    assert place.canaries["key"] in sent and "Basic " in sent, "the server was told"
    assert f"{NEAR} *** {FAR} ***" in said["telling"], "what stands beside it is as it was"
    assert "Bearer ***" in said["broken"] and "trying again" in said["broken"], "a server's own words are shown"
    assert "does not accept the key in MINE" in said["refused"] and "nobody listens" in said["alone"]
    look_at_commands(place)
    look_at_files(place)


def tell(place: Place, name: str, running: Running) -> str:
    out, err = running.communicate(timeout=BOUND)
    place.canaries.absent(f"the run {name}", out + err)
    assert b"Traceback" not in err, err
    return (out + err).decode()


def look_at_processes(place: Place, pids: list[int]) -> None:
    """Those of ours: everybody may read their command lines."""
    for pid in [one for each in pids for one in (each, *below(each))]:
        if comm(pid).startswith("quell") or pid in pids:
            place.canaries.absent(f"the argv of {comm(pid)}", "\0".join(argv(pid)).encode())


def look_at_commands(place: Place) -> None:
    def say(*words: str) -> str:
        if words[0] in ("doctor", "run"):  # these do something to their process
            done = quell(*words)
            out, err = done.stdout.decode(), done.stderr.decode()
        else:
            _, out, err = heard(*words)
        place.canaries.absent(f"quell {words}", (out + err).encode())
        return out

    sessions = json.loads(say("session", "list", "--json"))["sessions"]
    assert len(sessions) == len(RUNS)
    for one in sessions:
        for form in (["show"], ["show", "--json"], ["export", "--form", "jsonl"], ["export", "--form", "markdown"]):
            assert f"{NEAR} *** {FAR}" in say("session", form[0], one["id"], *form[1:]), form
    for words in (["session", "list"], ["config", "check"], ["agent", "list"], ["doctor"]):
        say(*words)
    for words in (["config", "show"], ["config", "show", "--json"], ["agent", "show", "keeper"]):
        assert "***" in say(*words), words
    assert "api-token=***" in say("config", "show", "--json"), "the rest of an address can be read"
    for words in (["session", "show", place.canaries["env"]], ["run", "--model", f"{place.canaries['env']}:x", "go"]):
        say(*words)


def look_at_files(place: Place) -> None:
    """All that is kept. What a person or an agent wrote themselves is theirs."""
    names = set()
    for path in place.state.rglob("*"):
        if path.is_file():
            names.add(path.name)
            place.canaries.absent(str(path), path.read_bytes())
    assert {"log.sqlite", "memory.sqlite"} <= names


def test_a_password_in_the_file_is_refused_and_not_repeated(place: Place) -> None:
    secret = place.canaries["password"]
    for url in (f"http://me:{secret}@example.org/v1", f"http://me:{secret}@[half", f"ftp://x/{secret}"):
        place.config.write_text(f'[models.mine]\nbase_url = "{url}"\n')
        code, out, err = heard("config", "check")
        assert code and "base_url" in err and secret not in out + err
