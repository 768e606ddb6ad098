"""`quell agent`: which agents there are, and agents of one's own in the file of settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..config import Agent, what_there_is
from ..configfile import BUILT_IN, Loaded
from ..errors import UsageError
from . import columns
from .composing import agents_of, chosen, loaded_from
from .flags import Config, Json, complete_known_agent, complete_model, complete_tool, group
from .screen import Screen, note

agent = group(
    """List, add, show and remove agents.

    An agent is a model with tools, a system prompt, and what it may do without asking. `scripted` and `assistant` are
    built in; yours are in the file of settings.

    \b
    quell agent add coder --model openai:gpt-5 --approve 'shell(git status*)=allow'
    quell run --agent coder "which tests fail?"
    """
)


Name = Annotated[str, typer.Argument(metavar="NAME", help="An agent.", autocompletion=complete_known_agent)]

# -- what a new one is

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER:MODEL",
        help="By default defaults.model, or scripted.",
        autocompletion=complete_model,
    ),
]
Tool = Annotated[
    list[str] | None,
    typer.Option("--tool", metavar="NAME", help="One of its tools; may be repeated.", autocompletion=complete_tool),
]
Strategy = Annotated[str | None, typer.Option("--strategy", metavar="NAME", help="tools or react.")]
System = Annotated[
    str | None, typer.Option("--system", metavar="TEXT|@FILE", help="What it is told first; @FILE reads a file.")
]
Approve = Annotated[
    list[str] | None,
    typer.Option(
        "--approve",
        metavar="RULE=WORD",
        help="A rule, as in 'shell(git status*)=allow'; may be repeated. WORD: allow, ask or deny.",
    ),
]
Isolation = Annotated[
    str | None, typer.Option("--isolation", metavar="HOW", help="none, or bwrap: a sandbox for its commands.")
]
NoNetwork = Annotated[bool, typer.Option("--no-network", help="None in that sandbox.")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="NAME", help="sqlite, or nothing.")]
Effort = Annotated[
    str | None, typer.Option("--effort", metavar="WORD", help="How much it is to think: low, medium or high.")
]
From = Annotated[
    str | None,
    typer.Option("--from", metavar="OTHER", help="Begin as that agent is.", autocompletion=complete_known_agent),
]

# -- the commands


@agent.command("list")
def list_(as_json: Json = False, config: Config = None) -> int:
    """List the agents.

    With a star: the one that answers where none is named. Exit codes: 0; 125 a fault of quell's or of its options.

    \b
    quell agent list
    quell agent list --json
    """
    loaded, screen = loaded_from(config), Screen()
    usual = _usual(loaded)
    rows = [_row(one, loaded, usual) for one in agents_of(loaded).values()]
    if as_json:
        screen.json({"agents": rows}, 2)
        return 0
    table = [["NAME", "MODEL", "TOOLS", "APPROVAL", "ISOLATION", "FROM"]]
    for row in rows:
        rules = ", ".join(f"{key} {word}" for key, word in row["approval"].items())
        cells = [f"{row['name']}{'*' if row['default'] else ''}", row["model"], ", ".join(row["tools"]), rules]
        isolation = row["isolation"] if row["network"] or row["isolation"] == "none" else f"{row['isolation']}, offline"
        table.append([*cells, isolation, row["from"]])
    columns.show(screen, table)
    return 0


@agent.command()
def show(name: Name, as_json: Json = False, config: Config = None) -> int:
    """Show all of an agent.

    Each value with where it comes from; what its commands have in their environment is masked.

    \b
    quell agent show assistant
    quell agent show coder --json
    """
    from .effective import Effective, lines, nested

    loaded, screen = loaded_from(config), Screen()
    known = _there(name, loaded)
    rows = Effective(loaded).agent(name)
    if as_json:
        screen.json({"name": name, **nested(rows)["agents"][name]}, 2)
        return 0
    system = known.system.strip()
    screen.lines(lines([row for row in rows if row.key[2:] != ("system",) or not system], whole=True))
    if system:
        text = next(row.value for row in rows if row.key[2:] == ("system",))
        screen.write("\n", ("bold", "system"), "\n", *(f"  {line}\n" for line in str(text).strip().splitlines()))
    return 0


@agent.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Letters, digits, _ and -.")],
    model: Model = None,
    tool: Tool = None,
    strategy: Strategy = None,
    system: System = None,
    approve: Approve = None,
    isolation: Isolation = None,
    no_network: NoNetwork = False,
    memory: Memory = None,
    effort: Effort = None,
    origin: From = None,
    replace: Annotated[bool, typer.Option("--replace", help="In place of the one of that name.")] = False,
    config: Config = None,
) -> int:
    """Add an agent to the file of settings.

    Comments and order of the file are kept. Names are compared with what comes with Quell and is configured.

    \b
    quell agent add coder --model openai:gpt-5 --tool shell --tool edit
    quell agent add careful --from assistant --isolation bwrap --no-network
    quell agent add reviewer --system @review.md --approve 'shell(git status*)=allow'
    """
    from .draft import editing
    from .enlisting import enlist, rules_of, text_of
    from .schema import good_name

    good_name("agents", name)
    flags = {"model": model, "strategy": strategy, "memory": memory, "effort": effort, "isolation": isolation}
    wish: dict[str, Any] = {key: value for key, value in flags.items() if value is not None}
    wish |= {"tools": list(dict.fromkeys(tool))} if tool else {}
    wish |= {"system": text_of(system)} if system is not None else {}
    wish |= {"network": False} if no_network else {}
    rules = rules_of(approve or [])
    with editing(config) as draft:
        there = draft.has(("agents", name))
        if (there or name in BUILT_IN) and not replace:
            raise UsageError(f"there is an agent {name!r} already: --replace takes its place")
        warnings = enlist(draft, name, wish, rules, origin)
        draft.save()
    for warning in warnings:
        note(warning)
    Screen().line(f"{'replaced' if there else 'added'} {name} in {draft.path}")
    return 0


@agent.command()
def remove(name: Name, config: Config = None) -> int:
    """Remove an agent from the file of settings.

    One that is built in can be changed, and not removed.

    \b
    quell agent remove coder
    """
    from .draft import editing

    with editing(config) as draft:
        if not draft.has(("agents", name)):
            if name in BUILT_IN:
                raise UsageError(
                    f"{name} is built in and cannot be removed; quell agent add {name} --replace changes it"
                )
            mine = sorted(draft.get(("agents",))) if draft.has(("agents",)) else []
            raise UsageError(f"there is no agent {name!r} in {draft.path}; {what_there_is('agents', name, mine)}")
        draft.drop(("agents", name))
        loaded = draft.save()
    if loaded.defaults.agent == name and name not in BUILT_IN:
        note(f"defaults.agent names {name} still: quell config set defaults.agent OTHER")
    back = f"; {name} is as it was built in" if name in BUILT_IN else ""
    Screen().line(f"removed {name} from {draft.path}{back}")
    return 0


# -- parts


def _usual(loaded: Loaded) -> str:
    try:
        return chosen(loaded).name
    except UsageError:
        return loaded.defaults.agent


def _row(one: Agent, loaded: Loaded, usual: str) -> dict[str, Any]:
    mine = any(other.name == one.name for other in loaded.agents)
    return {
        "name": one.name,
        "model": one.model,
        "harness": one.harness,
        "strategy": one.strategy,
        "tools": list(one.tools),
        "approval": dict(one.approval),
        "isolation": one.isolation,
        "network": one.network,
        "memory": one.memory,
        "from": "file" if mine else "built in",
        "default": one.name == usual,
    }


def _there(name: str, loaded: Loaded) -> Agent:
    known = agents_of(loaded)
    if name not in known:
        raise UsageError(f"there is no agent {name!r}; {what_there_is('agents', name, sorted(known))}")
    return known[name]
