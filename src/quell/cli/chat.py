"""`quell chat`: a conversation at the terminal, with a runtime of its own; when it ends, nothing of it is left.

What is typed while a turn runs waits for its turn. Ctrl+C stops the turn, and never the conversation.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from ..errors import UsageError
from .flags import complete_agent
from .local import Local, Wish
from .screen import Screen
from .serve import fill_streams
from .words import complain


def chat(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[TEXT]...", help="What to say first; by default nothing.")
    ] = None,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="NAME", help="Who answers; see quell agent.", autocompletion=complete_agent),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="What answers, such as openai:gpt-5 or local:llama3.")
    ] = None,
    strategy: Annotated[
        str | None, typer.Option("--strategy", metavar="NAME", help="How the next step is chosen: tools, or react.")
    ] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", metavar="DIR", help="Where; by default here.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Say yes to whatever is asked; what is denied stays so.")] = False,
    resume: Annotated[
        str | None,
        typer.Option("--resume", metavar="ID", help="Go on with a session: its id, the beginning of it, or its title."),
    ] = None,
    max_steps: Annotated[
        int | None, typer.Option("--max-steps", metavar="N", min=1, help="Steps of a turn, at most.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="DIR", help="Keep the session there; by default at a usual place.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="FILE", help="Settings, agents and models, as TOML.")
    ] = None,
    title: Annotated[str | None, typer.Option("--title", metavar="TEXT", help="What the session is called.")] = None,
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
