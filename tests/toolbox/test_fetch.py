"""`fetch` gives public text of the web, reaches no private network by any way, and its connection ends with it."""

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from quell.config import ASSISTANT, SCRIPTED
from quell.errors import ToolError
from quell.toolbox import fetch, fetching
from quell.toolbox.fetch import TEXT_MOST, Fetch, plugin
from quell.toolbox.fetching import BYTES_MOST, REDIRECTIONS, Refused, is_public

from .callers import Session, alive, in_session, until

PAGE = """<!doctype html><html><head><title>A  page</title><style>p { color: red }</style></head><body>
<script>alert("no")</script><h1>Head</h1><p>One &amp; <a href="/two">two</a>
three.</p><ul><li>first<li>second</ul><pre>a
  b</pre><table><tr><td>x<td>y</table><svg><text>no</text></svg></body></html>"""


class Site(ThreadingHTTPServer):
    """What was asked of it, and what it does with that."""

    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, str]] = []
        self.hung = threading.Event()
        self.hung_up = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Site

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append({"path": self.path, **self.headers})
        getattr(self, "of_" + self.path.strip("/").partition("?")[0].partition("/")[0], self.of_text)()

    def say(self, kind: str, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Set-Cookie": "a=b", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            pass

    def of_text(self) -> None:
        self.say("text/plain; charset=latin-1", b"caf\xe9")

    def of_page(self) -> None:
        self.say("text/html", PAGE.encode())

    def of_json(self) -> None:
        self.say("application/json", b'{"a": 1}')

    def of_picture(self) -> None:
        self.say("image/png", b"\x89PNG\0", Content_Length="5")

    def of_gone(self) -> None:
        self.say("text/plain", b"not here", 404)

    def of_long(self) -> None:
        self.say("text/plain", b"0123456789" * 12_000)

    def of_huge(self) -> None:
        self.say("text/plain", b"x" * (BYTES_MOST + 10))

    def of_packed(self) -> None:
        self.say("text/plain", gzip.compress(b"packed"), Content_Encoding="gzip")

    def of_bomb(self) -> None:
        self.say("text/plain", gzip.compress(bytes(50_000_000)), Content_Encoding="gzip")

    def of_odd(self) -> None:
        self.say("text/plain; charset=unicode_escape", b"\\ud800 \\x41")

    def of_move(self) -> None:
        self.say("", b"", 302, Location="/page")

    def of_round(self) -> None:
        self.say("", b"", 302, Location="/round")

    def of_away(self) -> None:
        self.say("", b"", 302, Location="http://169.254.169.254/latest/meta-data")

    def of_file(self) -> None:
        self.say("", b"", 302, Location="file:///etc/passwd")

    def of_hang(self) -> None:
        self.server.hung.set()
        self.connection.settimeout(15)
        if self.connection.recv(1) == b"":
            self.server.hung_up.set()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def got(site: Site, path: str) -> tuple[str, str]:
    return fetching.fetch(f"{site.url}/{path}", True)


def refused(url: str, local: bool = False) -> str:
    with pytest.raises(Refused) as refusal:
        fetching.fetch(url, local)
    return str(refusal.value)


def test_text_is_given_as_it_is_and_a_page_as_text_that_can_be_read(site: Site) -> None:
    assert got(site, "text")[1] == "café"
    assert got(site, "json") == (f"200 OK, {site.url}/json, application/json", '{"a": 1}')
    page = f"A page\n\n# Head\n\nOne & [two]({site.url}/two) three.\n\n- first\n- second\n\na\n  b\n\n| x | y"
    assert got(site, "page")[1] == got(site, "move")[1] == page
    assert got(site, "move")[0].startswith(f"200 OK, {site.url}/page")
    assert got(site, "picture") == (f"200 OK, {site.url}/picture, image/png, 5 bytes: no text to show", "")
    assert got(site, "gone") == (f"404 Not Found, {site.url}/gone, text/plain", "not here")
    assert got(site, "packed")[1] == "packed"
    assert got(site, "odd")[1] == "? A"
    for big in ("huge", "bomb"):
        head, text = got(site, big)
        assert len(text) == BYTES_MOST and head.endswith(f", cut after {BYTES_MOST} bytes")


def test_nothing_of_ours_is_sent_along(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://user:canary@127.0.0.1:9")
    got(site, "move?q=ä b\r\nX-Evil: 1")
    first, second = site.asked
    assert first["path"] == "/move?q=%C3%A4%20bX-Evil:%201" and second["path"] == "/page"
    assert {"Host", "User-Agent", "Accept", "Accept-Encoding", "Connection", "path"} == set(first) == set(second)


def test_a_redirection_is_checked_like_an_address_and_there_are_not_many(site: Site) -> None:
    assert "more than 5 times" in refused(f"{site.url}/round", local=True)
    assert len(site.asked) == REDIRECTIONS + 1
    assert "only http and https" in refused(f"{site.url}/file", local=True)


def test_a_redirection_into_a_private_network_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    real = fetching.is_public
    monkeypatch.setattr(fetching, "is_public", lambda text: text == "127.0.0.1" or real(text))
    assert "169.254.169.254, which is not on the public internet" in refused(f"{site.url}/away")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.com/", "only http and https"),
        ("example.com", "only http and https"),
        ("http://", "names no host"),
        ("http://[::1", "is no address"),
        ("http://a:99999/", "is no address"),
        ("http://me:pw@example.com/", "user name or password"),
        ("http://127.0.0.1/", "not on the public internet"),
        ("http://localhost:1/", "not on the public internet"),
        ("http://2130706433/", "not on the public internet"),
        ("http://0x7f.1/", "not on the public internet"),
        ("http://0/", "not on the public internet"),
        ("http://[::1]/", "not on the public internet"),
        ("http://[::ffff:10.0.0.1]/", "not on the public internet"),
        ("http://10.1.2.3/", "not on the public internet"),
        ("http://169.254.169.254/", "not on the public internet"),
        ("http://" + "a" * 300 + "/", "is no name of a host"),
    ],
)
def test_an_address_that_is_not_public_or_none_is_refused(url: str, sentence: str) -> None:
    assert sentence in refused(url)


def test_which_addresses_are_public() -> None:
    public = "8.8.8.8 1.1.1.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808"
    private = (
        "0.0.0.0 10.0.0.1 100.64.0.1 127.9.9.9 169.254.0.1 172.16.0.1 192.168.1.1 192.0.2.1 198.18.0.1 224.0.0.1"
        " 240.0.0.1 255.255.255.255 :: ::1 fe80::1 fe80::1%lo fc00::1 ff02::1 ::ffff:127.0.0.1 2002:7f00:1::"
        " 64:ff9b::7f00:1 2001:db8::1 fec0::1 4000::1 ::127.0.0.1"
    )
    assert [one for one in public.split() if not is_public(one)] == []
    assert [one for one in private.split() if is_public(one)] == []


def test_a_name_is_looked_up_once_and_all_its_addresses_must_be_public(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a name means may change between the look and the use: there is no second look."""
    looks = 0

    def addresses(*found: str) -> Callable[..., list[Any]]:
        def look(host: str, port: int, **_: object) -> list[Any]:
            nonlocal looks
            looks += 1
            assert looks == 1, "it was looked up again"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, site.server_port)) for one in found]

        return look

    monkeypatch.setattr(socket, "getaddrinfo", addresses("8.8.8.8", "127.0.0.1"))
    assert "changing.test is 127.0.0.1" in refused("http://changing.test/text")
    assert site.asked == []
    looks = 0
    monkeypatch.setattr(socket, "getaddrinfo", addresses("127.0.0.1"))
    assert fetching.fetch("http://changing.test/text", True)[1] == "café"
    assert site.asked[0]["Host"] == "changing.test"


def test_the_tool_gives_long_texts_in_pages_and_refusals_as_sentences(tmp_path: Path, site: Site) -> None:
    async def body(session: Session) -> None:
        tool = Fetch(local=True)
        first = await session.call(tool, {"url": f"{site.url}/long"})
        assert first.startswith(f"[200 OK, {site.url}/long, text/plain, characters 0 to {TEXT_MOST} of 120000;")
        assert "; go on with start=50000]\n0123456789" in first and len(first) < TEXT_MOST + 200
        last = await session.call(tool, {"url": f"{site.url}/long", "start": 119_990})
        assert last.endswith(", characters 119990 to 120000 of 120000]\n0123456789")
        for arguments, sentence in (
            ({"url": f"{site.url}/text", "start": 9}, "fetch: the text has 4 characters, and none at 9"),
            ({"url": f"{site.url}/file"}, "fetch: only http and https"),
            ({"url": "x" * 9000}, "fetch: Expected `str` of length <= 8000"),
            ({"url": "http://127.0.0.1:1/"}, "fetch: 127.0.0.1 port 1 cannot be reached"),
        ):
            with pytest.raises(ToolError) as refusal:
                await session.call(tool, arguments)
            assert str(refusal.value).startswith(sentence)
        with pytest.raises(ToolError, match="not on the public internet"):
            await session.call(Fetch(), {"url": f"{site.url}/text"})

    in_session(tmp_path, body)


def test_a_stop_closes_the_connection_at_once_and_so_does_the_end_of_its_time(tmp_path: Path, site: Site) -> None:
    """H08, H26: nobody is waited for who never answers."""

    async def body(session: Session) -> None:
        call = session.turn.task(session.call(Fetch(local=True), {"url": f"{site.url}/hang"}))
        assert await until(site.hung.is_set)
        began = time.monotonic()
        call.cancel()
        await asyncio.wait([call])
        assert await until(site.hung_up.is_set) and time.monotonic() - began < 1
        assert not alive(session.spawned[0].pid)
        site.hung_up.clear()
        with pytest.raises(ToolError, match=r"was not there within 0\.5 s"):
            await session.call(Fetch(local=True, seconds=0.5), {"url": f"{site.url}/hang"})
        assert await until(site.hung_up.is_set)

    in_session(tmp_path, body)


def test_an_agent_without_a_network_is_refused(tmp_path: Path) -> None:
    async def main(session: Session) -> None:
        session.network = False
        with pytest.raises(ToolError, match="this agent has no network"):
            await session.call(Fetch(), {"url": "https://example.com"})

    in_session(tmp_path, main)


def test_no_agent_that_comes_with_quell_has_it() -> None:
    tools: list[Fetch] = []

    class Context:
        def tool(self, tool: Fetch) -> None:
            tools.append(tool)

    setup: Callable[[Context], None] = plugin.setup  # type: ignore[assignment]  # as much of one as it uses
    setup(Context())
    assert [tool.spec.name for tool in tools] == ["fetch"] and not tools[0]._local
    assert "fetch" not in {*SCRIPTED.tools, *ASSISTANT.tools} and fetch.SECONDS == 30
