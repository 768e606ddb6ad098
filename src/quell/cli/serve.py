"""`quell serve`: one runtime with its API and page, started in the order written here and stopped in reverse.

Signals are heard before anything slow; whatever is half started is taken down (H22). A second one forces.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ..errors import QuellError
from .flags import Config, State
from .words import complain, show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..supervise.detach import Parted

PORT = 7717
OURS = 125


def serve(
    ctx: typer.Context,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="0 takes any that is free.")
    ] = PORT,
    state: State = None,
    config: Config = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open the page.")] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Serve on without this terminal, until `quell down`.")
    ] = False,
    dangerously_listen: Annotated[
        str | None,
        typer.Option(
            "--dangerously-listen",
            metavar="ADDRESS",
            help="Listen on this address, not on 127.0.0.1: its network reaches it, and nothing is encrypted.",
        ),
    ] = None,
    contain: Annotated[
        str, typer.Option("--contain", metavar="RUNG", help="auto, pidns, userns, cgroup or subreaper.")
    ] = "auto",
) -> int:
    """Serve agents on this machine: a page, an HTTP API, and a stop that means stop.

    Ctrl+C or `quell down` stops it and everything that it runs; a second one forces. Exit codes: 0 it was stopped, and
    nobody is left; 1 it was stopped, and who is left is named; 125 it could not serve; 130 or 143 it was stopped before
    it did.

    \b
    quell serve
    quell serve --detach --port 0
    quell serve --config ./team.toml --state ./state
    """
    fill_streams()
    try:
        parted: Parted | None = None
        if detach:
            from ..supervise.detach import part
            from .ending import SIGNALS

            parted = part()
            if parted.pid:
                return parted.attend(_show, SIGNALS)
        from .server import Options, Server

        voice = Voice(parted)
        options = Options(port, state, config, not no_browser and parted is None, dangerously_listen, contain)
        return Server(options, voice, ctx.obj).run()
    except QuellError as error:
        complain(str(error))
        return OURS


def fill_streams() -> None:
    """Those that are closed lead nowhere from now on: else a file of ours gets the number, and is written into."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free: this one
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115  it stays open


class Voice:
    """What a person is told: on this terminal, or by whoever started us to be detached."""

    def __init__(self, parted: Parted | None) -> None:
        self._parted = parted
        self._there = True

    def say(self, text: str) -> None:
        if self._parted is None:
            show(f"{text}\n")
        else:
            self._parted.tell(1, text)

    def complain(self, sentence: str) -> None:
        if self._parted is None:
            complain(sentence)
        else:
            self._parted.tell(2, sentence)

    @property
    def detached(self) -> bool:
        return self._parted is not None

    def ready(self) -> None:
        if self._parted is not None:
            self._parted.ready()


def _show(stream: int, text: str) -> None:
    if stream == 1:
        show(text)
    else:
        complain(text.rstrip("\n"))
