"""Surfaces of plugins: each is run once, in a scope of its own, and ends with its plugin or the runtime."""

import asyncio
from collections.abc import Callable

from quell.events import PluginError
from quell.kernel.runtime import Runtime
from quell.ports import PluginContext
from quell.supervise import Scope
from tests.supervise.loops import until

from .cast import Stage, Troupe, live


class Way:
    """A surface that tells how often it was started, and how often it has ended."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.started = self.ended = 0
        self.scope: Scope | None = None
        self._fails = fails

    async def serve(self, scope: Scope) -> None:
        self.started += 1
        self.scope = scope
        scope.task(asyncio.Event().wait(), name="what it started")
        if self._fails is not None:
            raise self._fails
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1


def bringing(name: str, **ways: Way) -> Troupe:
    def setup(ctx: PluginContext) -> None:
        for each, way in ways.items():
            ctx.surface(each, way)

    return Troupe(setup, name)


def test_every_surface_is_run_once_and_those_that_come_later_too(stage: Stage) -> None:
    early, late, later = Way(), Way(), Way()
    contexts: list[PluginContext] = []
    stage.plugins = [bringing("first", early=early), Troupe(contexts.append, "second")]

    async def main(rt: Runtime) -> None:
        assert early.started == 0
        await rt.serve()
        await rt.serve()
        await rt.plugins.load(bringing("third", late=late))
        contexts[0].surface("later", later)
        assert await until(lambda: early.started + late.started + later.started == 3)
        await rt.plugins.unload("third")
        assert (late.started, late.ended) == (1, 1)
        assert early.ended == later.ended == 0
        assert late.scope is not None
        assert late.scope.over

    stage.play(main)
    assert (early.started, early.ended, later.started, later.ended) == (1, 1, 1, 1)
    assert not stage.of(PluginError)


def test_a_surface_that_raises_is_told_of_and_takes_neither_others_nor_the_runtime_with_it(stage: Stage) -> None:
    good, bad = Way(), Way(OSError("the port is taken"))
    stage.plugins = [bringing("both", bad=bad, good=good), Troupe(_no_coroutine, "wrong")]

    async def main(rt: Runtime) -> None:
        await rt.serve()
        assert await until(lambda: len(rt.plugins.loaded["both"].served) == 2 and bool(bad.started))
        error = await live(rt, PluginError)
        assert error.plugin in ("both", "wrong")
        assert await until(lambda: bad.scope is not None and bad.scope.over)  # what it had started is gone
        assert (good.started, good.ended) == (1, 0)
        session = await stage.open(rt)
        assert (await session.send("hello")).end == "completed"

    stage.play(main)
    said = {(one.plugin, one.call): one.error for one in stage.of(PluginError)}
    assert said["both", "surface bad"] == "OSError: the port is taken"
    assert said["wrong", "surface none"].startswith("TypeError")
    assert good.ended == 1


def _no_coroutine(ctx: PluginContext) -> None:
    class Wrong:
        serve: Callable[[Scope], int] = staticmethod(lambda _: 3)

    ctx.surface("none", Wrong())  # type: ignore[arg-type]  # a stranger's mistake


def test_an_exit_in_a_surface_is_its_failure_and_no_end_of_the_runtime(stage: Stage) -> None:
    class Exits:
        async def serve(self, scope: Scope) -> None:
            raise SystemExit(3)

    stage.plugins = [Troupe(lambda ctx: ctx.surface("exits", Exits()), "leaver")]

    async def main(rt: Runtime) -> None:
        await rt.serve()
        error = await live(rt, PluginError)
        assert error.error == "RuntimeError: SystemExit: 3"

    stage.play(main)
