"""`quell serve --detach` outlives its terminal, `quell down` ends it and says so, `quell open` gives a new link."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from quell.cli.client import Client
from tests.cli.command import BOUND, QUELL, quell
from tests.cli.oracle import wait_for
from tests.cli.serving import LINK, Served, facts, left_in


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Whatever a test does, no server is left."""
    folder = tmp_path / "state"
    yield folder
    try:
        pid = facts(folder, "serve.json")["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: is_over(pid), "the server is gone")
    except (OSError, ValueError):
        return


def detach(folder: Path, *more: str) -> "subprocess.CompletedProcess[bytes]":
    return quell("serve", "--detach", "--port", "0", "--state", folder, *more)


def test_detached_it_serves_on_alone_until_down(folder: Path) -> None:
    ended = detach(folder)
    assert ended.returncode == 0 and ended.stderr == b""
    assert b"Quell serves at http://127.0.0.1:" in ended.stdout and LINK.search(ended.stdout.decode())
    pid = facts(folder, "serve.json")["pid"]
    assert os.getsid(pid) == pid
    assert [os.readlink(f"/proc/{pid}/fd/{stream}") for stream in (0, 1)] == ["/dev/null"] * 2
    assert os.readlink(f"/proc/{pid}/fd/2") == str(folder / "serve.log")
    client = Client(str(folder))
    client.post("sessions", body={"text": "$ sleep 600"})
    wait_for(lambda: client.get("processes")["processes"], "the command runs")

    ended = quell("down", "--state", folder, "--json")
    said = json.loads(ended.stdout)
    assert ended.returncode == 0 and said["confirmed"] and said["pid"] == pid and said["reason"] == "down"
    assert [one["argv"][0] for one in said["receipt"]["processes"]]
    assert is_over(pid)
    assert left_in(folder) == set()


def is_over(pid: int) -> bool:
    """It is nobody's child of ours: whoever has it now may take a moment to reap it."""
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "State:\tZ" in status.read_text()


def test_a_refusal_is_shown_and_its_code_kept(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = quell("serve", "--detach", "--port", str(port), "--state", folder)
    assert ended.returncode == 125 and ended.stdout == b""
    assert ended.stderr.decode().startswith(f"quell: port {port} is taken")


def test_a_signal_before_it_serves_ends_both(folder: Path) -> None:
    """H22: it cannot be left behind by a Ctrl+C."""
    argv = [str(QUELL), "serve", "--detach", "--port", "0", "--state", str(folder)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        child = wait_for(lambda: children.read_text().strip(), "it has parted")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=BOUND)
    if process.returncode:  # else it served already
        assert process.returncode == 130, err
        assert is_over(int(child))
        assert out == b"" and left_in(folder) == set()
    else:
        assert quell("down", "--state", folder).returncode == 0


def test_down_says_what_the_end_saw(folder: Path) -> None:
    with Served(folder) as server:
        server.busy()
        ended = quell("down", "--state", folder)
        assert ended.returncode == 0
        assert ended.stdout.decode() == f"quell (process {server.process.pid}) is down: confirmed: nobody is left\n"
        assert server.ends() == 0


def test_down_waits_and_force_cuts_it_short(folder: Path) -> None:
    """H53: --force."""
    with Served(folder) as server:
        server.busy("sh -c 'trap \"\" TERM; while :; do sleep 1; done'")
        with subprocess.Popen([QUELL, "down", "--state", folder], stderr=subprocess.PIPE) as waiting:
            assert waiting.stderr is not None
            assert b"quell down --force ends it at once" in waiting.stderr.readline()
            assert server.process.poll() is None
            asked = time.monotonic()
            assert quell("down", "--force", "--state", folder).returncode == 0
            assert time.monotonic() - asked < 3
            assert waiting.wait(BOUND) == 0
        assert server.ends() == 0


def test_down_without_a_server_says_so(folder: Path) -> None:
    folder.mkdir()
    ended = quell("down", "--state", folder)
    assert ended.returncode == 125 and f"no server runs on {folder}".encode() in ended.stderr


def test_down_of_one_that_was_killed_meanwhile_claims_nothing(folder: Path) -> None:
    """H17: it is gone, but nobody saw what became of what it ran."""
    with Served(folder) as server:
        server.busy("sh -c 'trap \"\" TERM; while :; do sleep 1; done'")
        with subprocess.Popen([QUELL, "down", "--state", folder], stderr=subprocess.PIPE) as waiting:
            wait_for(lambda: not (folder / "serve.json").exists(), "it is stopping")
            server.process.kill()
            _, err = waiting.communicate(timeout=BOUND)
        assert waiting.returncode == 1 and b"left no receipt" in err


BLOCKED = """
import asyncio, sys, time
from quell.cli import script
from quell.kernel import runtime
plain = runtime.Runtime.serve
async def serve(self):
    await plain(self)
    asyncio.get_running_loop().call_later(0.5, time.sleep, {seconds})
runtime.Runtime.serve = serve
script()
"""


def test_down_stops_everything_while_the_loop_is_blocked(folder: Path) -> None:
    """H25: the trees end before whatever blocks does, and so do the streams."""
    with Served(folder, script=BLOCKED.format(seconds=6)) as server:
        server.configure(ask=0.1)
        pid = server.busy()
        wait_for(lambda: server.client.get("health")["status"] == "blocked", "the loop is blocked")
        with (
            socket.create_connection(("127.0.0.1", server.port), BOUND) as stream,
            subprocess.Popen([QUELL, "down", "--state", folder]) as waiting,
        ):
            head = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
            stream.sendall(f"GET /api/v1/events HTTP/1.1\r\n{head}\r\n".encode())
            wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the command is gone", 2.0)
            while stream.recv(1 << 16):
                pass
            assert waiting.poll() is None and server.process.poll() is None
            assert waiting.wait(BOUND) == server.ends()
        assert left_in(folder) == set()


@pytest.mark.soak
def test_a_second_signal_ends_it_though_the_loop_is_blocked_for_good(folder: Path) -> None:
    """H22, H25: the first ends what runs, the second quell too."""
    with Served(folder, script=BLOCKED.format(seconds=300)) as server:
        server.configure(ask=0.1)
        pid = server.busy()
        wait_for(lambda: server.client.get("health")["status"] == "blocked", "the loop is blocked")
        server.signal(signal.SIGINT)
        wait_for(lambda: "once more ends quell too" in server.err, "it says what is in its way")
        assert not Path(f"/proc/{pid}").exists()
        server.signal(signal.SIGINT)
        assert server.ends(5) == 1


def test_open_gives_a_new_link_each_time(folder: Path) -> None:
    with Served(folder) as server:
        links = [quell("open", "--state", folder).stdout.decode().strip() for _ in range(2)]
        links.append(json.loads(quell("open", "--json", "--state", folder).stdout)["url"])
        assert len({*links, server.link}) == 4
        for link in links:
            assert link.startswith(f"{server.url}/launch?code=")
            assert httpx.get(link, trust_env=False).status_code == 200
        assert quell("down", "--state", folder).returncode == 0
    ended = quell("open", "--state", folder)
    assert ended.returncode == 125 and b"no server runs on" in ended.stderr
