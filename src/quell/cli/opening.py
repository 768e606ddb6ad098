"""`quell open`: a new link that opens the page of a server once, and the browser where there is one."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from .client import Client
from .flags import Json, State
from .words import show


def open_page(
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    as_json: Json = False,
    state: State = None,
) -> int:
    """Open the page of the server that runs: a new link, which works once.

    Exit codes: 0; 125 a fault of quell's or of its options, or no server runs.

    \b
    quell open
    quell open --no-browser
    """
    link: str = Client(state).post("launches")["url"]
    if as_json:
        import json

        return show(json.dumps({"url": link}) + "\n")
    if not no_browser:
        open_page_at(link)
    return show(f"{link}\n")


def open_page_at(link: str) -> bool:
    """In the user's browser, which is none of ours; only where there is one, and somebody who sees it."""
    if not (sys.stdout.isatty() and any(os.environ.get(name) for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"))):
        return False
    from ..supervise.detach import hand_over

    return hand_over([sys.executable, "-m", "webbrowser", link])
