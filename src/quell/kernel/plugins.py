"""Plugins are loaded into scopes of their own and unloaded without a trace: what one started ends with it.

Loading and unloading are nobody's to break off: whoever asks only waits, a load whose asker is cancelled is undone
(H01, H02). A plugin that fails three times in a row is unloaded with an event (H38); what is bundled never is (H52).
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..config import what_there_is
from ..errors import PluginRefusedError, UsageError
from ..events import Event, PluginError, PluginLoaded, PluginRemoved
from ..supervise.errand import Fact, see_to
from .bus import OF_ERRORS, Bus
from .context import Context
from .discovery import NAME, NAME_RULE, Found, find, is_bundled
from .registry import Registry, civil, in_thread
from .subscription import Subscription, said

if TYPE_CHECKING:
    from ..ports import Handler, Plugin, Surface
    from ..supervise import Receipt, Scope

__all__ = ["Found", "Loaded", "Plugins", "find", "is_bundled"]

SETUP_LIMIT = 30.0
"""Seconds for a plugin to be imported and set up: it may start a server, which may be slow."""
TOLERATED = 3
"""Failures one after another, with no success between, that end it."""

_log = logging.getLogger("quell")


class Loaded:
    """One plugin, from the moment that its name is taken until it is free again."""

    def __init__(self, name: str, version: str, bundled: bool, scope: Scope) -> None:
        self.name = name
        self.version = version
        self.bundled = bundled
        self.scope = scope
        self.failures = 0
        self.up = False
        self.subscriptions: list[Subscription] = []
        self.served: set[str] = set()
        """Its surfaces that were started."""
        self.setup: asyncio.Task[None] | None = None
        self.ready: Fact[None]
        self.gone: Fact[Receipt] | None = None
        """Set when it begins to go: nothing of it is let in any more."""
        self.why = ""


class Listening:
    """A plugin's handler, and over which events it is at work."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._running: list[Event] = []
        self._raised: Event | None = None

    async def __call__(self, event: Event) -> None:
        self._running.append(event)
        try:
            result = self._handler(event)
            if inspect.isawaitable(result):
                await civil(result)
        except Exception:
            self._raised = event
            raise
        finally:
            self._running.remove(event)

    def failed_over_error(self) -> bool:
        """Asked in the step in which it failed: whether that was, or (when it is late) may have been, over an error."""
        over = self._running if self._raised is None else [self._raised]
        self._raised = None
        return any(event.kind in OF_ERRORS for event in over)


class Plugins:
    """`emit` writes an event to the log; `deadline` is read when it is used. Everything is called in the loop."""

    def __init__(
        self,
        scope: Scope,
        registry: Registry,
        bus: Bus,
        emit: Callable[[Event], object],
        *,
        deadline: float = SETUP_LIMIT,
        home: str = "",
    ) -> None:
        self._scope = scope
        self._home = home
        self._registry = registry
        self._bus = bus
        self._emit = emit
        self.deadline = deadline
        self._held: dict[str, Loaded] = {}
        self._quiet = False
        self._serving = False

    @property
    def loaded(self) -> Mapping[str, Loaded]:
        """Those that are set up, by name."""
        return MappingProxyType({name: one for name, one in self._held.items() if one.up and one.gone is None})

    # -- loading

    async def load(self, plugin: Plugin, *, bundled: bool = False, version: str = "") -> None:
        """PluginRefusedError says why it is not loaded; nothing of it is left then. A cancelled load is undone."""
        name = str(getattr(plugin, "name", ""))
        while (other := self._held.get(name)) is not None and other.gone is not None:
            await other.gone.wait()
        held = self._begin(name, lambda: plugin, bundled, version, imported=True)
        try:
            await held.ready.wait()
        except asyncio.CancelledError:
            self._end(held, "its loading was cancelled")
            raise

    async def load_all(self, found: Sequence[Found]) -> None:
        """Bundled ones first, else all at once; one that fails is told by an event, and holds up no other."""
        begun: list[Loaded] = []
        try:
            for group in ([one for one in found if one.bundled], [one for one in found if not one.bundled]):
                batch = [held for one in group if (held := self._begin_found(one)) is not None]
                begun += batch
                for held in batch:
                    try:
                        await held.ready.wait()
                    except PluginRefusedError:
                        continue  # the event has told
        except asyncio.CancelledError:
            for held in begun:
                self._end(held, "its loading was cancelled")
            raise

    def _begin_found(self, found: Found) -> Loaded | None:
        try:
            return self._begin(found.name, found.load, found.bundled, found.version, imported=False)
        except PluginRefusedError as error:
            self._tell(PluginError(plugin=found.name, call="load", error=said(error)))
            return None

    def _begin(self, name: str, make: Callable[[], Plugin], bundled: bool, version: str, *, imported: bool) -> Loaded:
        """Take the name, at once; everything else is an errand of ours."""
        if self._quiet:
            raise PluginRefusedError("the runtime is stopping: no plugin is loaded any more")
        if NAME.fullmatch(name) is None:
            raise PluginRefusedError(f"a plugin cannot be named {name!r}: {NAME_RULE}")
        if (other := self._held.get(name)) is not None:
            state = "being unloaded" if other.gone is not None else "loaded" if other.up else "being loaded"
            raise PluginRefusedError(f"there is a plugin {name} already, which is {state}: its name is taken")
        held = self._held[name] = Loaded(name, version, bundled, self._scope.scope(f"plugin-{name}"))
        loop = asyncio.get_running_loop()
        held.ready = see_to(loop, lambda: self._see_to_setup(held, make, imported))
        return held

    async def _see_to_setup(self, held: Loaded, make: Callable[[], Plugin], imported: bool) -> None:
        """An errand: the setup itself is a task of the plugin's scope, and has its deadline."""
        why = ""
        try:
            if held.setup is None:
                held.setup = held.scope.task(self._set_up(held, make, imported), name=f"setup of {held.name}")
                held.setup.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            limit = self.deadline
            await asyncio.wait([held.setup], timeout=limit)
            why = f"CancelledError: {held.why}" if held.why else _why_not(held.setup, limit)
            if not why and held.gone is None:
                self._emit(
                    PluginLoaded(plugin=held.name, version=held.version, provides=self._registry.provides(held.name))
                )
                held.up = True
                self._serve(held)
                return
        except Exception as error:  # noqa: BLE001  a boundary: the name must not stay taken by what is not loaded
            why = said(error)
        self._tell(PluginError(plugin=held.name, call="setup", error=why))
        await self._end(held, why).wait()
        raise PluginRefusedError(f"the plugin {held.name} was not loaded: {why}")

    async def _set_up(self, held: Loaded, make: Callable[[], Plugin], imported: bool) -> None:
        plugin = make() if imported else await in_thread(make, f"import of {held.name}")  # H25: an import may be slow
        if plugin.name != held.name:
            raise PluginRefusedError(f"its entry point is named {held.name}, and the plugin itself {plugin.name}")
        try:
            result = plugin.setup(Context(held, self._registry, self._emit, self._subscribe, self._serve, self._home))
            if inspect.isawaitable(result):
                await result
        except SystemExit as error:
            raise RuntimeError(f"SystemExit: {error}") from error  # else it would end the runtime

    # -- surfaces

    def serve(self) -> None:
        """Run the surfaces of all plugins, and of those that come later, until each goes with its plugin."""
        self._serving = True
        for held in self.loaded.values():
            self._serve(held)

    def _serve(self, held: Loaded) -> None:
        """Start those of its surfaces that were not."""
        for name, surface in self._registry.surfaces(held.name).items():
            if self._serving and held.up and held.gone is None and name not in held.served:
                held.served.add(name)
                begin(held, name, surface, self.failed)

    # -- unloading

    async def unload(self, name: str, reason: str = "it was removed") -> None:
        """All that it started has ended when this returns. What is bundled is refused. Cancelling changes nothing."""
        await see_to(asyncio.get_running_loop(), lambda: self._see_to_unload(name, reason)).wait()

    async def _see_to_unload(self, name: str, reason: str) -> None:
        ours = await asyncio.get_running_loop().run_in_executor(None, is_bundled, name)  # H52: not what we remember
        held = self._held.get(name)
        if ours or (held is not None and held.bundled):
            what = f"`quell plugin disable {name}` keeps it from being loaded"
            raise PluginRefusedError(f"{name} comes with Quell and cannot be removed; {what}")
        if held is None:
            raise UsageError(f"there is no plugin {name!r}; {what_there_is('plugins', name, sorted(self._held))}")
        await self._end(held, reason).wait()

    async def close(
        self, reason: str = "the runtime stops", *, grace: float | None = None, force: bool = False
    ) -> list[Receipt]:
        """Unload all, the bundled ones too, at once and without events: the runtime's own tell of it."""
        self._quiet = True
        ends = [self._end(held, reason, grace, force) for held in list(self._held.values())]
        return [await fact.wait() for fact in ends]

    def _end(self, held: Loaded, reason: str, grace: float | None = None, force: bool = False) -> Fact[Receipt]:
        """Begin to unload it, or join whoever does; `force` cuts it short."""
        loop = asyncio.get_running_loop()
        if held.gone is None:
            held.why = "" if held.up else reason
            gone = held.gone = Fact(loop)
            done = see_to(loop, lambda: self._see_to_end(held, reason, grace, force))
            gone.repeat(done)
        elif force and held.scope.stopping is not None:
            held.scope.stopping.force()
        return held.gone

    async def _see_to_end(self, held: Loaded, reason: str, grace: float | None, force: bool) -> Receipt:
        while held.subscriptions:
            held.subscriptions.pop().close()
        self._registry.drop(held.name)
        stop = held.scope.plan_stop(f"plugin {held.name}: {reason}", grace, force)
        stop.start()
        receipt = await stop.result.wait()
        if self._held.get(held.name) is held:
            del self._held[held.name]
        if not receipt.confirmed:
            self._tell(PluginError(plugin=held.name, call="unload", error=f"unconfirmed: {receipt.sentence()}"))
        if held.up and not self._quiet:
            self._tell(PluginRemoved(plugin=held.name, reason=reason))
        return receipt

    # -- failures

    def failed(self, name: str, call: str, error: BaseException | str) -> None:
        """A call into it went wrong. The third in a row unloads it, unless it is bundled."""
        held = self._held.get(name)
        if held is not None and held.gone is None:
            what = error if isinstance(error, str) else said(error)
            self._tell(PluginError(plugin=name, call=call, error=what))
            self._count(held, f"in {call}: {what}")

    def succeeded(self, name: str) -> None:
        """H38: only failures in a row count."""
        held = self._held.get(name)
        if held is not None:
            held.failures = 0

    def _count(self, held: Loaded, what: str) -> None:
        held.failures += 1
        if held.failures >= TOLERATED and held.up and not held.bundled and held.gone is None:
            self._end(held, f"it failed {TOLERATED} times in a row, the last time {what}")

    def _subscribe(self, held: Loaded, handler: Handler, kinds: Sequence[str], deadline: float | None) -> None:
        call = f"handler {getattr(handler, '__qualname__', None) or type(handler).__qualname__}"
        listening = Listening(handler)

        def failed(_: Subscription, error: BaseException) -> None:
            if listening.failed_over_error():  # H41: the bus has put it into the program's own log; errors breed none
                self._count(held, f"in {call}: {said(error)}")
            else:
                self.failed(held.name, call, error)

        subscription = self._bus.subscribe(
            listening,
            kinds=kinds,
            name=f"{held.name}: {call}",
            deadline=deadline,
            failed=failed,
            done=lambda _: self.succeeded(held.name),
            scope=held.scope,
        )
        held.subscriptions.append(subscription)

    def _tell(self, event: Event) -> None:
        """A log that cannot be written must not keep a plugin from being ended."""
        try:
            self._emit(event)
        except Exception:  # noqa: BLE001  a boundary: said in the program's own log
            _log.exception("an event could not be written: %r", event)


def begin(held: Loaded, name: str, surface: Surface, failed: Callable[[str, str, BaseException], None]) -> None:
    """Run a surface in a scope of its own, of which nothing is left where it raises."""
    call = f"surface {name}"

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            scope.begin_stop(f"{call} failed")
            failed(held.name, call, error)

    try:
        scope = held.scope.scope(f"surface-{name}")
        scope.task(civil(surface.serve(scope)), name=call).add_done_callback(ended)
    except Exception as error:  # noqa: BLE001  a boundary: a surface that is no coroutine, or a scope that is over
        failed(held.name, call, error)


def _why_not(setup: asyncio.Task[None], deadline: float) -> str:
    """Why a setup did not succeed; empty when it did."""
    if not setup.done():
        return f"TimeoutError: its setup did not end within {deadline:g} s"
    if setup.cancelled():
        return "CancelledError: its setup was cancelled"
    error = setup.exception()
    return "" if error is None else said(error)
