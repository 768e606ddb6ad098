"""A `quell serve` as a person starts it: a process of its own, asked over its sockets, gone when the test is."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from quell.cli.client import Client, path
from tests.cli.command import BOUND, QUELL
from tests.cli.oracle import wait_for

LINK = re.compile(r"http://\S+/launch\?code=\S+")


class Served:
    """`with Served(folder) as server:` it serves. What it says is in two files, so that nothing ever waits for us."""

    def __init__(
        self,
        folder: Path,
        *args: str,
        before: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        script: str | None = None,
    ) -> None:
        self.folder = folder
        self.log = folder / "serve.log"
        self._said = folder.with_name(f"{folder.name}.out"), folder.with_name(f"{folder.name}.err")
        program = [str(QUELL)] if script is None else [sys.executable, "-c", script]
        self._argv = [*before, *program, "serve", "--port", "0", "--no-browser", "--state", str(folder), *args]
        self._env = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[bytes]

    def start(self) -> Self:
        """Without waiting for anything."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self._said[0].open("wb") as out, self._said[1].open("wb") as err:
            self.process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self._env, start_new_session=True
            )
        return self

    def __enter__(self) -> Self:
        self.start()
        try:
            wait_for(lambda: LINK.search(self.out) or self.process.poll() is not None, "the server serves", BOUND)
            assert self.process.poll() is None, self.err
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)  # whatever it was started by
        self.process.wait()

    @property
    def out(self) -> str:
        return self._said[0].read_text()

    @property
    def err(self) -> str:
        return self._said[1].read_text()

    @property
    def url(self) -> str:
        found = re.search(r"serves at (http://\S+)/", self.out)
        assert found is not None, self.out
        return found[1]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def link(self) -> str:
        found = LINK.search(self.out)
        assert found is not None, self.out
        return found[0]

    @property
    def token(self) -> str:
        return (self.folder / "token").read_text().strip()

    @property
    def client(self) -> Client:
        return Client(str(self.folder))

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def ends(self, bound: float = BOUND) -> int:
        """Its exit code."""
        return self.process.wait(bound)

    def configure(self, **settings: float) -> None:
        self.client.begin("PATCH", path("config"), {"settings": settings}).answer(BOUND)

    def session(self, text: str = "", **wish: Any) -> str:
        """Open one, and give its id."""
        card: dict[str, Any] = self.client.post("sessions", body={"text": text, **wish})
        return str(card["id"])

    def busy(self, argv: str = "sleep 600") -> int:
        """A session whose tool runs this command; its pid once it runs."""
        session = self.session(f"$ {argv}")
        found = wait_for(lambda: self._running(session), "the command runs")
        return int(found)

    def _running(self, session: str) -> int:
        processes = self.client.get("sessions", session)["processes"]
        return int(processes[0]["pid"]) if processes else 0


def facts(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / name).read_text())
    return found


def left_in(folder: Path) -> set[str]:
    """What a server that ended left in its state directory, but for what is meant to stay."""
    meant = {"grants.jsonl", "ledger", "log.sqlite", "owner", "token", "stopped.json"}
    names = {one.name for one in folder.iterdir()} if folder.is_dir() else set()
    return {name for name in names - meant if not name.startswith("serve.log")} | {
        f"ledger/{one.name}" for one in (folder / "ledger").glob("*")
    }


def cpu_seconds(pid: int) -> float:
    """That a process has used, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wakes(pid: int) -> int:
    """How often its threads have gone to sleep, and so been woken."""
    status = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return sum(int(count) for text in status for count in re.findall(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.M))
