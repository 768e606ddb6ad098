"""`quell serve` starts in order, says where, and stops in reverse; whatever is in its way is said in one sentence."""

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.command import QUELL, quell
from tests.cli.oracle import wait_for
from tests.cli.serving import Served, cpu_seconds, facts, left_in, wakes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_it_says_where_it_serves_and_the_link_opens_the_page_once(folder: Path) -> None:
    with Served(folder) as server:
        assert server.err == ""
        known = facts(folder, "serve.json")
        assert known["pid"] == server.process.pid and known["url"] == f"{server.url}/"
        assert server.token not in (folder / "serve.json").read_text() + server.out
        modes = {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()}
        assert {modes[name] for name in ("serve.json", "serve.log", "token", "api.sock")} == {0o600}

        first, second = (httpx.get(server.link, trust_env=False) for _ in range(2))
        assert first.status_code == 200 and "HttpOnly" in first.headers["set-cookie"]
        assert second.status_code == 403
        assert httpx.get(f"{server.url}/api/v1/health", trust_env=False).status_code == 401
        bearer = {"Authorization": f"Bearer {server.token}"}
        health = httpx.get(f"{server.url}/api/v1/health", headers=bearer, trust_env=False)
        assert health.json()["status"] == "ok" and health.json()["pid"] == server.process.pid
        stop(server)
        code = server.link.rpartition("=")[2]
        assert code not in server.log.read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_it_with_all_that_it_runs(number: int, folder: Path) -> None:
    with Served(folder) as server:
        pid = server.busy()
        server.signal(number)
        assert server.ends() == 0, server.err
        assert "quell: stopped; confirmed: " in server.err and "nobody is left" in server.err
        assert not Path(f"/proc/{pid}").exists()
        assert left_in(folder) == set()
        end = facts(folder, "stopped.json")
        assert end["confirmed"] and end["reason"] == signal.Signals(number).name


def test_a_second_signal_forces(folder: Path) -> None:
    """H22: and while it takes its time, that is said."""
    with Served(folder) as server:
        pid = server.busy("sh -c 'trap \"\" TERM; while :; do sleep 1; done'")
        server.signal(signal.SIGINT)
        wait_for(lambda: "once more forces" in server.err, "it says that it takes its time")
        assert server.process.poll() is None
        asked = time.monotonic()
        server.signal(signal.SIGINT)
        assert server.ends() == 0, server.err
        assert time.monotonic() - asked < 2.5
        assert not Path(f"/proc/{pid}").exists()
        assert left_in(folder) == set()


@pytest.mark.parametrize("delay", [0.0, 0.15, 0.3, 0.45])
def test_a_signal_while_it_starts_leaves_nothing(delay: float, folder: Path) -> None:
    """H22."""
    interrupted_at(delay, folder)


@pytest.mark.soak
@pytest.mark.parametrize("moment", range(100))
def test_a_signal_at_any_moment_of_the_start_leaves_nothing(moment: int, folder: Path) -> None:
    """H22."""
    interrupted_at(moment * 0.008, folder, twice=moment % 2 == 1)


def interrupted_at(delay: float, folder: Path, *, twice: bool = False) -> None:
    server = Served(folder).start()
    try:
        wait_for(lambda: holds_signals(server), "quell runs")
        time.sleep(delay)  # the moment is what is tested
        server.signal(signal.SIGINT)
        if twice:
            time.sleep(0.06)
            server.signal(signal.SIGINT)
        code = server.ends()
    finally:
        server._end()
    assert code in (0, 130), server.err
    assert "Traceback" not in server.err
    assert left_in(folder) == set()
    locks = Path("/proc/locks").read_text()
    assert f" {server.process.pid} " not in locks


def holds_signals(server: Served) -> bool:
    """What Python does before quell's first line is not quell's."""
    status = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    [held] = [int(line.split()[1], 16) for line in status if line.startswith("SigBlk")]
    return bool(held & 1 << signal.SIGINT - 1)


def test_after_kill_9_nothing_runs_and_the_next_one_serves_again(folder: Path) -> None:
    """H23: the socket, the lock and serve.json that were left are in nobody's way."""
    with Served(folder) as server:
        pid = server.busy()
        server.process.kill()
        server.ends()
        wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the command is gone", 1.0)
        assert {"api.sock", "serve.json"} <= left_in(folder)
    with Served(folder) as server:
        [card] = server.client.get("sessions")["sessions"]
        assert card["end"] == "interrupted"
        assert facts(folder, "serve.json")["pid"] == server.process.pid
        stop(server)
    assert left_in(folder) == set()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = quell("serve", "--port", str(port), "--no-browser", "--state", tmp_path / "state")
    assert ended.returncode == 125
    assert ended.stderr.decode().startswith(f"quell: port {port} is taken by another program; --port 0")
    assert len(ended.stderr.splitlines()) == 1
    assert left_in(tmp_path / "state") == set()


def test_a_second_server_on_the_same_state_is_refused_and_told_where_the_first_is(folder: Path) -> None:
    with Served(folder) as server:
        before = server.log.read_text()
        for port in (server.port, 0):
            ended = quell("serve", "--port", str(port), "--no-browser", "--state", folder)
            assert ended.returncode == 125
            said = ended.stderr.decode()
            assert f"is served already at {server.url}/ by process {server.process.pid}" in said
            assert "quell open" in said and len(said.splitlines()) == 1
        assert server.client.get("health")["status"] == "ok"
        assert server.log.read_text() == before
        stop(server)


def test_several_serve_at_once_on_directories_of_their_own_however_deep(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6, "two")
    with Served(tmp_path / "one") as one, Served(deep) as two:
        assert one.port != two.port and one.token != two.token
        session = one.session(title="of the first")
        assert [card["id"] for card in one.client.get("sessions")["sessions"]] == [session]
        assert two.client.get("sessions")["sessions"] == []
        bearer = {"Authorization": f"Bearer {one.token}"}
        assert httpx.get(f"{two.url}/api/v1/health", headers=bearer, trust_env=False).status_code == 401
        for server in (one, two):
            server.signal(signal.SIGTERM)
        assert [server.ends() for server in (one, two)] == [0, 0]


def test_another_address_is_served_with_a_warning_and_is_in_the_list_of_hosts(folder: Path) -> None:
    with Served(folder, "--dangerously-listen", "127.0.0.2") as server:
        assert server.url.startswith("http://127.0.0.2:")
        assert server.err.startswith("quell: careful: 127.0.0.2 is open to its network")
        bearer = {"Authorization": f"Bearer {server.token}"}
        assert httpx.get(f"{server.url}/api/v1/health", headers=bearer, trust_env=False).status_code == 200
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        stop(server)
    ended = quell("serve", "--port", "0", "--dangerously-listen", "192.0.2.7", "--state", folder)
    assert ended.returncode == 125 and b"cannot listen on 192.0.2.7" in ended.stderr


def test_a_rung_may_be_named_and_is_what_commands_run_on(folder: Path) -> None:
    with Served(folder, "--contain", "subreaper") as server:
        assert server.client.get("health")["rung"] == "subreaper"
        stop(server)
    ended = quell("serve", "--port", "0", "--contain", "jail", "--state", folder)
    assert ended.returncode == 125 and b"jail" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_a_file_of_settings_and_agents_is_read(folder: Path, tmp_path: Path) -> None:
    """H53: --config."""
    file = tmp_path / "config.toml"
    file.write_text("""[settings]
term = 1.5
[agents.helper]
tools = ["shell"]
env = { HELPER_TOKEN = "canary-0123456789" }
""")
    with Served(folder, "--config", str(file)) as server:
        assert "chmod 600" in server.err
        said = server.client.get("config")
        assert said["settings"]["term"] == 1.5 and said["file"] == str(file)
        assert "helper" in {one["name"] for one in server.client.get("agents")["agents"]}
        assert "canary" not in str(said)
        stop(server)
    file.write_text("[settings]\nturm = 1\n")
    ended = quell("serve", "--port", "0", "--config", file, "--state", folder)
    assert ended.returncode == 125 and b"did you mean term?" in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_who_answers_where_none_is_named_is_as_configured(folder: Path, tmp_path: Path) -> None:
    """As with `quell run`: defaults.agent and defaults.model, for the API, the page and `quell send --new`."""
    file = tmp_path / "config.toml"
    file.write_text('[defaults]\nagent = "helper"\n[agents.helper]\nsystem = "help"\n')
    with Served(folder, "--config", str(file)) as server:
        assert server.client.get("agents")["default"] == "helper"
        assert server.client.post("sessions", body={"text": "hello"})["agent"] == "helper"
        assert server.client.post("sessions", body={"agent": ""})["agent"] == "helper"
        assert server.client.post("sessions", body={"agent": "scripted"})["agent"] == "scripted"
        sent = quell("send", "--new", "--title", "sent", "--state", folder, "hello")
        assert sent.returncode == 0 and b"You said: hello" in sent.stdout, sent
        assert server.client.get("sessions", "sent")["agent"] == "helper"
        stop(server)
    file.write_text('[defaults]\nmodel = "openai:gpt-5"\n')
    with Served(folder, "--config", str(file)) as server:
        known = server.client.get("agents")
        assert known["default"] == "assistant"
        assert {one["name"]: one["model"] for one in known["agents"]}["assistant"] == "openai:gpt-5"
        assert server.client.post("sessions", body={})["agent"] == "assistant"
        stop(server)
    file.write_text('[defaults]\nagent = "nobody"\n')
    with Served(folder, "--config", str(file)) as server:
        assert server.client.get("agents")["default"] == ""
        refused = quell("send", "--new", "--state", folder, "hello")
        assert refused.returncode == 125 and b"there is no agent 'nobody'" in refused.stderr, refused
        stop(server)


def test_no_secret_reaches_the_log_the_receipt_or_an_event(folder: Path) -> None:
    """The token is one: also when a tool reads the file that it is in."""
    with Served(folder, env={"CANARY_TOKEN": "canary-0123456789"}) as server:
        session = server.session(f"$ cat {folder}/token; echo canary-0123456789; sleep 600")
        wait_for(lambda: "***" in str(server.client.get("sessions", session, "events")), "it has said it")
        text = str(server.client.get("sessions", session, "events"))
        token = server.token
        assert "canary-0123456789" not in text and token not in text
        stop(server)
        for name in ("serve.log", "stopped.json", "log.sqlite"):
            found = (folder / name).read_bytes()
            assert b"canary-0123456789" not in found and token.encode() not in found, name


def stop(server: Served) -> None:
    server.signal(signal.SIGTERM)
    assert server.ends() == 0, server.err


def test_it_is_ready_soon_and_small_and_does_nothing_while_nothing_happens(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No ticking: also with a stream and a rested connection open."""
    began = time.monotonic()
    with Served(folder) as server:
        ready = time.monotonic() - began
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.process.pid}/status").read_text())
        size = int(found[1]) // 1024 if found else 0
        with capsys.disabled():
            print(f"\n  quell serve: ready in {ready:.2f} s, {size} MB")
        assert ready < 5 and 0 < size < 100
        bearer = {"Authorization": f"Bearer {server.token}"}
        with httpx.Client(base_url=server.url, headers=bearer, trust_env=False) as client:
            client.get("/api/v1/health")
            with client.stream("GET", "/api/v1/events?board=1") as stream:
                assert stream.status_code == 200
                wait_for(lambda: rests(server.process.pid), "the start is over")
                before = cpu_seconds(server.process.pid), wakes(server.process.pid)
                time.sleep(2)  # what is measured
                after = cpu_seconds(server.process.pid), wakes(server.process.pid)
                assert after[0] - before[0] < 0.02 and after[1] - before[1] < 6
        stop(server)


def rests(pid: int) -> bool:
    before = cpu_seconds(pid)
    time.sleep(0.2)
    return cpu_seconds(pid) == before


def test_streams_say_goodbye_and_end_within_a_second(folder: Path) -> None:
    with Served(folder) as server:
        bearer = {"Authorization": f"Bearer {server.token}"}
        server.busy("sh -c 'trap \"\" TERM; sleep 600'")  # so that the stop takes its time
        with httpx.stream("GET", f"{server.url}/api/v1/events?board=1", headers=bearer, trust_env=False) as stream:
            lines = stream.iter_lines()
            assert next(lines)
            asked = time.monotonic()
            server.signal(signal.SIGTERM)
            rest = list(lines)
            assert time.monotonic() - asked < 1
            assert "event: bye" in rest
        assert server.process.poll() is None
        server.signal(signal.SIGINT)
        assert server.ends() == 0


def test_a_client_that_does_not_read_holds_up_no_end(folder: Path) -> None:
    """H39."""
    with Served(folder) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as mute:
            mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            head = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}"
            mute.sendall(f"GET /api/v1/events HTTP/1.1\r\n{head}\r\n\r\n".encode())
            session = server.session("$ yes | head -c 2000000")
            wait_for(lambda: server.client.get("sessions", session)["end"], "the turn is over")
            asked = time.monotonic()
            server.signal(signal.SIGTERM)
            assert server.ends() == 0
            assert time.monotonic() - asked < 3


def test_the_browser_is_opened_where_there_is_one_and_somebody_to_see_it(folder: Path, tmp_path: Path) -> None:
    """H53: and not with --no-browser. It is none of ours: the server's end is not its own."""
    seen, browser = tmp_path / "seen", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1 of $PPID" >>{seen}\n')
    browser.chmod(0o755)
    env = {**os.environ, "BROWSER": f"{browser} %s", "TERM": "dumb"}

    def opened() -> list[str]:
        return seen.read_text().splitlines() if seen.exists() else []

    def on_a_terminal(words: str) -> list[str]:
        return ["script", "-qec", f"{QUELL} {words} --state {folder}", "/dev/null"]

    serving = on_a_terminal("serve --port 0")
    with subprocess.Popen(serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as terminal:
        try:
            wait_for(lambda: len(opened()) == 1, "the browser is opened")
            for words in ("open --no-browser", "open"):
                subprocess.run(on_a_terminal(words), stdin=subprocess.DEVNULL, capture_output=True, env=env, check=True)
            wait_for(lambda: len(opened()) == 2, "it is opened again, once")
        finally:
            ended = quell("down", "--state", folder)
        assert ended.returncode == 0, ended.stderr
        terminal.communicate()
    assert all("/launch?code=" in line for line in opened())
    with Served(folder, env=env) as server:  # with --no-browser, and on no terminal
        stop(server)
    assert len(opened()) == 2


def test_down_says_what_ends_a_server_that_is_frozen(folder: Path) -> None:
    """It hears nothing at all: whoever waits for it is told what ends it, and it is answered when it goes on."""
    with Served(folder) as server:
        server.signal(signal.SIGSTOP)
        asks = subprocess.Popen(
            [QUELL, "down", "--force", "--state", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert asks.stderr is not None
        said = asks.stderr.readline()
        assert f"kill -9 {server.process.pid}" in said
        server.signal(signal.SIGCONT)
        out, _ = asks.communicate(timeout=20)
        assert asks.returncode == 0 and "is down" in out
        assert server.ends() == 0
