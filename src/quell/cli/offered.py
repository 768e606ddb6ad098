"""What an agent may name, as far as can be told without loading plugins: what comes with Quell, and what is configured.

Somebody else's plugin may bring anything; so with one of those a name that is not known is a warning, else a fault.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from ..config import ASSISTANT, SCRIPTED, Agent, what_there_is
from ..configfile import BUILT_IN, Loaded
from ..errors import UsageError
from ..kernel.discovery import enabled_in
from ..supervise.ledger import state_dir

TOOLS = tuple(dict.fromkeys((*SCRIPTED.tools, *ASSISTANT.tools, "fetch")))
PROVIDERS = ("scripted", "openai", "anthropic")
STRATEGIES = ("tools", "react")
MEMORIES = ("sqlite",)


def check(agent: Agent, loaded: Loaded) -> list[str]:
    """What is to be said of it. UsageError names the nearest of a name that cannot be there."""
    unknown = list(_unknown(agent, loaded))
    if unknown and not _others():
        raise UsageError(unknown[0])
    said = [f"{one}; a plugin must bring it" for one in unknown]
    if agent.isolation == "bwrap" and shutil.which("bwrap", path=os.environ.get("PATH")) is None:
        said.append("isolation bwrap needs bubblewrap, and there is no bwrap on PATH: install it before you use this")
    return said


def doubts(loaded: Loaded) -> tuple[list[str], list[str]]:
    """What a whole configuration names and is not there: faults, and what is only to be said."""
    faults: list[str] = []
    said: list[str] = []
    for agent in loaded.agents:
        try:
            said += [f"agents.{agent.name}: {one}" for one in check(agent, loaded)]
        except UsageError as error:
            faults.append(f"agents.{agent.name}: {error}")
    known = sorted({*BUILT_IN, *(one.name for one in loaded.agents)})
    default = loaded.defaults.agent
    if default and default not in known:
        sentence = f"there is no agent {default!r}; {what_there_is('agents', default, known)}"
        faults.append(f"defaults.agent: {sentence}")
    model = loaded.defaults.model.partition(":")[0]
    if model and model not in providers(loaded):
        sentence = f"there is no model {model!r}; {what_there_is('models', model, providers(loaded))}"
        (said if _others() else faults).append(f"defaults.model: {sentence}")
    return faults, said


def providers(loaded: Loaded) -> list[str]:
    return list(dict.fromkeys((*PROVIDERS, *(one.name for one in loaded.providers))))


def _unknown(agent: Agent, loaded: Loaded) -> Iterator[str]:
    wanted = [("tool", tool, list(TOOLS)) for tool in agent.tools]
    if agent.model:
        wanted.append(("model", agent.model.partition(":")[0], providers(loaded)))
    wanted.append(("strategy", agent.strategy, list(STRATEGIES)))
    if agent.memory:
        wanted.append(("memory", agent.memory, list(MEMORIES)))
    for what, name, known in wanted:
        if name not in known:
            yield f"there is no {what} {name!r}; {what_there_is(_MANY[what], name, known)}"


_MANY = {"tool": "tools", "model": "models", "strategy": "strategies", "memory": "memories"}


def _others() -> bool:
    """Whether there are plugins that are not ours."""
    return any(not one.bundled for one in enabled_in(state_dir()))
