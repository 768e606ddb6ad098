"""`quell chat`: a conversation at the terminal, with a runtime of its own; when it ends, nothing of it is left.

What is typed while a turn runs waits for its turn. Ctrl+C stops the turn, and never the conversation.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import UsageError
from .flags import (
    RunAgent,
    RunConfig,
    RunCwd,
    RunMaxSteps,
    RunModel,
    RunResume,
    RunState,
    RunStrategy,
    RunTitle,
    RunYes,
)
from .local import Local, Wish
from .screen import Screen
from .serve import fill_streams
from .words import complain


def chat(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to say first; by default nothing.")
    ] = None,
    agent: RunAgent = None,
    model: RunModel = None,
    strategy: RunStrategy = None,
    cwd: RunCwd = None,
    yes: RunYes = False,
    resume: RunResume = None,
    max_steps: RunMaxSteps = None,
    state: RunState = None,
    config: RunConfig = None,
    title: RunTitle = None,
) -> int:
    """Talk with an agent in this terminal. Works offline; no server is needed.

    Enter sends, Alt+Enter begins a new line, the arrow keys bring back what you said before. You may type while it
    works: that waits for its turn. Ctrl+C stops the turn and says what that ended, twice forces; Ctrl+D leaves.

    \b
    quell chat
    quell chat --model openai:gpt-5 --cwd ~/project
    quell chat --resume 1f0c

    Inside, /help lists what else there is: /stop /queue /ps /receipt /model /agent /export.

    Exit codes: 0; 1 something would not end; 125 a fault of quell's or of its options; 130 Ctrl+C before it began;
    another signal 128 and its number.
    """
    fill_streams()
    wish = Wish(agent, model, strategy, cwd, resume, title, max_steps, state, config)
    local = Local(wish, ctx.obj)
    try:
        return local.leave(_talk(local, " ".join(words or []), yes))
    except UsageError as error:
        complain(str(error))
        return 125


def _talk(local: Local, first: str, yes: bool) -> int:
    if not (os.isatty(0) and os.isatty(1)):
        local.ending.close()
        raise UsageError("quell chat needs a terminal; quell run takes a message from anywhere")
    if not Screen().moves:
        local.ending.close()
        raise UsageError(
            f"quell chat needs a terminal that can be drawn on, and TERM is {os.environ.get('TERM')!r};"
            " quell run takes one message at a time"
        )
    from .talk import Talk

    return Talk(local, first, yes=yes).run()
