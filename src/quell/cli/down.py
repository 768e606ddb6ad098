"""`quell down`: stop a server and everything that it runs, wait until it is gone, and say what its end saw.

A server that does not answer is stopped by its control socket, which needs none of its event loops (H25).
"""

from __future__ import annotations

import json
import os
import select
import threading
from typing import Annotated, Any

import typer

from ..errors import NoSupervisorError
from ..supervise.receipt import Receipt
from . import served
from .client import Client, MuteServerError, NoServerError, RefusedError, path
from .flags import Json, State
from .words import complain, show

ANSWER = 3.0
"""Seconds for a server to say that it has heard."""
SLOW = 1.0
"""Seconds after which waiting is spoken of."""
UNCONFIRMED = 1


def down(
    force: Annotated[bool, typer.Option("--force", help="At once: nobody is asked to end first.")] = False,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Stop the server and everything that it runs; wait until it is gone.

    Exit codes: 0 it is gone, and nobody is left; 1 that could not be confirmed; 125 a fault of quell's or of its
    options, or no server runs.

    \b
    quell down
    quell down --force
    """
    client = Client(state)
    watch = Watch(client)
    slow = threading.Timer(SLOW, watch.say_slow, [force])
    slow.daemon = True
    slow.start()  # before it is asked: one that is frozen hears nothing
    try:
        receipt = ask(client, force)
        watch.until_gone()
    finally:
        slow.cancel()
        watch.close()
    return conclude(watch.verdict(receipt), as_json)


def ask(client: Client, force: bool) -> Receipt | None:
    """Have it stop. The receipt, if it was said at once."""
    from ..supervise.control import ask_stop

    try:
        client.begin("POST", path("down"), {"force": force}, ANSWER).answer(ANSWER)
        return None
    except (MuteServerError, NoServerError, RefusedError):
        try:
            return ask_stop(client.folder, reason="down", force=force)
        except NoSupervisorError:
            return None  # it went meanwhile


class Watch:
    """Sees the end of whoever serves a state directory: by a pidfd, so that no number can be another's."""

    def __init__(self, client: Client) -> None:
        from ..surfaces.http.sockets import connect_unix, peer

        self._folder = client.folder
        self._facts = served.read(client.folder, served.SERVED)
        try:
            with connect_unix(client.folder, ANSWER) as sock:
                self._pid = peer(sock)[0]
        except PermissionError:
            raise NoServerError(f"the server on {client.folder} belongs to another user") from None
        except OSError:
            self._pid = owner(client.folder)
        try:
            self._fd = os.pidfd_open(self._pid)
        except OSError:
            raise NoServerError(f"no server runs on {client.folder}, or it runs in another container") from None

    def until_gone(self) -> None:
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        poller.poll()

    def say_slow(self, forced: bool) -> None:
        by_hand = f"kill -9 {self._pid} ends it too, and with it all that it runs"
        last = by_hand if forced else "quell down --force ends it at once"
        complain(f"waiting for process {self._pid} to stop …; {last}")

    def verdict(self, receipt: Receipt | None) -> dict[str, Any]:
        """What it wrote when it ended, or what the control socket said."""
        facts = served.read(self._folder, served.STOPPED)
        if facts.get("pid") == self._pid and facts.get("started", 0) == self._facts.get("started", facts["started"]):
            known = {name: facts[name] for name in ("confirmed", "sentence", "reason")}
            return {**known, "pid": self._pid, "receipt": facts["receipt"]}
        if receipt is not None:
            facts = {"confirmed": receipt.confirmed, "sentence": receipt.sentence(), "reason": receipt.reason}
            return {**facts, "pid": self._pid, "receipt": json.loads(receipt.to_json())}
        said = f"process {self._pid} is gone and left no receipt; {self._folder}/serve.log may say why"
        return {"confirmed": False, "sentence": said, "reason": "", "pid": self._pid, "receipt": None}

    def close(self) -> None:
        os.close(self._fd)


def owner(folder: str) -> int:
    """Who holds the lock of a state directory, by the kernel's own word; 0 if nobody does."""
    import fcntl
    import struct

    try:
        fd = os.open(os.path.join(folder, "owner"), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, asked))
        return 0 if kind == fcntl.F_UNLCK else pid
    finally:
        os.close(fd)


def conclude(verdict: dict[str, Any], as_json: bool) -> int:
    if as_json:
        show(json.dumps(verdict, indent=2) + "\n")
    elif verdict["confirmed"]:
        show(f"quell (process {verdict['pid']}) is down: {verdict['sentence']}\n")
    else:
        complain(verdict["sentence"])
    return 0 if verdict["confirmed"] else UNCONFIRMED
