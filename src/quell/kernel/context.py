"""What a plugin is given to say what it brings (`ports.PluginContext`): nothing is let in once the plugin goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..config import what_there_is
from ..errors import PluginRefusedError, UsageError
from ..events import KINDS, Event, PluginEvent
from .functions import tool_from
from .registry import Registry

if TYPE_CHECKING:
    from ..ports import Handler, Harness, Memory, Model, Strategy, Surface, Tool, Where
    from .plugins import Loaded

    Subscribe = Callable[[Loaded, Handler, Sequence[str], float | None], None]


class Context:
    """What a plugin gets (`ports.PluginContext`)."""

    def __init__(
        self,
        held: Loaded,
        registry: Registry,
        emit: Callable[[Event], object],
        subscribe: Subscribe,
        serve: Callable[[Loaded], None],
        home: str,
    ) -> None:
        self.name = held.name
        self.scope = held.scope
        self.home = home
        self._held = held
        self._registry = registry
        self._emit = emit
        self._subscribe = subscribe
        self._serve = serve

    def model(self, name: str, make: Callable[[], Model]) -> None:
        self._admit()
        if not callable(make):
            raise UsageError(f"{self.name}: the model {name} is given by what makes it, which is called, not {make!r}")
        self._registry.add_model(name, make, plugin=self.name, scope=self.scope)

    def tool(self, tool: Tool | Callable[..., Any], *, where: Where | None = None) -> None:
        self._admit()
        made = tool if hasattr(tool, "spec") and hasattr(tool, "call") else tool_from(tool, where)
        if made is tool and where is not None:
            raise PluginRefusedError(
                f"{self.name}: the tool {made.spec.name} is no function, and says itself where it runs"
            )
        self._registry.add("tool", made.spec.name, made, plugin=self.name)

    def strategy(self, name: str, strategy: Strategy) -> None:
        self._admit()
        self._has("strategy", name, strategy, "next")
        self._registry.add("strategy", name, strategy, plugin=self.name)

    def memory(self, name: str, memory: Memory) -> None:
        self._admit()
        self._has("memory", name, memory, "store", "recall")
        self._registry.add("memory", name, memory, plugin=self.name)

    def harness(self, name: str, harness: Harness) -> None:
        self._admit()
        self._has("harness", name, harness, "start")
        self._registry.add("harness", name, harness, plugin=self.name)

    def surface(self, name: str, surface: Surface) -> None:
        self._admit()
        self._has("surface", name, surface, "serve")
        self._registry.add("surface", name, surface, plugin=self.name)
        self._serve(self._held)

    def on(self, kinds: str | Sequence[str], handler: Handler, *, deadline: float | None = None) -> None:
        self._admit()
        if not callable(handler):
            raise UsageError(f"{self.name}: a handler is called with each event, and {handler!r} cannot be")
        wanted = [kinds] if isinstance(kinds, str) else list(kinds)
        for kind in wanted:
            _check_kind(kind)
        self._subscribe(self._held, handler, () if "" in wanted else wanted, deadline)

    def emit(self, name: str, data: Any = None, *, session: str = "") -> None:
        self._admit()
        if not name:
            raise UsageError(f"an event of {self.name} needs a name: x.{self.name}.<name>")
        source = f"plugin:{self.name}"
        self._emit(PluginEvent(plugin=self.name, name=name, data=data, session=session, source=source))

    def _has(self, kind: str, name: str, thing: object, *methods: str) -> None:
        """Said at setup, not at the first call."""
        if missing := [one for one in methods if not callable(getattr(thing, one, None))]:
            raise UsageError(f"{self.name}: the {kind} {name} has no method {missing[0]}")

    def _admit(self) -> None:
        if self._held.gone is not None:
            raise PluginRefusedError(f"the plugin {self.name} is unloaded: it brings nothing any more")


def _check_kind(kind: str) -> None:
    """H53: a handler of a kind that never comes would be silently inert."""
    known = kind == "" or kind.startswith("x.") or kind in KINDS or kind == "x"
    if known or (kind.endswith(".") and any(one.startswith(kind) for one in KINDS)):
        return
    raise UsageError(f"there is no event {kind!r}; {what_there_is('events', kind, sorted(KINDS))}")
