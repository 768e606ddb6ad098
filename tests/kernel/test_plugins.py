"""A plugin is loaded with a deadline, unloaded without a trace, and cannot take anybody else with it."""

import asyncio
import contextlib
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import quell
from quell.errors import PluginRefusedError, UsageError
from quell.events import Event, SessionOpened
from quell.kernel.discovery import Found, enabled_in, find, is_bundled
from quell.ports import PluginContext
from quell.testing import Leak, cancel_everywhere, census
from tests.supervise.loops import LOOPS, outcome, run_on, until

from .plugged import Made, Plugged, bringing, names, plugged

Scenario = Callable[[Plugged], Awaitable[None]]


def run(scenario: Scenario, deadline: float = 5.0, loop: str = "asyncio") -> None:
    async def main() -> None:
        async with plugged(deadline) as here:
            await scenario(here)

    run_on(LOOPS[loop], main)


class Busy:
    """Has a task, a process and a server of its own, and brings one of each kind."""

    name = "busy"

    def __init__(self) -> None:
        self.process: quell.Process | None = None
        self.heard: list[Event] = []

    async def setup(self, ctx: PluginContext) -> None:
        thing: Any = Mock(spec_set=["next", "store", "recall", "start", "serve"])
        ctx.scope.task(asyncio.sleep(600), name="a task of its own")
        self.process = await ctx.scope.spawn(["sleep", "600"])
        await ctx.scope.enter(serving())
        ctx.model("m", lambda: thing)
        ctx.tool(shout)
        ctx.strategy("s", thing)
        ctx.memory("y", thing)
        ctx.harness("h", thing)
        ctx.surface("f", thing)
        ctx.on("session.", self.hear)

    async def hear(self, event: Event) -> None:
        self.heard.append(event)


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[asyncio.Server]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server
    finally:
        server.close()
        await server.wait_closed()


async def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


@contextlib.asynccontextmanager
async def ready() -> AsyncIterator[Plugged]:
    async with plugged() as here:
        await fill_pool(here.sup)
        yield here


async def fill_pool(sup: quell.Supervisor) -> None:
    """Its box is made and its pool full, so that nothing of these is taken for somebody else's."""
    await (await sup.spawn(["true"])).wait()
    zygote = sup._shared.hub.zygote
    while len(zygote._spare) < zygote._pool or not all(box.settled() for box in zygote._spare):
        await asyncio.sleep(0.001)
        zygote.refill()


# -- loading and unloading


@pytest.mark.parametrize("loop", LOOPS)
def test_a_plugin_with_a_task_a_process_and_a_server_unloads_to_the_baseline(loop: str) -> None:
    """H03, H07: nothing of it is left, and everybody else lives on."""

    async def scenario(here: Plugged) -> None:
        await fill_pool(here.sup)
        await asyncio.to_thread(int)  # so that the executor has its thread
        async with serving():
            pass  # libuv keeps a descriptor from the first server on
        before = census()
        busy = Busy()
        await here.plugins.load(busy, version="1.2")
        assert here.registry.provides("busy") == [
            "model m",
            "tool shout",
            "strategy s",
            "memory y",
            "harness h",
            "surface f",
        ]
        assert list(here.plugins.loaded) == ["busy"] and here.registry.owner("tool", "shout") == "busy"
        here.emit(SessionOpened(session="s1"))
        assert await until(lambda: bool(busy.heard))
        assert await here.registry.model("m") is await here.registry.model("m")
        await here.plugins.unload("busy", "enough")
        assert busy.process is not None and busy.process.returncode is not None
        assert here.registry.provides("busy") == [] and not here.plugins.loaded
        assert here.bus._general == []
        here.emit(SessionOpened(session="s2"))
        await here.bus.drained()
        assert len(busy.heard) == 1
        assert here.kinds() == ["plugin.loaded", "plugin.removed"] and here.reasons() == ["enough"]
        assert await until(lambda: not before.leaks(settle=0)), before.leaks(settle=0)

    run(scenario, loop=loop)


async def raises(ctx: PluginContext) -> None:
    ctx.tool(shout)
    ctx.on("", Busy().hear)
    await ctx.scope.spawn(["sleep", "600"])
    raise ValueError("no key")


async def hangs(ctx: PluginContext) -> None:
    ctx.tool(shout)
    await asyncio.sleep(600)


async def is_cancelled(ctx: PluginContext) -> None:
    ctx.tool(shout)
    raise asyncio.CancelledError


def leaves(ctx: PluginContext) -> None:
    ctx.tool(shout)
    sys.exit(3)


async def clings(ctx: PluginContext) -> None:
    """Does not end when it is cancelled, and fails later."""
    ctx.tool(shout)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(600)
    raise ValueError("too late to be told")


@pytest.mark.parametrize(
    ("setup", "why"),
    [
        (raises, "ValueError: no key"),
        (hangs, "TimeoutError: its setup did not end within 0.3 s"),
        (clings, "TimeoutError: its setup did not end within 0.3 s"),
        (is_cancelled, "CancelledError: its setup was cancelled"),
        (leaves, "RuntimeError: SystemExit: 3"),
    ],
)
def test_a_setup_that_fails_leaves_nothing_and_says_why(setup: Callable[[PluginContext], Any], why: str) -> None:
    """H32, H35, H41: nothing registered, nothing running, one event."""

    async def scenario(here: Plugged) -> None:
        with pytest.raises(PluginRefusedError, match=f"the plugin made was not loaded: {why}"):
            await here.plugins.load(Made(setup))
        assert here.errors() == [("made", "setup", why)] and here.kinds() == ["plugin.error"]
        assert here.registry.names("tool") == [] and not here.plugins.loaded
        assert here.sup.find("plugins") is not None and here.sup.find("plugins").nested() == []  # type: ignore[union-attr]
        await here.plugins.load(bringing("shout"))
        assert here.registry.names("tool") == ["shout"]

    run(scenario, deadline=0.3)


def test_one_that_fails_holds_up_no_other() -> None:
    async def scenario(here: Plugged) -> None:
        found: list[Any] = [
            StandIn("slow", Made(hangs, "slow")),
            StandIn("bad", Made(raises, "bad")),
            StandIn("good", bringing("say", plugin="good")),
            StandIn("broken", None, fault="it cannot be read"),
            StandIn("named-so", bringing("other", plugin="otherwise")),
            StandIn("Bad Name", None),
            StandIn("ours", bringing("first", plugin="ours"), bundled=True),
        ]
        began = time.monotonic()
        await here.plugins.load_all(found)
        assert time.monotonic() - began < 5
        assert sorted(here.plugins.loaded) == ["good", "ours"] and here.registry.names("tool") == ["first", "say"]
        assert here.kinds()[0] == "plugin.loaded"
        told = {plugin: error for plugin, _, error in here.errors()}
        assert sorted(told) == ["Bad Name", "bad", "broken", "named-so", "slow"]
        assert told["broken"] == "PluginRefusedError: it cannot be read"
        assert "its entry point is named named-so, and the plugin itself otherwise" in told["named-so"]

    run(scenario, deadline=0.5)


class StandIn(Found):
    def __init__(self, name: str, plugin: Made | None, *, fault: str = "", bundled: bool = False) -> None:
        super().__init__(name, distribution="quell" if bundled else "other", fault=fault)
        self._plugin = plugin

    def load(self) -> Any:
        assert threading.current_thread() is not threading.main_thread(), "H25: an import is never run on the loop"
        return super().load() if self._plugin is None else self._plugin


def test_an_import_that_hangs_has_the_deadline_of_the_setup() -> None:
    """H25: it runs in a thread; that the thread cannot be ended is said."""
    release = threading.Event()

    class Stuck(StandIn):
        def load(self) -> Any:
            release.wait(10)
            return self._plugin

    async def scenario(here: Plugged) -> None:
        await here.plugins.load_all([Stuck("made", bringing("say"))])
        release.set()
        told = here.errors()
        assert told[0] == ("made", "setup", "TimeoutError: its setup did not end within 0.2 s")
        assert told[1][:2] == ("made", "unload") and "import of made" in told[1][2]

    run(scenario, deadline=0.2)


def test_a_name_is_taken_once_and_the_owner_is_named() -> None:
    async def scenario(here: Plugged) -> None:
        await here.plugins.load(bringing("say", plugin="one"))
        with pytest.raises(PluginRefusedError, match="two cannot bring the tool say: the plugin one has brought one"):
            await here.plugins.load(bringing("more", "say", plugin="two"))
        assert here.registry.names("tool") == ["say"]
        with pytest.raises(PluginRefusedError, match="there is a plugin one already, which is loaded"):
            await here.plugins.load(bringing("other", plugin="one"))
        with pytest.raises(PluginRefusedError, match=r"a plugin cannot be named 'a\.b'"):
            await here.plugins.load(bringing("other", plugin="a.b"))
        with pytest.raises(PluginRefusedError, match="cannot name a tool 'a b'"):
            await here.plugins.load(bringing("a b", plugin="three"))
        with pytest.raises(UsageError, match=r"there is no plugin 'on'; did you mean one\? there is one"):
            await here.plugins.unload("on")

    run(scenario)


def test_a_lookup_of_what_is_not_there_names_the_nearest() -> None:
    async def scenario(here: Plugged) -> None:
        await here.plugins.load(bringing("shell", "read"))
        with pytest.raises(UsageError, match=r"there is no tool 'shel'; did you mean shell\? there are read, shell"):
            here.registry.tool("shel")
        with pytest.raises(UsageError, match="there is no strategy 'x'; there are no strategies"):
            here.registry.strategy("x")
        with pytest.raises(UsageError, match="there is no model 'x'"):
            await here.registry.model("x")
        assert here.registry.owner("tool", "gone") == ""

    run(scenario)


def test_what_is_unloaded_brings_nothing_any_more() -> None:
    async def scenario(here: Plugged) -> None:
        kept: list[PluginContext] = []
        await here.plugins.load(Made(kept.append))
        [ctx] = kept
        ctx.tool(shout)  # later than its setup: allowed while it is loaded
        ctx.emit("seen", {"a": 1}, session="s1")
        await here.plugins.unload("made")
        calls: list[Callable[[], None]] = [
            lambda: ctx.tool(shout),
            lambda: ctx.emit("seen"),
            lambda: ctx.on("", Busy().hear),
        ]
        for late in calls:
            with pytest.raises(PluginRefusedError, match="the plugin made is unloaded"):
                late()
        with pytest.raises(quell.ScopeStoppedError):
            await ctx.scope.spawn(["true"])
        own = next(one for one in here.events if one.kind == "x")
        assert (own.source, own.session) == ("plugin:made", "s1")

    run(scenario)


def test_a_handler_of_a_kind_that_never_comes_is_refused() -> None:
    """H53: it would be accepted and ignored."""

    async def scenario(here: Plugged) -> None:
        def hears(*kinds: str) -> Made:
            return Made(lambda ctx: ctx.on(kinds, Busy().hear))

        for kind in ("tool.endet", "tools.", "nonsense"):
            with pytest.raises(PluginRefusedError, match="there is no event"):
                await here.plugins.load(hears(kind))
        await here.plugins.load(hears("tool.ended", "tool.", "x.other.thing", ""))

    run(scenario)


def test_an_unload_during_the_setup_ends_both() -> None:
    async def scenario(here: Plugged) -> None:
        began = asyncio.Event()

        async def setup(ctx: PluginContext) -> None:
            began.set()
            await asyncio.sleep(600)

        loading = here.sup.task(here.plugins.load(Made(setup)))
        await began.wait()
        await here.plugins.unload("made", "not wanted")
        assert await outcome(loading) == "PluginRefusedError"
        assert here.errors() == [("made", "setup", "CancelledError: not wanted")]

    run(scenario)


def test_a_load_whose_asker_is_cancelled_is_undone_and_can_be_asked_for_again() -> None:
    """H01, H02."""

    async def scenario(here: Plugged) -> None:
        began = asyncio.Event()

        async def setup(ctx: PluginContext) -> None:
            ctx.tool(shout)
            await ctx.scope.spawn(["sleep", "600"])
            began.set()
            await asyncio.sleep(600)

        loading = here.sup.task(here.plugins.load(Made(setup)))
        await began.wait()
        loading.cancel()
        assert await outcome(loading) == "cancelled"
        await here.plugins.load(bringing("shout"))
        assert here.errors() == [("made", "setup", "CancelledError: its loading was cancelled")]
        assert here.registry.names("tool") == ["shout"]

    run(scenario)


# -- failures


def test_three_failures_in_a_row_unload_it_and_a_success_between_does_not() -> None:
    """H38: 2 bad, 1 good, 1 bad: still loaded."""

    async def scenario(here: Plugged) -> None:
        await here.plugins.load(bringing("say"))
        for call in ("bad", "bad", "good", "bad", "bad"):
            if call == "bad":
                here.plugins.failed("made", "tool say", ValueError("no"))
            else:
                here.plugins.succeeded("made")
        assert "made" in here.plugins.loaded and here.registry.names("tool") == ["say"]
        here.plugins.failed("made", "tool say", ValueError("no"))
        assert "made" not in here.plugins.loaded and here.registry.names("tool") == []
        await here.heard(7)
        assert here.reasons() == ["it failed 3 times in a row, the last time in tool say: ValueError: no"]
        here.plugins.failed("made", "tool say", ValueError("after its end"))
        assert len(here.errors()) == 5

    run(scenario)


@pytest.mark.parametrize("how", ["raises", "is late", "exits"])
def test_handlers_that_fail_count_and_the_others_hear_on(how: str) -> None:
    """H38, H39: by raising, or by missing the deadline."""

    async def scenario(here: Plugged) -> None:
        heard: list[str] = []

        async def bad(event: Event) -> None:
            if event.session == "good":
                return
            if how == "raises":
                raise ValueError("no")
            if how == "exits":
                sys.exit(1)
            await asyncio.sleep(600)

        async def good(event: Event) -> None:
            heard.append(event.session)

        await here.plugins.load(Made(lambda ctx: ctx.on("session.opened", bad, deadline=0.05), "bad"))
        await here.plugins.load(Made(lambda ctx: ctx.on("session.opened", good), "good"))
        for number, session in enumerate(("bad", "bad", "good", "bad"), 1):
            here.emit(SessionOpened(session=session))
            await here.bus.drained()
            assert await until(lambda count=number: len(heard) == count)  # type: ignore[misc]  # mypy cannot infer it
        assert "bad" in here.plugins.loaded
        for _ in range(2):
            here.emit(SessionOpened(session="bad"))
            await here.bus.drained()
        assert await until(lambda: bool(here.reasons()))
        assert list(here.plugins.loaded) == ["good"] and len(here.errors()) == 5
        assert {plugin for plugin, _, _ in here.errors()} == {"bad"}

    run(scenario)


def test_a_handler_of_errors_that_fails_does_not_breed_errors() -> None:
    """H41: one record, no cascade; and it is still unloaded for it."""

    async def scenario(here: Plugged) -> None:
        async def bad(event: Event) -> None:
            raise ValueError("no")

        await here.plugins.load(Made(lambda ctx: ctx.on("plugin.error", bad), "bad"), bundled=True)
        await here.plugins.load(Made(lambda ctx: ctx.on("plugin.error", bad), "worse"))
        await here.plugins.load(bringing("say", plugin="other"))
        here.plugins.failed("other", "tool say", ValueError("the first"))
        await here.bus.drained()
        assert [plugin for plugin, _, _ in here.errors()] == ["other"]
        for _ in range(2):
            here.plugins.failed("other", "tool say", ValueError("again"))
            here.plugins.succeeded("other")
            await here.bus.drained()
        assert await until(lambda: len(here.reasons()) == 1)
        assert sorted(here.plugins.loaded) == ["bad", "other"] and len(here.errors()) == 3

    run(scenario)


def test_a_late_handler_of_errors_does_not_breed_errors_either() -> None:
    """H41."""

    async def scenario(here: Plugged) -> None:
        async def slow(event: Event) -> None:
            await asyncio.sleep(600)

        await here.plugins.load(Made(lambda ctx: ctx.on("plugin.error", slow, deadline=0.02), "slow"), bundled=True)
        await here.plugins.load(bringing("say", plugin="other"))
        here.plugins.failed("other", "tool say", ValueError("the first"))
        await here.bus.drained()
        assert [plugin for plugin, _, _ in here.errors()] == ["other"]

    run(scenario)


def test_what_is_bundled_is_neither_unloaded_for_failures_nor_removed() -> None:
    """H52."""

    async def scenario(here: Plugged) -> None:
        await here.plugins.load(bringing("say"), bundled=True)
        for _ in range(5):
            here.plugins.failed("made", "tool say", ValueError("no"))
        assert "made" in here.plugins.loaded and len(here.errors()) == 5
        with pytest.raises(PluginRefusedError, match="made comes with Quell and cannot be removed"):
            await here.plugins.unload("made")

    run(scenario)


# -- models


def test_a_model_is_made_once_in_a_thread_when_it_is_first_used() -> None:
    """H25: a slow import does not hold the loop up."""
    made: list[object] = []
    release = threading.Event()

    def make() -> Any:
        assert threading.current_thread() is not threading.main_thread()
        assert release.wait(10)
        made.append(object())
        return made[-1]

    async def scenario(here: Plugged) -> None:
        await here.plugins.load(Made(lambda ctx: ctx.model("slow", make)))
        first = here.sup.task(here.registry.model("slow"))
        second = here.sup.task(here.registry.model("slow"))
        cancelled = here.sup.task(here.registry.model("slow"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await outcome(cancelled) == "cancelled"
        release.set()
        assert await first is await second and len(made) == 1

    run(scenario)


def test_a_model_that_could_not_be_made_is_tried_again() -> None:
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("no key")
        return "model"

    async def scenario(here: Plugged) -> None:
        await here.plugins.load(Made(lambda ctx: ctx.model("m", make)))
        assert await outcome(here.registry.model("m")) == "KeyError"
        assert str(await here.registry.model("m")) == "model"

    run(scenario)


def test_a_model_that_is_not_made_in_time_fails_whoever_waits_and_goes_with_its_plugin() -> None:
    """H26: the thread that cannot be ended is named."""
    release = threading.Event()

    def make() -> Any:
        return release.wait(10)

    async def scenario(here: Plugged) -> None:
        await here.plugins.load(Made(lambda ctx: ctx.model("m", make)))
        with pytest.raises(TimeoutError, match=r"the model m of made was not made within 0\.2 s"):
            await here.registry.model("m")
        here.registry._make_limit = 10  # from here on it is the end of the plugin that decides
        waiting = here.sup.task(here.registry.model("m"))
        await asyncio.sleep(0)
        await here.plugins.unload("made")
        release.set()
        assert await outcome(waiting) == "PluginRefusedError"
        assert [call for _, call, _ in here.errors()] == ["unload"]

    run(scenario, deadline=0.2)


# -- finding them


def distribution(folder: Path, name: str, *plugins: str, version: str = "1.0") -> None:
    """An installed distribution, as pip leaves it."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    entries = "".join(f"{plugin} = {name.replace('-', '_')}:plugin\n" for plugin in plugins)
    (info / "entry_points.txt").write_text(f"[quell.plugins]\n{entries}")


def test_plugins_are_found_in_the_environment_and_in_folders_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path / "env", "Quell", "shell")
    distribution(tmp_path / "env", "quell-extra", "extra", "another")
    shelf = tmp_path / "plugins"
    distribution(shelf / "quell-greeter", "quell-greeter", "greeter", version="2.0")
    distribution(shelf / ".staging-1" / "target", "quell-half", "half")
    (shelf / "empty").mkdir()
    (shelf / "disabled.json").write_text('["extra", "gone"]')
    monkeypatch.syspath_prepend(str(tmp_path / "env"))
    found = find(set(), shelf)
    assert {"shell", "extra", "another", "greeter"} <= set(names(found)) and "half" not in names(found)
    by_name = {one.name: one for one in found}
    assert by_name["shell"].bundled and by_name["shell"].source == "bundled"
    assert by_name["extra"].source == "environment" and not by_name["extra"].bundled
    greeter = by_name["greeter"]
    assert (greeter.version, greeter.distribution, greeter.source) == ("2.0", "quell-greeter", "installed")
    assert "brings no plugin" in by_name["empty"].fault
    assert "extra" not in names(enabled_in(tmp_path)) and "shell" in names(enabled_in(tmp_path))


def test_a_plugins_folder_comes_last_on_the_path_and_is_found_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment wins over whatever a plugin dragged in."""
    shelf = tmp_path / "plugins"
    folder = shelf / "quell-late"
    distribution(folder, "quell-late", "late")
    (folder / "quell_late.py").write_text("import json\nclass plugin:\n    name = 'late'\n    file = json.__file__\n")
    (folder / "json.py").write_text("raise SystemError('shadowed')\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    [late] = [one for one in find((), shelf) if one.name == "late"]
    plugin: Any = late.load()
    monkeypatch.delitem(sys.modules, "quell_late")
    assert plugin.name == "late" and sys.path[-1] == str(folder) and plugin.file != str(folder / "json.py")
    assert names(find((), shelf)).count("late") == 1


def test_of_two_distributions_with_one_name_the_first_on_the_path_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for imports: an older one behind it brings nothing, though the first has no plugin any more."""
    distribution(tmp_path / "old", "twice", "once")
    distribution(tmp_path / "new", "twice", "once")
    monkeypatch.syspath_prepend(str(tmp_path / "old"))
    assert names(find()).count("once") == 1
    monkeypatch.syspath_prepend(str(tmp_path / "new"))
    assert names(find()).count("once") == 1
    for file in (tmp_path / "new").rglob("entry_points.txt"):
        file.write_text("")
    assert "once" not in names(find())


def test_whether_a_plugin_is_bundled_is_asked_of_the_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H52: before discovery, and for one that failed to load; a copy of Quell in a plugin's folder says nothing."""
    distribution(tmp_path / "env", "quell", "shell")
    distribution(tmp_path / "plugins" / "sly", "quell", "mine")
    monkeypatch.syspath_prepend(str(tmp_path / "env"))
    assert is_bundled("shell") and not is_bundled("mine") and not is_bundled("nothing")
    assert not is_bundled("mine", tmp_path / "plugins")

    async def scenario(here: Plugged) -> None:
        with pytest.raises(PluginRefusedError, match="shell comes with Quell"):
            await here.plugins.unload("shell")

    run(scenario)


@pytest.mark.parametrize("text", ["{", '{"a": 1}', "[1]"])
def test_a_broken_note_of_what_is_disabled_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "disabled.json").write_text(text)
    with pytest.raises(UsageError, match=r"disabled\.json .*; mend it or delete it"):
        enabled_in(tmp_path)


# -- cancelled everywhere


class Small:
    name = "small"

    async def setup(self, ctx: PluginContext) -> None:
        ctx.tool(shout)
        ctx.on("session.", Busy().hear)
        ctx.scope.task(asyncio.sleep(60))
        await ctx.scope.spawn(["sleep", "60"])


def loading() -> contextlib.AbstractAsyncContextManager[Callable[[], Awaitable[object]]]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Callable[[], Awaitable[object]]]:
        async with ready() as here:
            yield lambda: here.plugins.load(Small())
            assert await until(lambda: not any(one.gone for one in here.plugins._held.values()))
            assert here.registry.names("tool") == (["shout"] if here.plugins.loaded else [])

    return scenario()


def unloading() -> contextlib.AbstractAsyncContextManager[Callable[[], Awaitable[object]]]:
    @contextlib.asynccontextmanager
    async def scenario() -> AsyncIterator[Callable[[], Awaitable[object]]]:
        async with ready() as here:
            await here.plugins.load(Small())
            yield lambda: here.plugins.unload("small")
            await here.plugins.close()
            assert here.registry.names("tool") == []

    return scenario()


@pytest.mark.parametrize("scenario", [loading, unloading], ids=["load", "unload"])
def test_nothing_is_left_wherever_a_load_or_unload_is_cancelled(scenario: Callable[[], Any]) -> None:
    """H01, H02, H03: once, and again during clean-up."""
    coverage = cancel_everywhere(scenario, name=f"plugin-{scenario.__name__}", budget=2.5, ignore=_of_others)
    assert coverage.findings == []


def _of_others(leak: Leak) -> bool:
    """Whoever else runs on this machine makes cgroups too; threads are the executor's."""
    return leak.kind in ("cgroup", "thread")
