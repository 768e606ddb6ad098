"""`quell run`: from its start to the first of the answer and to its end, and from Ctrl+C to the prompt."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.line import Line, compared, lines, ms
from bench.rows.start import QUELL
from bench.safety import safely
from bench.sampling import Contender, spread, take_turns, tell

PROMPT_LIMIT = 0.2
ECHO = [sys.executable, "-c", "import asyncio, sys\nasyncio.run(asyncio.sleep(0))\nprint('You said:', sys.argv[1])"]
WAIT = [
    sys.executable,
    "-c",
    "import asyncio, sys\n"
    "async def ask():\n"
    "    reader, writer = await asyncio.open_connection('127.0.0.1', int(sys.argv[1]))\n"
    "    writer.write(b'POST / HTTP/1.1\\r\\n\\r\\n')\n"
    "    await reader.read()\n"
    "asyncio.run(ask())",
]
BARE = "bare asyncio"


def measure(quick: bool) -> list[Line]:
    return lines([*safely(starts, 8 if quick else 30), *safely(interrupts, 3 if quick else 10)])


# -- from the start


def starts(rounds: int) -> list[Line]:
    run = [QUELL, "run", "say hello"]
    samples = take_turns(
        "run",
        {
            BARE: timed([*ECHO, "say hello"], first=False),
            f"{BARE}, first": timed([*ECHO, "say hello"], first=True),
            "end": timed(run, first=False),
            "first": timed(run, first=True),
        },
        rounds,
    )
    first = compared('`quell run "say hello"`: start → the first of the answer', samples, "first", f"{BARE}, first")
    whole = compared('`quell run "say hello"`: start → its end, nobody left', samples, "end", BARE)
    return [first._replace(peer=BARE), whole]


def timed(argv: list[str], *, first: bool) -> Contender:
    """Until the first byte of the answer, or until its end."""

    def once() -> float:
        began = time.perf_counter()
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as program:
            assert program.stdout is not None
            os.read(program.stdout.fileno(), 1)
            answered = time.perf_counter() - began
            program.stdout.read()
            program.wait()
        return answered if first else time.perf_counter() - began

    return once


# -- Ctrl+C


def interrupts(rounds: int) -> list[Line]:
    """Against a model that takes the request and never answers."""
    theirs, ours = [], []
    with mute() as (listening, config):
        port = listening.getsockname()[1]
        for number in range(rounds):
            tell(f"run: Ctrl+C {number + 1}/{rounds}")
            theirs.append(interrupted([*WAIT, str(port)], listening))
            ours.append(interrupted([QUELL, "run", "--config", config, "--model", "mute:x", "hello"], listening))
    work = f"Ctrl+C → the end of `quell run`, a model that never answers, slowest of {rounds}"
    slowest = max(ours)
    return [
        Line(
            work,
            f"{BARE}, which tidies nothing up",
            f"{max(theirs) * 1000:.0f} ms",
            f"{slowest * 1000:.0f} ms (median {ms(spread(ours))})",
            "–",
            f"≤ {PROMPT_LIMIT * 1000:g} ms",
            slowest <= PROMPT_LIMIT,
        )
    ]


@contextmanager
def mute() -> Iterator[tuple[socket.socket, str]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        tempfile.TemporaryDirectory(prefix="quell-bench-run-") as folder,
    ):
        config = Path(folder) / "config.toml"
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        config.write_text(f'[models.mute]\nbase_url = "{address}"\n', encoding="utf-8")
        yield listening, str(config)


def interrupted(argv: list[str], listening: socket.socket) -> float:
    """From the signal to the end of the program, once its request is here; its connection is closed by then."""
    null = subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=null, stdout=null, stderr=null) as program:
        connection, _ = listening.accept()
        with connection:
            connection.recv(65536)
            began = time.perf_counter()
            program.send_signal(signal.SIGINT)
            program.wait()
            taken = time.perf_counter() - began
            connection.settimeout(10)
            while connection.recv(65536):
                pass
    return taken
