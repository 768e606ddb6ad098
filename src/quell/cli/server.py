"""A server from its first step to its last: read top to bottom, this is the order of start and of stop.

Each step may find that somebody has asked to end meanwhile; then what there is so far is taken down.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import QuellError, StateInUseError
from ..supervise.ledger import state_dir
from . import served
from .client import usual_place
from .ending import Asked, Ending
from .logfile import LogFile

if TYPE_CHECKING:
    from ..configfile import Loaded
    from ..runtime import Runtime
    from ..supervise import Receipt
    from ..supervise.errand import Fact
    from ..surfaces.http.front import Front
    from .serve import Voice

OURS, UNCONFIRMED = 125, 1
SLOW = 1.0
"""Seconds after which a stop is spoken of."""
_log = logging.getLogger("quell")


@dataclass(frozen=True)
class Options:
    port: int
    state: str | None
    config: str | None
    browser: bool
    address: str | None
    contain: str


class Interrupted(Exception):
    """Somebody asked to end before it served."""


class Server:
    def __init__(self, options: Options, voice: Voice, mask: list[int]) -> None:
        self._ending = Ending(mask, voice.complain)  # first of all
        self._options = options
        self._voice = voice
        self.folder = os.path.abspath(options.state or usual_place())
        self._started = time.time()
        self._logs: LogFile | None = None
        self._tcp: socket.socket | None = None
        self._runtime: Runtime | None = None
        self._front: Front | None = None
        self._asked: Fact[Asked] | None = None
        self._serves = False
        self._url = ""

    def run(self) -> int:
        """The exit code."""
        try:
            from ..supervise.keeper.linux import rename

            rename("quell serve")
            loaded = self._configure()
            self._logs = LogFile(self.folder)
            self._go_on()
            self._tcp = self._listen()
            self._go_on()
            with asyncio.Runner() as runner:
                return runner.run(self._main(loaded))
        except Interrupted:
            self._voice.complain("stopped before it served")
            return self._ending.asked[0].code or OURS
        except QuellError as error:
            self._voice.complain(str(error))
            return OURS
        except OSError as error:  # the machine refuses us a file, a thread or a descriptor
            self._voice.complain(f"quell cannot serve: {error.filename or self.folder}: {error.strerror or error}")
            return OURS
        except Exception as error:  # noqa: BLE001  a boundary: said where somebody reads it, and written down
            _log.exception("quell cannot serve")
            self._voice.complain(f"quell cannot serve: {type(error).__name__}: {error}")
            return OURS
        finally:
            if self._tcp is not None:
                self._tcp.close()
            if self._logs is not None:
                self._logs.close()
            self._ending.close()

    def _go_on(self) -> None:
        if self._ending.asked:
            raise Interrupted

    def _configure(self) -> Loaded:
        from ..configfile import load

        loaded = load(self._options.config, os.environ)
        for warning in loaded.warnings:
            self._voice.complain(warning)
        return loaded

    # -- start

    def _listen(self) -> socket.socket:
        from ..surfaces.http.sockets import LOOPBACK, PortTakenError, hosts_of, listen_tcp, url_of

        address = self._options.address or LOOPBACK
        try:
            sock = listen_tcp(address, self._options.port)
        except PortTakenError:
            if where := self._served():
                raise StateInUseError(where) from None
            raise
        port = sock.getsockname()[1]
        self._url, self._hosts = url_of(address, port), hosts_of(address, port)
        return sock

    def _served(self) -> str:
        """A sentence that says where this very state directory is served; empty if it is not."""
        from ..surfaces.http.sockets import connect_unix

        try:
            connect_unix(self.folder, 1.0).close()
        except OSError:
            return ""
        facts = served.read(self.folder, served.SERVED)
        where = f" at {facts['url']} by process {facts.get('pid')}" if "url" in facts else ""
        return f"{self.folder} is served already{where}: quell open shows the page, quell down stops it"

    async def _main(self, loaded: Loaded) -> int:
        from ..supervise.errand import Fact

        loop = asyncio.get_running_loop()
        self._asked = Fact(loop)
        self._ending.attach(loop, self._hear)
        try:
            await self._start(loaded)
        except BaseException:
            await self._stop()
            if self._ending.asked and not self._serves:
                raise Interrupted from None
            raise
        asked = await self._asked.wait()
        return await self._stop(asked)

    async def _start(self, loaded: Loaded) -> None:
        from ..supervise.errand import Errand
        from ..surfaces.http.front import Front
        from ..surfaces.http.keys import Keys
        from ..surfaces.http.sockets import listen_unix
        from .composing import chosen, runtime_for

        assert self._logs is not None
        self._runtime = runtime = runtime_for(
            loaded,
            folder=self.folder,
            home=self.folder if self._options.state else state_dir(),
            config=self._options.config,
            contain=self._options.contain,
        )
        try:
            await runtime.__aenter__()
        except StateInUseError:
            if where := self._served():
                raise StateInUseError(where) from None
            raise
        self._ending.serve(self.folder, self._say_goodbye)
        allow_files()  # now: the zygote is there, so that commands have the limit that the user has
        Errand(asyncio.get_running_loop(), self._watch(runtime))
        self._logs.write(runtime.redaction)
        if self._voice.detached:
            self._logs.take_stderr()
        self._go_on()

        await runtime.serve()
        self._go_on()

        keys = Keys.of(self.folder)
        for secret in (keys.token, keys.cookie):  # whatever a tool finds in our own files
            runtime.conceal(secret)
        self._front = Front(
            runtime,
            tcp=self._tcp,
            unix=listen_unix(self.folder),
            keys=keys,
            hosts=self._hosts,
            url=self._url.rstrip("/"),
            down=lambda force: self._ending.ask("down", force),
            started=self._started,
            config_file=loaded.file,
            usual=lambda model: chosen(loaded, model=model).name,
        )
        await self._front.start()
        self._go_on()

        served.write(self.folder, served.SERVED, self._facts())
        self._serves = True
        await self._announce(f"{self._url}launch?code={keys.new_code()}")
        self._voice.ready()

    def _facts(self) -> dict[str, object]:
        from .. import __version__

        return {"pid": os.getpid(), "url": self._url, "started": self._started, "version": __version__}

    async def _announce(self, link: str) -> None:
        from .opening import open_page_at

        if self._options.address:
            self._voice.complain(f"careful: {self._options.address} is open to its network, and nothing is encrypted")
        opened = self._options.browser and await asyncio.get_running_loop().run_in_executor(None, open_page_at, link)
        _log.info("serves at %s", self._url)
        self._voice.say(f"Quell serves at {self._url}")
        self._voice.say(f"  {'opened' if opened else 'open'} {link}")
        self._voice.say("  (that link works once; quell open makes another; Ctrl+C or quell down stops everything)")

    # -- stop

    def _hear(self, asked: Asked) -> None:
        """In the loop: a signal, or a client's `down`."""
        from ..supervise.errand import see_to

        assert self._asked is not None
        self._asked.tell(asked)
        runtime = self._runtime
        if runtime is not None and (asked.force or not self._serves):
            see_to(asyncio.get_running_loop(), lambda: runtime.close(reason=asked.reason, force=asked.force))

    async def _watch(self, runtime: Runtime) -> None:
        """The runtime may be stopped around us, by the control socket; and one whose log is broken is over."""
        async for event in runtime.bus.stream(kinds=("runtime.stopping", "runtime.error"), name="serve"):
            if event.kind == "runtime.stopping" or runtime.failed is not None:
                break
        assert self._asked is not None
        self._asked.tell(Asked("the log cannot be written" if runtime.failed else "it was stopped", False))

    async def _stop(self, asked: Asked | None = None) -> int:
        """In reverse, whatever there is."""
        asked = asked or Asked("not started", True)
        slow = asyncio.get_running_loop().call_later(SLOW, self._say_slow, asked.reason)
        receipt: Receipt | None = None
        try:
            self._say_goodbye(asked.reason)
            if self._serves:
                served.remove(self.folder, served.SERVED)  # while the directory is ours
            if self._runtime is not None:
                receipt = await self._runtime.close(reason=asked.reason, force=asked.force)
        finally:
            if self._front is not None:
                await self._front.stop()
            slow.cancel()
        return self._conclude(asked, receipt) if self._serves else OURS

    def _say_goodbye(self, reason: str) -> None:
        """From any thread: streams end now, whatever the kernel's loop does."""
        if self._front is not None:
            self._front.finish(f"the server stops ({reason})")

    def _say_slow(self, reason: str) -> None:
        self._voice.complain(f"stopping ({reason}) …; once more forces it")

    def _conclude(self, asked: Asked, receipt: Receipt | None) -> int:
        assert receipt is not None and self._runtime is not None
        failed, redact = self._runtime.failed, self._runtime.redact
        broken = f"the log could not be written, so everything was stopped: {failed}"
        said = redact(broken if failed else receipt.sentence())
        confirmed = receipt.confirmed and failed is None
        facts = {"pid": os.getpid(), "started": self._started, "reason": asked.reason, "at": time.time()}
        try:
            served.write(
                self.folder,
                served.STOPPED,
                {**facts, "confirmed": confirmed, "sentence": said, "receipt": redact(json.loads(receipt.to_json()))},
            )
        except OSError as error:
            _log.warning("the receipt of the end could not be written: %s", error)
        _log.log(logging.INFO if confirmed else logging.ERROR, "stopped (%s): %s", asked.reason, said)
        if not (confirmed and self._voice.detached):  # whoever took a detached one down was told
            self._voice.complain(f"stopped; {said}" if confirmed else said)
        return 0 if confirmed else UNCONFIRMED


def allow_files() -> None:
    """As many descriptors as the machine gives: each session and each client needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
