"""Fetches one address, in a process that can be ended: the connection is closed the moment that it is.

Every name is looked up once, all its addresses are checked, and the connection goes to the one that was checked, at
each redirection anew. It knows no cookies, proxies or passwords, and imports the standard library only.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import socket
import ssl
import sys
import urllib.parse
import zlib
from typing import Any

from .pages import readable

REDIRECTIONS = 5
BYTES_MOST = 1_000_000
PATIENCE = 15.0  # seconds for one step of a connection
PIECE = 200_000  # characters in one line of our answer
TEXTS = ("application/json", "application/xml", "application/javascript", "application/x-yaml", "application/toml")
MOVED = frozenset({301, 302, 303, 307, 308})

_SAFE = "/%:=&?~+!$,;'@()*[]-._"
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL = ipaddress.ip_network("2000::/3")  # all of IPv6 that is given out; `is_global` takes more for public


class Refused(Exception):
    """What cannot be fetched; the sentence says why."""


def is_public(text: str) -> bool:
    """Whether this address is on the public internet, and no way into a private network is hidden in it."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        hidden = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
        if address in _NAT64:
            hidden.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if any(one is not None and not is_public(str(one)) for one in hidden):
            return False
        if address.ipv4_mapped is not None or address in _NAT64:
            return True
        if address not in _GLOBAL:
            return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def look_up(host: str, port: int, local: bool) -> list[tuple[Any, ...]]:
    """The addresses of a name, all of them fit to be used."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise Refused(f"the host {host} is not known: {error}") from None
    for *_, address in found:
        if not local and not is_public(str(address[0])):
            raise Refused(f"{host} is {address[0]}, which is not on the public internet")
    return found


def connect(host: str, port: int, secure: bool, local: bool) -> socket.socket:
    error: OSError | None = None
    for family, kind, protocol, _, address in look_up(host, port, local):
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(PATIENCE)
            plain.connect(address)
            return ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
        except OSError as failed:
            plain.close()
            error = failed
    raise Refused(f"{host} port {port} cannot be reached: {error}")


def split(url: str) -> urllib.parse.SplitResult:
    try:
        parts = urllib.parse.urlsplit(url.strip())
        port = parts.port
    except ValueError as error:
        raise Refused(f"{url[:200]!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise Refused(f"only http and https addresses are fetched, not {url[:200]!r}")
    if not parts.hostname or port == 0:
        raise Refused(f"{url[:200]!r} names no host")
    if parts.username is not None or parts.password is not None:
        raise Refused("an address with a user name or password in it is not fetched")
    return parts


def once(url: str, local: bool) -> http.client.HTTPResponse:
    """The answer of this very address, which has the connection to itself."""
    parts = split(url)
    host, secure = str(parts.hostname), parts.scheme == "https"
    try:
        host = host if ":" in host else host.encode("idna").decode()
    except UnicodeError:
        raise Refused(f"{host!r} is no name of a host") from None
    port = parts.port or (443 if secure else 80)
    connection = http.client.HTTPConnection(host, port)
    connection.sock = connect(host, port, secure, local)
    try:
        ask(connection, parts, host)
        return connection.getresponse()
    finally:
        connection.close()  # the answer holds it, until that is closed


def ask(connection: http.client.HTTPConnection, parts: urllib.parse.SplitResult, host: str) -> None:
    target = urllib.parse.quote(parts.path or "/", safe=_SAFE)
    if parts.query:
        target += "?" + urllib.parse.quote(parts.query, safe=_SAFE)
    named = f"[{host}]" if ":" in host else host
    connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
    connection.putheader("Host", named if parts.port is None else f"{named}:{parts.port}")
    connection.putheader("User-Agent", "quell")
    connection.putheader("Accept", "text/html, text/*;q=0.9, application/json;q=0.9, */*;q=0.5")
    connection.putheader("Accept-Encoding", "gzip")
    connection.putheader("Connection", "close")
    connection.endheaders()


def fetch(url: str, local: bool) -> tuple[str, str]:
    """What is to be said of it, and its text."""
    for _ in range(REDIRECTIONS + 1):
        with once(url, local) as response:
            where = response.headers.get("Location")
            if response.status not in MOVED or not where:
                return content(url, response)
        url = urllib.parse.urljoin(url, where)
    raise Refused(f"it leads on and on, more than {REDIRECTIONS} times; at last to {url[:200]}")


def content(url: str, response: http.client.HTTPResponse) -> tuple[str, str]:
    kind = response.headers.get_content_type() if response.headers.get("Content-Type") else ""
    head = f"{response.status} {response.reason}, {url}, {kind or 'of no said type'}"
    is_text = kind.startswith("text/") or kind in TEXTS or kind.endswith(("+json", "+xml"))
    if kind and not is_text:
        size = response.headers.get("Content-Length", "unknown")
        return f"{head}, {size} bytes: no text to show", ""
    data, whole = body(response)
    if not kind and b"\0" in data[:8192]:
        return f"{head}, {len(data)} bytes: no text to show", ""
    if not whole:
        head += f", cut after {BYTES_MOST} bytes"
    text = decoded(data, response.headers.get_content_charset())
    return head, readable(text, url) if kind in ("text/html", "application/xhtml+xml") else text


def body(response: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """The first of it, unpacked, and whether that is all."""
    packed = response.headers.get("Content-Encoding", "").strip().lower()
    if packed not in ("", "identity", "gzip", "x-gzip"):
        raise Refused(f"it comes packed as {packed!r}, though we did not ask for that")
    unpack = zlib.decompressobj(16 + zlib.MAX_WBITS) if "gzip" in packed else None
    data = bytearray()
    while len(data) <= BYTES_MOST and (piece := response.read1(1 << 16)):
        data += piece if unpack is None else unpack.decompress(piece, BYTES_MOST + 1 - len(data))
    return bytes(data[:BYTES_MOST]), len(data) <= BYTES_MOST


def decoded(data: bytes, charset: str | None) -> str:
    try:
        text = data.decode(charset or "utf-8", "replace")
    except LookupError:
        text = data.decode("utf-8", "replace")
    return text.encode("utf-8", "replace").decode()  # some charsets give halves of characters


def main() -> None:
    asked = json.load(sys.stdin)
    try:
        head, text = fetch(asked["url"], asked["local"])
        for at in range(0, len(text), PIECE):
            print(json.dumps(text[at : at + PIECE]))
        print(json.dumps({"head": " ".join(head.split())}))
    except Refused as refusal:
        print(json.dumps({"refused": str(refusal)}))
    except (OSError, http.client.HTTPException, zlib.error, ValueError) as error:
        print(json.dumps({"refused": f"{asked['url'][:200]} failed: {type(error).__name__}: {error}"}))
