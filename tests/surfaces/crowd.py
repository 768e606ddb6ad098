"""A crowd of SSE clients in a process of their own: `python crowd.py < plan > found`, both JSON.

Each follows its sessions until it has seen so many turns of each end, checks the order of what it is told, and says
all that it heard. A restless one breaks off again and again, and goes on after the last message that it had whole; a
stalled one reads nothing until the others are done, and then does the same.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import time
from typing import Any

RESTLESS = 0.3
"""Seconds after which a restless client breaks off."""


class Client:
    def __init__(self, plan: dict[str, Any], number: int, sessions: list[str]) -> None:
        self.plan = plan
        self.sessions = sessions
        self.stalled = number in plan["stalled"]
        self.restless = number in plan["restless"]
        self.cursor: int = plan["after"]
        self.durable: list[dict[str, Any]] = []
        self.texts: dict[str, list[str]] = {}
        self.messages = self.bytes = self.connections = self.cuts = self.deltas = 0
        self.ended = dict.fromkeys(sessions, 0)
        self.late = 0.0
        self.came = 0.0

    def done(self) -> bool:
        return all(count >= self.plan["turns"] for count in self.ended.values())

    async def run(self, others: asyncio.Event) -> None:
        if self.stalled:
            reader, writer = await self.connect(4096)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await others.wait()
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            await self.read(reader, None)
            writer.close()
        while not self.done():
            reader, writer = await self.connect(0)
            await self.read(reader, RESTLESS if self.restless else None)
            writer.transport.abort()

    async def connect(self, buffer: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        sock = socket.socket()
        if buffer:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.plan["port"]))
        reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 26)
        query = "&".join([f"session={one}" for one in self.sessions])
        head = f"GET /api/v1/events?{query} HTTP/1.1\r\nHost: 127.0.0.1:{self.plan['port']}\r\n"
        writer.write(
            f"{head}Authorization: Bearer {self.plan['token']}\r\nLast-Event-ID: {self.cursor}\r\n\r\n".encode()
        )
        self.connections += 1
        return reader, writer

    async def read(self, reader: asyncio.StreamReader, limit: float | None) -> None:
        """Until it has all, the server ends it, or the time is over."""
        try:
            async with asyncio.timeout(limit):
                status = await reader.readuntil(b"\r\n\r\n")
                assert status.startswith(b"HTTP/1.1 200"), status
                self.came = time.time()
                rest = b""
                while not self.done() and (size := int(await reader.readline() or b"0", 16)):
                    chunk = await reader.readexactly(size + 2)
                    rest += chunk[:-2]
                    while b"\n\n" in rest:
                        block, rest = rest.split(b"\n\n", 1)
                        self.take(block)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            return

    def take(self, block: bytes) -> None:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
        if fields.get(b"event") == b"cut":
            self.cuts += 1
        if fields.get(b"event") != b"events":
            return
        message = json.loads(fields[b"data"])
        self.messages += 1
        self.bytes += len(block)
        for event in message["events"]:
            assert event["seq"] > self.cursor, (event, self.cursor)  # in order, and nothing twice
            assert event["session"] in self.sessions, event
            self.cursor = event["seq"]
            if event["kind"] in ("message.delta", "model.delta", "tool.output"):
                self.deltas += 1
                key = f"{event['kind']} {event['request']} {event.get('channel', '')}"
                self.texts.setdefault(key, []).append(event["text"])
            else:
                self.durable.append(event)
                self.late = max(self.late, time.time() - event["at"]) if event["at"] > self.came else self.late
            if event["kind"] == "turn.ended":
                self.ended[event["session"]] += 1
        assert int(fields[b"id"]) == message["seq"] == self.cursor


async def main(plan: dict[str, Any]) -> dict[str, Any]:
    clients = [Client(plan, number, sessions) for number, sessions in enumerate(plan["clients"])]
    others = asyncio.Event()
    stalled = [asyncio.create_task(one.run(others)) for one in clients if one.stalled]
    reading = [asyncio.create_task(one.run(others)) for one in clients if not one.stalled]
    began = time.monotonic()
    await asyncio.gather(*reading)
    lasted = time.monotonic() - began
    others.set()
    await asyncio.gather(*stalled)
    names = ("sessions", "durable", "messages", "bytes", "connections", "cuts", "deltas", "late", "stalled")
    found = [{name: getattr(one, name) for name in names} for one in clients]
    for one, client in zip(found, clients, strict=True):
        one["texts"] = {key: "".join(texts) for key, texts in client.texts.items()}
    return {"lasted": lasted, "clients": found}


if __name__ == "__main__":
    json.dump(asyncio.run(main(json.load(sys.stdin))), sys.stdout)
