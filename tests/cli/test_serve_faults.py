"""`quell serve` where the machine fails it: one clear sentence, nothing lost, and nothing left by who vanishes."""

import base64
import itertools
import json
import os
import re
import resource
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quell.cli.client import Client
from quell.errors import QuellError
from quell.stores.sqlite import read_rows
from quell.testing import check_log
from tests.cli.command import BOUND, QUELL, quell
from tests.cli.oracle import wait_for
from tests.cli.serving import Served, left_in
from tests.cli.unprivileged import prefix, user


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


def test_a_state_directory_that_cannot_be_written_is_said() -> None:
    """And it is left as it is."""
    with user() as stranger:
        folder = stranger.home / "state"
        folder.mkdir(mode=0o755)
        folder.chmod(0o555)
        ended = stranger.run(QUELL, "serve", "--port", "0", "--no-browser", "--state", folder)
        assert ended.returncode == 125 and ended.stdout == b""
        said = ended.stderr.decode()
        assert said.startswith(f"quell: the state directory {folder}") and len(said.splitlines()) == 1
        assert list(folder.iterdir()) == []


def test_streams_that_are_closed_at_the_start_become_nobody_elses(folder: Path) -> None:
    """Else what it says would be written into whatever file got the number: the log, say."""
    closing = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    server = Served(folder, before=closing).start()
    try:
        wait_for(lambda: (folder / "serve.json").exists() or server.process.poll() is not None, "it serves", BOUND)
        names = {os.readlink(f"/proc/{server.process.pid}/fd/{number}") for number in range(3)}
        assert names == {"/dev/null"}
        server.client.post("down", body={"force": False})
        assert server.ends() == 0
        check_log(folder / "log.sqlite")
    finally:
        server._end()


def on_a_disk_of(size: str, folder: Path) -> list[str]:
    """A command before another: this folder is a small disk of its own."""
    if os.geteuid():
        pytest.skip("a disk of one's own needs root")
    script = f'mkdir -p {folder}; mount -t tmpfs -o size={size} none {folder} && exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def test_a_disk_without_room_is_said_at_the_start(folder: Path) -> None:
    ended = quell("serve", "--port", "0", "--no-browser", "--state", folder / "s", before=on_a_disk_of("16k", folder))
    assert ended.returncode == 125, ended.stderr
    said = ended.stderr.decode()
    assert len(said.splitlines()) == 1 and "Traceback" not in said
    assert "disk" in said or "space" in said or "full" in said, said


def test_when_the_disk_fills_everything_is_stopped_and_that_is_said(folder: Path, tmp_path: Path) -> None:
    """Nothing runs that cannot be recorded, and what was acknowledged is there."""
    inside, copy = folder / "s", tmp_path / "copy"
    keep = f'{{ "$@"; code=$?; rm {folder}/filler; cp -r {inside} {copy}; exit $code; }}'
    before = [word.replace('exec "$@"', keep) for word in on_a_disk_of("1m", folder)]
    hasty = "from quell.stores import disk; disk.RETRY_FOR = 0.5; from quell.cli import script; script()"
    with Served(inside, before=before, script=hasty) as server:
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
        there = Path(f"/proc/{int(children)}/root/{inside}")  # that disk is in a namespace of its own
        client = Client(str(there))
        session = client.post("sessions", body={"text": "$ sleep 600"})["id"]
        [running] = wait_for(lambda: client.get("sessions", session)["processes"], "it runs")
        fill(there.parent / "filler")
        acknowledged = list(send_until_refused(client, session))
        assert server.ends() == 1
        said = server.err
    assert "the log could not be written, so everything was stopped" in said and "Traceback" not in said, said
    assert not Path(f"/proc/{running['pid']}").exists()
    check_log(copy / "log.sqlite", live=True)
    kept = {row.seq for row in read_rows(copy / "log.sqlite") if row.kind == "message.user"}
    assert acknowledged and set(acknowledged) <= kept


def fill(path: Path) -> None:
    """But for some 60 KB."""
    with path.open("wb", buffering=0) as filler:
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
        os.posix_fallocate(filler.fileno(), 0, free - 60_000)


def send_until_refused(client: Client, session: str) -> Iterator[int]:
    try:
        while True:
            yield int(client.post("sessions", session, "messages", body={"text": "x" * 3000})["message"])
    except QuellError:
        return


def test_another_user_is_not_let_in_by_the_socket() -> None:
    """Even where the files would let it: who connects is asked of the kernel."""
    if os.geteuid():
        pytest.skip("being another user needs root")
    with tempfile.TemporaryDirectory(prefix="quell-open-") as place:
        folder = Path(place, "state")
        with Served(folder):
            for one in (folder.parent, folder, folder / "api.sock"):
                one.chmod(0o777)
            script = (
                "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]);"
                "s.sendall(b'GET /api/v1/health HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n');"
                "print(s.recv(100))"
            )
            asked = [sys.executable, "-c", script, str(folder / "api.sock")]
            mine = subprocess.run(asked, capture_output=True, timeout=BOUND, check=True)
            assert b"200 OK" in mine.stdout
            theirs = subprocess.run([*prefix(), *asked], capture_output=True, timeout=BOUND, check=False)
            assert b"HTTP" not in theirs.stdout
            assert b"ConnectionReset" in theirs.stderr or b"BrokenPipe" in theirs.stderr or b"b''" in theirs.stdout
            ended = quell("down", "--state", folder)
            assert ended.returncode == 0, ended.stderr


def test_the_log_is_rotated_and_holds_no_request(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "serve.log").write_bytes(b"x" * 4_999_990 + b"\n")
    with Served(folder) as server:
        assert (folder / "serve.log.1").exists()
        assert (folder / "serve.log").stat().st_mode & 0o777 == 0o600
        server.client.get("sessions")
        assert "/api" not in (folder / "serve.log").read_text()
        assert quell("down", "--state", folder).returncode == 0


# -- who vanishes


class Visitor:
    """Opens connections, says something, and is gone in one way or another."""

    def __init__(self, server: Served) -> None:
        host = f"Host: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
        key = base64.b64encode(bytes(16)).decode()
        upgrade = (
            f"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        )
        self.get = f"GET /api/v1/events?board=1 HTTP/1.1\r\n{host}\r\n".encode()
        origin = f"Origin: http://127.0.0.1:{server.port}\r\n"
        self.shake = f"GET /api/v1/ws HTTP/1.1\r\n{host}{origin}{upgrade}\r\n".encode()
        self._server = server
        self._ways: Iterator[Callable[[socket.socket], None]] = itertools.cycle(
            [self.sse, self.sse_read, self.websocket, self.websocket_read, self.shaken, self.half, self.nothing]
        )
        self._rude = itertools.cycle([False, True, True])

    def come_and_go(self) -> None:
        with socket.create_connection(("127.0.0.1", self._server.port), BOUND) as sock:
            next(self._ways)(sock)
            if next(self._rude):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, no goodbye

    def sse(self, sock: socket.socket) -> None:
        sock.sendall(self.get)

    def sse_read(self, sock: socket.socket) -> None:
        sock.sendall(self.get)
        assert sock.recv(200).startswith(b"HTTP/1.1 200")

    def websocket(self, sock: socket.socket) -> None:
        sock.sendall(self.shake)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += sock.recv(4096)
        assert answer.startswith(b"HTTP/1.1 101"), answer
        wish = json.dumps({"board": True}).encode()
        sock.sendall(bytes([0x81, 0x80 | len(wish), 0, 0, 0, 0]) + wish)

    def websocket_read(self, sock: socket.socket) -> None:
        self.websocket(sock)
        assert sock.recv(100)

    def shaken(self, sock: socket.socket) -> None:
        sock.sendall(self.shake)

    def half(self, sock: socket.socket) -> None:
        sock.sendall(self.get[:40])

    def nothing(self, sock: socket.socket) -> None:
        return


def resident(pid: int) -> int:
    """Megabytes."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.soak)])
def test_who_opens_a_stream_and_vanishes_leaves_nothing(count: int, folder: Path) -> None:
    """H09, H20: no descriptor, no thread, no memory, and no error in any log."""
    with Served(folder) as server:
        visitor, pid = Visitor(server), server.process.pid
        server.session("hello")
        for _ in range(50):
            visitor.come_and_go()
        baseline = wait_for(lambda: settled(pid), "nobody is connected")
        size = resident(pid)
        for number in range(count):
            visitor.come_and_go()
            if number % 100 == 0:
                server.session("hello")  # there is something to say meanwhile
        wait_for(lambda: open_files(pid) <= baseline, "every descriptor is closed again")
        assert len(os.listdir(f"/proc/{pid}/task")) < 25
        assert resident(pid) - size < 10 + count // 500
        assert quell("down", "--state", folder).returncode == 0
        log = server.log.read_text()
        assert not re.search(r"ERROR|CRITICAL|Traceback", log), log[:3000]
        assert left_in(folder) == set()


def settled(pid: int) -> int:
    """How many descriptors it has open, once that number rests."""
    before = open_files(pid)
    time.sleep(0.2)
    return before if open_files(pid) == before else 0


def test_more_connections_than_it_can_have_are_turned_away_and_it_lives_on(folder: Path) -> None:
    """Whoever connects how often: clients on the other socket are answered, and commands are started and stopped."""
    limit = ["sh", "-c", 'ulimit -Sn 256; ulimit -Hn 256; exec "$@"', "sh"]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4096)), hard))
    crowd: list[socket.socket] = []
    try:
        with Served(folder, before=limit) as server:
            crowd += [socket.create_connection(("127.0.0.1", server.port), BOUND) for _ in range(300)]
            assert server.client.get("health")["status"] == "ok"
            pid = server.busy()
            assert quell("down", "--state", folder).returncode == 0
            assert not Path(f"/proc/{pid}").exists()
            assert "ERROR" not in server.log.read_text()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for one in crowd:
            one.close()
