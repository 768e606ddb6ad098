"""What plugins bring, by kind and name: a name is taken once, each entry knows its plugin and goes with it.

A model is made when it is first used, once and in a thread: however slow its imports are, the loop turns (H25).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from ..config import what_there_is
from ..errors import PluginRefusedError, UsageError
from ..supervise.errand import Fact

if TYPE_CHECKING:
    from ..ports import Harness, Memory, Model, Strategy, Surface, Tool
    from ..supervise.scope import Scope

T = TypeVar("T")
Kind = Literal["model", "tool", "strategy", "memory", "harness", "surface"]
KINDS: tuple[Kind, ...] = ("model", "tool", "strategy", "memory", "harness", "surface")
_PLURALS = {"strategy": "strategies", "memory": "memories", "harness": "harnesses"}

MAKE_LIMIT = 60.0
"""Seconds that whoever needs a model waits for it to be made: imports and a first look at a disk, no network."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
"""What models and people can type."""


class Entry(Generic[T]):
    """One thing that a plugin brought."""

    __slots__ = ("plugin", "thing")

    def __init__(self, plugin: str, thing: T) -> None:
        self.plugin = plugin
        self.thing = thing


class Making:
    """A model's factory, and what became of its call."""

    def __init__(self, name: str, plugin: str, make: Callable[[], Model], scope: Scope) -> None:
        self._name = name
        self._plugin = plugin
        self._make = make
        self._scope = scope
        self._made: Fact[Model] | None = None

    async def wait(self, limit: float) -> Model:
        """Made by whoever asks first, for everybody; a failure is told to those who wait, and the next one tries again.

        The thread belongs to the plugin's scope: cancelling an asker, or its deadline, does not break it off.
        """
        loop = asyncio.get_running_loop()
        made = self._made if self._made is not None else self._begin(loop)
        over: Fact[None] = Fact(loop)

        def settled() -> None:
            over.tell(None)

        made.then(settled)
        clock = loop.call_later(limit, settled)
        try:
            await over.wait()
        finally:
            clock.cancel()
            made.forget(settled)
        if not made.known:
            raise TimeoutError(f"the model {self._name} of {self._plugin} was not made within {limit:g} s")
        return made.get()

    def _begin(self, loop: asyncio.AbstractEventLoop) -> Fact[Model]:
        made = self._made = Fact(loop)
        try:
            task = self._scope.task(in_thread(self._make, f"model {self._name}"), name=f"model {self._name}")
        except BaseException:
            self._made = None
            raise
        task.add_done_callback(lambda ended: self._tell(made, ended))
        return made

    def _tell(self, made: Fact[Model], ended: asyncio.Task[Model]) -> None:
        if ended.cancelled():
            self._made = None
            made.fail(PluginRefusedError(f"the model {self._name} went with its plugin {self._plugin}"))
        elif (error := ended.exception()) is not None:
            self._made = None
            made.fail(error)
        else:
            made.tell(ended.result())


def provider(model: str) -> str:
    """Who serves it: `openai` of `openai:gpt-5`."""
    return model.partition(":")[0]


class Registry:
    def __init__(self, *, make_limit: float = MAKE_LIMIT) -> None:
        self._make_limit = make_limit
        self._entries: dict[Kind, dict[str, Entry[Any]]] = {kind: {} for kind in KINDS}

    # -- entering and leaving

    def add(self, kind: Kind, name: str, thing: Any, *, plugin: str) -> None:
        """PluginRefusedError says who has the name."""
        if NAME.fullmatch(name) is None:
            rule = "a name is a letter, then letters, digits, `_`, `-` and `.`, up to 64 in all"
            raise PluginRefusedError(f"{plugin} cannot name a {kind} {name!r}: {rule}")
        taken = self._entries[kind].get(name)
        if taken is not None:
            whose = "itself" if taken.plugin == plugin else f"the plugin {taken.plugin}"
            raise PluginRefusedError(f"{plugin} cannot bring the {kind} {name}: {whose} has brought one of that name")
        self._entries[kind][name] = Entry(plugin, thing)

    def add_model(self, name: str, make: Callable[[], Model], *, plugin: str, scope: Scope) -> None:
        """`scope` is the plugin's: the thread in which the model is made belongs to it."""
        self.add("model", name, Making(name, plugin, make, scope), plugin=plugin)

    def drop(self, plugin: str) -> None:
        """Remove all that this plugin brought."""
        for entries in self._entries.values():
            for name in [name for name, entry in entries.items() if entry.plugin == plugin]:
                del entries[name]

    # -- looking up: UsageError names the nearest and what there is

    async def model(self, name: str) -> Model:
        """Of `provider:model`, the provider. TimeoutError when it is not there in time; what its factory raises too."""
        making: Making = self.need("model", provider(name)).thing
        return await making.wait(self._make_limit)

    def tool(self, name: str) -> Tool:
        return self.need("tool", name).thing  # type: ignore[no-any-return]  # what `add` was given for this kind

    def strategy(self, name: str) -> Strategy:
        return self.need("strategy", name).thing  # type: ignore[no-any-return]  # as above

    def memory(self, name: str) -> Memory:
        return self.need("memory", name).thing  # type: ignore[no-any-return]  # as above

    def harness(self, name: str) -> Harness:
        return self.need("harness", name).thing  # type: ignore[no-any-return]  # as above

    def surfaces(self, plugin: str) -> dict[str, Surface]:
        """Those that this plugin brought, by name."""
        return {name: one.thing for name, one in self._entries["surface"].items() if one.plugin == plugin}

    def surface(self, name: str) -> Surface:
        return self.need("surface", name).thing  # type: ignore[no-any-return]  # as above

    def owner(self, kind: Kind, name: str) -> str:
        """The plugin that brought it; empty when it is gone."""
        entry = self._entries[kind].get(name)
        return entry.plugin if entry is not None else ""

    def has(self, kind: Kind, name: str) -> bool:
        return name in self._entries[kind]

    def names(self, kind: Kind) -> list[str]:
        return sorted(self._entries[kind])

    def provides(self, plugin: str) -> list[str]:
        """All that it brought, as `tool greet`."""
        return [f"{kind} {name}" for kind in KINDS for name, one in self._entries[kind].items() if one.plugin == plugin]

    def need(self, kind: Kind, name: str) -> Entry[Any]:
        """UsageError if there is none."""
        entry = self._entries[kind].get(name)
        if entry is None:
            raise UsageError(
                f"there is no {kind} {name!r}; {what_there_is(_PLURALS.get(kind, f'{kind}s'), name, self.names(kind))}"
            )
        return entry


async def in_thread(call: Callable[[], T], name: str) -> T:
    """Run it in a thread that the current scope has on its list, by this name (H26)."""

    def civil() -> T:
        try:
            return call()
        except (StopIteration, SystemExit, KeyboardInterrupt) as error:
            # H41: the first would be lost on its way to the loop, the others would take the runtime with them.
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    civil.__qualname__ = name
    return await asyncio.to_thread(civil)


async def civil(awaitable: Awaitable[T]) -> T:
    """Await it; an exit in it is a failure of the call, and not the end of the runtime."""
    try:
        return await awaitable
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error
