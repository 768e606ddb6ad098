"""A typed function becomes a tool: what does not fit it never reaches it, and says so in one sentence."""

import asyncio
import functools
import threading
import types
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import msgspec
import pytest

import quell
from quell.errors import PluginRefusedError, ToolError
from quell.kernel.functions import tool_from
from quell.kernel.running import Named, named
from quell.ports import Caller, Where
from tests.supervise.loops import outcome, until

from . import errands


class Place(msgspec.Struct):
    city: str
    country: str = "FR"


def greet(who: str, times: Annotated[int, msgspec.Meta(ge=1, description="how often")] = 1, loud: bool = False) -> str:
    """Greet somebody.

    As often as wanted.
    """
    text = " ".join([f"hello {who}"] * times)
    return text.upper() if loud else text


def run(function: Callable[..., Any], arguments: dict[str, Any], where: Where | None = None) -> str:
    """Call it as the kernel does: in a scope of its own. A function of a function runs in a thread."""

    async def main() -> str:
        async with quell.Supervisor() as sup:
            return await called(sup.scope("call"), function, arguments, where)

    return asyncio.run(main())


async def called(
    scope: quell.Scope, function: Callable[..., Any], arguments: dict[str, Any], where: Where | None = None
) -> str:
    caller: Any = SimpleNamespace(scope=scope, session="s1", turn=1, cwd="/")
    return await tool_from(function, where).call(arguments, caller)


def test_the_signature_is_the_schema_and_the_docstring_the_description() -> None:
    spec = tool_from(greet).spec
    assert (spec.name, spec.description) == ("greet", "Greet somebody.\n\nAs often as wanted.")
    assert spec.parameters == {
        "type": "object",
        "properties": {
            "who": {"type": "string"},
            "times": {"type": "integer", "minimum": 1, "default": 1, "description": "how often"},
            "loud": {"type": "boolean", "default": False},
        },
        "required": ["who"],
        "additionalProperties": False,
    }


def test_what_the_schema_refers_to_is_in_it() -> None:
    def travel(to: Place, by: list[Place] = [], how: Literal["train", "foot"] = "train") -> None:  # noqa: B006  as people write it
        """Go somewhere."""

    parameters = tool_from(travel).spec.parameters
    assert parameters["properties"]["to"] == {"$ref": "#/$defs/Place"}
    assert parameters["$defs"]["Place"]["required"] == ["city"]
    assert parameters["properties"]["how"]["enum"] == ["foot", "train"]


def test_arguments_are_converted_and_results_are_text() -> None:
    def where(place: Place, caller: Caller, more: list[int] = [7]) -> dict[str, Any]:  # noqa: B006  as people write it
        """Say where."""
        return {"city": place.city, "country": place.country, "session": caller.session, "more": more}

    async def later(who: str) -> str:
        """Say it later."""
        await asyncio.sleep(0)
        return who

    def nothing() -> None:
        """Do nothing."""

    assert run(greet, {"who": "you", "times": 2, "loud": True}, "loop") == "HELLO YOU HELLO YOU"
    assert msgspec.json.decode(run(where, {"place": {"city": "Lyon"}})) == {
        "city": "Lyon",
        "country": "FR",
        "session": "s1",
        "more": [7],
    }
    assert run(later, {"who": "you"}) == "you"
    assert run(nothing, {}) == "null"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "greet needs the argument `who`"),
        ({"who": "a", "time": 2}, "greet has no argument `time` (did you mean `times`?); it takes `who`, `times`"),
        ({"who": 3}, "greet: the argument `who` does not fit: Expected `str`, got `int`"),
        ({"who": "a", "times": 0}, "greet: the argument `times` does not fit: Expected `int` >= 1"),
        ({"who": "a", "times": "2"}, "greet: the argument `times` does not fit: Expected `int`, got `str`"),
    ],
)
def test_what_does_not_fit_is_told_to_the_model_in_one_sentence(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ToolError) as told:
        run(greet, arguments)
    assert str(told.value).startswith(sentence) and "\n" not in str(told.value)


def test_where_in_an_argument_it_does_not_fit_is_named() -> None:
    def go(to: Place) -> None:
        """Go."""

    with pytest.raises(ToolError, match=r"the argument `to\.city` does not fit: Expected `str`, got `int`"):
        run(go, {"to": {"city": 3}})


def test_keys_are_text_in_json_and_become_what_they_are_meant_to_be() -> None:
    async def count(names: dict[int, str]) -> str:
        """Count."""
        return str({number + 1: name for number, name in names.items()})

    assert run(count, {"names": {"1": "one"}}) == "{2: 'one'}"
    with pytest.raises(ToolError, match=r"a key of the argument `names` does not fit: Expected `int`, got `str`$"):
        run(count, {"names": {"one": "one"}})


def test_a_text_beside_a_type_describes_it_and_a_default_may_be_a_struct() -> None:
    async def go(to: Annotated[str, "where to"], by: Place = Place("Lyon")) -> str:  # noqa: B008  it is not changed
        """Go."""
        return f"{to} by {by.city}"

    assert tool_from(go).spec.parameters["properties"]["to"] == {"type": "string", "description": "where to"}
    assert run(go, {"to": "Paris"}) == "Paris by Lyon"


def untyped(who) -> str:  # type: ignore[no-untyped-def]  # that is the point
    """Greet."""
    return str(who)


def unknown(who: "Nobody") -> str:  # type: ignore[name-defined]  # noqa: F821  that is the point
    """Greet."""
    return ""


def silent(who: str) -> str:
    return who


def many(*who: str) -> str:
    """Greet."""
    return ""


def yields(who: str) -> Any:
    """Greet."""
    yield who


def odd(who: Callable[[], int]) -> str:
    """Greet."""
    return ""


def elsewhere(who: str, path: Path) -> str:
    """Greet."""
    return ""


def endless(most: float = float("inf")) -> str:
    """Greet."""
    return ""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (untyped, "its parameter `who` has no type"),
        (unknown, "NameError in its types"),
        (silent, "no docstring"),
        (many, "has no name that a model could use"),
        (yields, "it yields"),
        (odd, "its parameter `who` has no JSON schema: type .*Callable.* is not supported"),
        (elsewhere, "its parameter `path` has no JSON schema: type .*Path.* is not supported"),
        (endless, "JSON has no inf, the default of its parameter `most`"),
        (print, "print cannot be a tool"),
    ],
)
def test_a_function_that_cannot_be_a_tool_is_refused_with_the_reason(function: Callable[..., Any], why: str) -> None:
    with pytest.raises(PluginRefusedError, match=why) as refused:
        tool_from(function)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("error", [SystemExit(2), StopIteration(3), KeyboardInterrupt()])
def test_a_function_that_exits_fails_its_call_and_not_the_runtime(error: BaseException) -> None:
    """H41: on Python 3.11 a StopIteration out of a thread is lost, and the call would wait for ever."""

    def leave() -> str:
        """Leave."""
        raise error

    async def leave_later() -> str:
        """Leave."""
        raise error

    for function in (leave, leave_later) if isinstance(error, SystemExit) else (leave,):
        with pytest.raises(RuntimeError, match=type(error).__name__):
            run(function, {})


def test_a_thread_that_does_not_end_is_on_the_receipt_of_the_call() -> None:
    """H26: the thread cannot be cancelled, and nobody says that it was."""
    release = threading.Event()

    def block() -> str:
        """Block."""
        release.wait(10)
        return "done"

    async def main() -> None:
        async with quell.Supervisor(ladder=quell.Ladder(ask=0.1, term=0.1)) as sup:
            outer, scope = sup.scope("turn"), sup.scope("call")
            task = outer.task(called(scope, block, {}))
            assert await until(lambda: bool(scope.threads))
            receipt = await scope.stop()
            assert not receipt.confirmed and "block" in receipt.sentence()
            assert await outcome(task) == "cancelled"
            release.set()

    asyncio.run(main())


def test_a_result_without_a_json_form_is_the_plugins_fault() -> None:
    def thing() -> object:
        """Give a thing."""
        return object()

    with pytest.raises(TypeError, match="thing gave object, which has no JSON form"):
        run(thing, {})


class Greeter:
    """Greets."""

    def __call__(self, who: str) -> str:
        """Greet."""
        return who

    def greet(self, who: str) -> str:
        """Greet."""
        return who

    @staticmethod
    def wave(who: str) -> str:
        """Wave."""
        return who


def with_caller(who: str, caller: Caller) -> str:
    """Greet."""
    return who


async def later(who: str) -> str:
    """Greet."""
    return who


def test_a_function_that_another_process_can_find_runs_there_unless_its_author_says_otherwise() -> None:
    """H26: what may block can be ended; only what cannot be found by its name is left to a thread."""

    def closure(who: str) -> str:
        """Greet."""
        return who

    here = threading.get_ident()

    def tell() -> int:
        """Say in which thread."""
        return threading.get_ident()

    assert named(errands.word) == Named("tests.kernel.errands", errands.__file__, "word", False)
    assert isinstance(named(Greeter.wave), Named)
    for unknown in (closure, Greeter().greet, Greeter(), functools.partial(greet, "you"), lambda who: who):
        assert isinstance(named(unknown), str)
    hidden = types.FunctionType(greet.__code__, {"__name__": "__main__"}, "greet")
    assert isinstance(named(hidden), str)
    assert run(tell, {}, "loop") == str(here)
    assert str(here) not in (run(tell, {}), run(tell, {}, "thread"))
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        run(errands.leaves, {}, "loop")


@pytest.mark.parametrize(
    ("function", "where", "why"),
    [
        (greet, "moon", r"greet cannot run in 'moon': where is one of \"process\", \"thread\", \"loop\""),
        (later, "thread", "later cannot run in a thread: it is a coroutine function, and runs in the loop"),
        (later, "process", "later cannot run in a process: it is a coroutine function"),
        (with_caller, "process", "with_caller cannot run in a process: it takes the caller"),
        (Greeter().greet, "process", "greet cannot run in a process: it is no plain function"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(function: Callable[..., Any], where: Any, why: str) -> None:
    """H53: nothing is silently put elsewhere."""
    with pytest.raises(PluginRefusedError, match=why):
        tool_from(function, where)
