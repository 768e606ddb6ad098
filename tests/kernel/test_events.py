"""The events are a closed set with one JSON form, and `docs/events.md` says of each what its type says."""

import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from quell import events
from quell.events import (
    DELTAS,
    ENDERS,
    KINDS,
    OPENERS,
    Event,
    Image,
    PluginEvent,
    Reply,
    ToolCall,
    Usage,
    decode,
    encode,
    kind_of,
)
from quell.testing.standing import PARTS

PAGE = Path(__file__).parents[2] / "docs" / "events.md"
ENVELOPE = [field.name for field in msgspec.structs.fields(Event)]
NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", Any: "any"}
STRUCTS: dict[type[msgspec.Struct], str] = {ToolCall: "call", Usage: "usage", Image: "image"}
PLUGINS = "x.<plugin>.<name>"

Rows = dict[str, tuple[str, ...]]


# -- the page, as it must be


def type_name(hint: Any) -> str:
    """As the page writes it: JSON's words, and the names of its table of types."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return "/".join(inside)
    if origin is list:
        return f"{type_name(inside[0])}[]"
    if origin is dict:
        return "object"
    return STRUCTS.get(hint) or NAMES[hint]


def field_cell(field: msgspec.structs.FieldInfo, hints: dict[str, Any]) -> str:
    """`name: type`, `name?: type` where it may be left out, with its default where that is not the empty one."""
    name, hint = field.encode_name, type_name(hints[field.name])
    if field.required:
        return f"`{name}: {hint}`"
    usual = field.default if field.default is not msgspec.NODEFAULT else None
    shown = f" = {msgspec.json.encode(usual).decode()}" if usual and not isinstance(usual, msgspec.Struct) else ""
    return f"`{name}?: {hint}{shown}`"


def fields_cell(of: type[msgspec.Struct], leaving_out: list[str]) -> str:
    hints = typing.get_type_hints(of)
    fields = [one for one in msgspec.structs.fields(of) if one.name not in leaving_out]
    return " ".join(field_cell(one, hints) for one in fields) or "–"


def role_cell(kind: str, of: type[Event]) -> str:
    """Whether it is a request, ends one, or belongs to one."""
    if of.opens:
        return "a request; ends with " + " or ".join(f"`{end}`" for end in of.opens)
    if kind in ENDERS:
        return "ends " + " or ".join(f"`{opener}`" for opener, ends in OPENERS.items() if kind in ends)
    if issubclass(of, Reply):
        return f"{'stream' if kind in DELTAS else 'part'} of `{PARTS[kind]}`"
    return "–"


def expected(kinds: dict[str, type[Event]] = KINDS) -> Rows:
    """The cells that are checked, by the first cell of the row."""
    found: Rows = {
        f"`{kind}`": (fields_cell(of, ENVELOPE), role_cell(kind, of)) for kind, of in kinds.items() if kind != "x"
    }
    found[f"`{PLUGINS}`"] = (fields_cell(PluginEvent, [*ENVELOPE, "plugin", "name"]), "–")
    envelope = typing.get_type_hints(Event)
    for field in msgspec.structs.fields(Event):
        found[field_cell(field, envelope)] = ()
    for of, name in STRUCTS.items():
        found[f"`{name}`"] = (fields_cell(of, []),)
    found["`kind: string`"] = ()
    return found


def rows(page: str) -> Rows:
    """Every row of every table. The last cell but one, or the last, is free text, and must say something."""
    found: Rows = {}
    for line in page.splitlines():
        if line.startswith("| `"):
            first, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            assert first not in found, f"two rows for {first}"
            words = cells.pop(1 if len(cells) == 3 else -1)
            assert words, f"{first} says nothing"
            found[first] = tuple(cells)
    return found


def mismatches(page: Rows, wanted: Rows) -> list[str]:
    wrong = [f"{first} is not on the page" for first in wanted if first not in page]
    wrong += [f"{first} is on the page, and there is no such thing" for first in page if first not in wanted]
    both = [first for first in page if first in wanted]
    return wrong + [f"{one}: the page says {page[one]}, not {wanted[one]}" for one in both if page[one] != wanted[one]]


def test_the_page_says_what_the_types_say() -> None:
    """H40: every kind and field is on the page as it is, and nothing else."""
    assert mismatches(rows(PAGE.read_text(encoding="utf-8")), expected()) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("| `tool.ended` |", "| `tool.finished` |", "`tool.ended` is not on the page"),
        ("| `tool.ended` |", "| `tool.finished` |", "`tool.finished` is on the page, and there is no such thing"),
        ("`end: completed/", "`end?: completed/", "`turn.ended`: the page says"),
        ("`pid?: integer`", "`pid?: string`", "`process.spawned`: the page says"),
        ("`summary?: string` ", "", "`session.compacted`: the page says"),
        ("`summary?: string` ", "`summary?: string` `more?: string` ", "`session.compacted`: the page says"),
        ("ends with `turn.ended`", "ends with `turn.over`", "`turn.started`: the page says"),
        ("`epoch?: integer`", "`era?: integer`", "`epoch?: integer` is not on the page"),
        ("| `runtime.ready` |", "| runtime.ready |", "`runtime.ready` is not on the page"),
        ("stream of `tool.requested`", "part of `tool.requested`", "`tool.output`: the page says"),
    ],
)
def test_a_page_that_says_something_else_is_found(old: str, new: str, complaint: str) -> None:
    """H40, H56: a missing, extra or changed row is each seen to fail."""
    page = PAGE.read_text(encoding="utf-8")
    assert old in page
    found = mismatches(rows(page.replace(old, new, 1)), expected())
    assert any(one.startswith(complaint) for one in found), found


def test_a_type_that_changes_without_the_page_is_found() -> None:
    """H40, H56: a kind that is added or a field that becomes required is missed on the page."""

    class Added(Event, frozen=True, kw_only=True, tag="thing.added"):
        what: str

    class Refused(Reply, frozen=True, kw_only=True, tag="tool.refused"):
        reason: str

    Refused.kind = "tool.refused"
    page = rows(PAGE.read_text(encoding="utf-8"))
    assert mismatches(page, expected(KINDS | {"thing.added": Added})) == ["`thing.added` is not on the page"]
    [sentence] = mismatches(page, expected(KINDS | {"tool.refused": Refused}))
    assert "not ('`reason: string`', 'ends `tool.requested`')" in sentence


# -- the JSON form


def sample(hint: Any) -> Any:
    """A value of the type that is not its default."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return inside[-1]
    if origin is list:
        return [sample(inside[0])] * 2
    if origin is dict:
        return {"käse \x00\n": [1, 2.5, None, {"a": True}]}
    if hint is Any:
        return {"deep": [1, {"x": "y"}]}
    if hint is ToolCall:
        return ToolCall("c1", "shell", {"command": "ls\n"})
    if hint is Usage:
        return Usage(1, 2, 0.5, 1)
    if hint is Image:
        return Image("image/png", "aGVsbG8=")
    return {str: 'ä "quoted" \u2028 \x7f', int: 2**53, float: 1234567890.123456, bool: True}[hint]


def filled(of: type[Event]) -> Event:
    hints = typing.get_type_hints(of)
    return of(**{one.name: sample(hints[one.name]) for one in msgspec.structs.fields(of)})


def bare(of: type[Event]) -> Event:
    hints = typing.get_type_hints(of)
    needed: dict[str, Any] = {"request": 3} if issubclass(of, Reply) else {}
    needed |= {one.name: sample(hints[one.name]) for one in msgspec.structs.fields(of) if one.required}
    return of(**needed)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_comes_back_from_json_as_it_was(kind: str) -> None:
    """H40: the log, the API, `--json` and exports have one form."""
    for event in (filled(KINDS[kind]), bare(KINDS[kind])):
        body = encode(event)
        assert b"\n" not in body
        assert msgspec.json.decode(body)["kind"] == kind_of(event)
        assert decode(body) == event
        assert decode(body.decode()) == event
        assert type(decode(body)) is type(event)
        assert encode(decode(body)) == body


def test_the_set_is_the_one_that_is_meant() -> None:
    families = {kind.partition(".")[0] for kind in KINDS}
    assert families == set(
        "runtime admission subscriber config harness plugin session turn message model tool approval queue stop"
        " process memory x".split()
    )
    assert set(KINDS.values()) == {one for one in vars(events).values() if is_kind(one)}
    assert {kind for kind in KINDS if KINDS[kind].kind != kind} == set()


def is_kind(one: object) -> bool:
    return isinstance(one, type) and issubclass(one, Event) and one not in (Event, Reply)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ('{"kind":"tool.exploded","seq":1}', "Invalid value 'tool.exploded' - at `$.kind`"),
        ('{"seq":1}', "missing required field `kind`"),
        ('{"kind":"x"}', "Invalid value 'x' - at `$.kind`"),
        ('{"kind":"x.only"}', "Invalid value 'x.only' - at `$.kind`"),
        ('{"kind":"message.user","text":7}', "Expected `str`, got `int` - at `$.text`"),
        ('{"kind":"turn.ended","request":1}', "missing required field `end`"),
        ('{"kind":"turn.ended","request":1,"end":"bored"}', "Invalid enum value 'bored' - at `$.end`"),
        ('{"kind":"tool.ended"}', "tool.ended: an event that answers must name its request"),
        ("[]", "Expected `object`, got `array`"),
        ("{", "Input data was truncated"),
        ("", "Input data was truncated"),
    ],
)
def test_what_is_no_event_is_refused_with_a_sentence(body: str, sentence: str) -> None:
    """H40: the set is closed."""
    with pytest.raises(ValueError) as refused:
        decode(body)
    assert sentence in str(refused.value)


@pytest.mark.parametrize("kind", [kind for kind, of in KINDS.items() if issubclass(of, Reply)])
def test_a_reply_cannot_be_built_without_its_request(kind: str) -> None:
    """H34: nobody waits for an answer that names no question."""
    of = KINDS[kind]
    needed: dict[str, Any] = {"end": "completed"} if kind == "turn.ended" else {}
    for wrong in ({}, {"request": 0}, {"request": -1}):
        with pytest.raises(ValueError, match=f"{kind}: an event that answers must name its request"):
            of(**(needed | wrong))
    assert of(**needed, request=1).request == 1


def test_every_end_of_a_request_is_a_reply() -> None:
    """H34, H35: what ends a request says which."""
    assert {kind for kind in ENDERS if not issubclass(KINDS[kind], Reply)} == set()
    assert not ENDERS & set(OPENERS)
    assert not ENDERS & DELTAS


def test_an_event_is_never_changed() -> None:
    event = bare(KINDS["message.user"])
    with pytest.raises(AttributeError):
        event.seq = 5  # type: ignore[misc]  # what is tried


@pytest.mark.parametrize("name", ["done", "done.and.dusted", "ä"])
@pytest.mark.parametrize("data", [None, 1, "text", [1, {"a": None}], {"kind": "y", "plugin": "z"}])
def test_the_kinds_of_plugins_have_their_full_name_and_come_back(name: str, data: Any) -> None:
    event = PluginEvent(seq=4, session="a", plugin="greeter", name=name, data=data)
    body = msgspec.json.decode(encode(event))
    assert body["kind"] == kind_of(event) == f"x.greeter.{name}"
    assert {"plugin", "name"} & set(body) == set()
    assert decode(encode(event)) == event


def test_a_log_of_a_later_minor_change_is_read_and_one_of_an_earlier_too() -> None:
    """H40: a field may be added with a default: older code passes over it, and newer code fills it in."""
    assert decode('{"kind":"message.user","text":"a","mood":"good"}') == events.MessageUser(text="a")
    assert decode('{"kind":"message.user"}') == events.MessageUser(text="")
    assert events.VERSION == 1


def test_every_field_but_the_few_that_must_be_said_has_a_default() -> None:
    """H40: whoever reads an old log gets what was not there then."""
    required = {(kind, one.name) for kind, of in KINDS.items() for one in msgspec.structs.fields(of) if one.required}
    assert required == {("turn.ended", "end"), ("x", "plugin"), ("x", "name")}


def test_the_example_on_the_page_is_an_event() -> None:
    [example] = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    event = decode(example)
    assert kind_of(event) == "tool.ended"
    assert msgspec.json.decode(encode(event)) == msgspec.json.decode(example)


def test_types_that_the_page_has_no_word_for_are_found() -> None:
    """H56: a field of a new type does not pass in silence."""
    with pytest.raises(KeyError):
        type_name(types.SimpleNamespace)
