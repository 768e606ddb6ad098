"""Known secrets reach no event, hence no log, stream, export or history; nothing else is altered."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

import quell
from quell.events import (
    Event,
    MessageDelta,
    MessageDone,
    MessageUser,
    ModelDelta,
    ModelFailed,
    PluginError,
    PluginEvent,
    ProcessSpawned,
    ToolCall,
    ToolEnded,
    ToolOutput,
    ToolRequested,
    encode,
)
from quell.kernel.redaction import MASK, Redaction
from quell.kernel.runtime import Runtime
from quell.ports import Anew, Ask, Caller, Chunk, PluginContext, Reasoning, Text, Whose
from tests.supervise.loops import until

from .cast import Stage, Troupe, call, idle

KEY = "sk-canary-0123456789abcdef"
OTHER = 'with "quotes"\nand\\lines: ä'
ESCAPED = json.dumps(OTHER)[1:-1]


def known(*values: str) -> Redaction:
    redaction = Redaction()
    redaction.conceal(*values)
    return redaction


# -- texts


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("nothing of it", "nothing of it"),
        (KEY, MASK),
        (f"a{KEY}b{KEY}", f"a{MASK}b{MASK}"),
        (KEY[:-1], KEY[:-1]),
        (f"{KEY}{KEY}", f"{MASK}{MASK}"),
        (f'{{"key": "{ESCAPED}"}}', f'{{"key": "{MASK}"}}'),
        (json.dumps(OTHER, ensure_ascii=False), f'"{MASK}"'),
        (f"x{OTHER}y", f"x{MASK}y"),
        ("word " * 500 + KEY, "word " * 500 + MASK),
    ],
)
def test_a_text_is_the_same_but_for_its_secrets(text: str, shown: str) -> None:
    assert known(KEY, OTHER).text(text) == shown


def test_secrets_that_overlap_or_begin_alike_are_masked_whole() -> None:
    redaction = known("abcdefgh", "efghijkl", "abcdefghXYZ")
    assert redaction.text("-abcdefghijkl-") == "-***-"
    assert redaction.text("-abcdefghXYZ-") == "-***-"
    assert redaction.text("-abcdefghXY-") == "-***XY-"
    assert known("aaaaaaaa").text("a" * 20) == MASK


def test_what_is_not_utf_8_in_the_environment_is_found_as_it_reaches_an_event() -> None:
    value = b"secret-\xff-bytes".decode("utf-8", "surrogateescape")
    redaction = known(value)
    assert redaction.text(b"secret-\xff-bytes".decode("utf-8", "replace")) == MASK
    assert redaction.text("plain") == "plain"


@pytest.mark.parametrize("value", ["", "short", None, 12345678])
def test_what_is_too_short_to_be_told_from_other_words_is_not_concealed(value: Any) -> None:
    with pytest.raises(quell.UsageError, match=r"a secret (has 8 characters at least|is text)"):
        Redaction().conceal(value)


def test_all_that_is_nested_in_an_event_is_masked_and_what_it_was_made_of_is_not_touched() -> None:
    arguments = {"cmd": [f"echo {KEY}", 3, None, {"deep": (KEY, 1.5)}], KEY: True}
    event = ToolRequested(seq=1, session="s", tool="shell", call=KEY, arguments=arguments)
    redaction = known(KEY)
    assert redaction.touches(event, encode(event))
    redaction.mask(event)
    assert event == ToolRequested(
        seq=1,
        session="s",
        tool="shell",
        call=MASK,
        arguments={"cmd": [f"echo {MASK}", 3, None, {"deep": (MASK, 1.5)}], MASK: True},
    )
    assert arguments["cmd"][0] == f"echo {KEY}"  # type: ignore[index]  # the tool's or model's own
    thing = redaction.thing([ToolCall("1", "t", {"a": KEY}), {KEY}])
    assert thing == [ToolCall("1", "t", {"a": MASK}), {MASK}]


def test_an_event_without_a_secret_is_left_as_it_is() -> None:
    redaction = known(KEY, OTHER)
    arguments = {"cmd": ["echo", KEY[:-1]], "n": 3}
    for event in (
        ToolRequested(seq=1, tool="shell", arguments=arguments),
        MessageUser(seq=2, text=KEY[1:]),
        PluginEvent(seq=3, plugin="p", name="n", data={"x": [1, 2.5, None]}),
        ProcessSpawned(seq=4, pid=3, argv=["sleep", "3"]),
    ):
        assert not redaction.touches(event, encode(event))


# -- streams


def shown(redaction: Redaction, parts: list[str], make: type[Event] = ToolOutput) -> list[str]:
    """What is shown of these parts of one stream, one after another; the last is what was held back at its end."""
    texts = []
    for part in parts:
        event: Any = make(request=7, cause=7, text=part)  # type: ignore[call-arg]  # every delta has a text
        if redaction.take(event):
            if redaction.touches(event, encode(event)):
                redaction.mask(event)
            texts.append(event.text)
    rest: list[Any] = redaction.rest(7)
    assert not redaction.held
    return texts + [one.text for one in rest]


@pytest.mark.parametrize("secret", [KEY, OTHER])
def test_a_secret_that_comes_in_two_parts_is_masked_wherever_it_is_cut(secret: str) -> None:
    redaction = known(KEY, OTHER)
    whole = f"before {secret} after"
    for cut in range(len(whole) + 1):
        texts = shown(redaction, [whole[:cut], whole[cut:]])
        assert "".join(texts) == f"before {MASK} after", cut
    assert "".join(shown(redaction, list(whole))) == f"before {MASK} after"


def test_what_only_began_like_a_secret_is_shown_before_the_end() -> None:
    redaction = known(KEY)
    assert shown(redaction, [f"ends with {KEY[:9]}"]) == ["ends with ", KEY[:9]]
    assert shown(redaction, ["s", "k", "-", " no"]) == ["sk- no"]
    assert shown(redaction, ["s"]) == ["s"]
    assert shown(redaction, ["", "plain", ""]) == ["", "plain", ""]


def test_any_cutting_of_any_stream_shows_what_masking_the_whole_would() -> None:
    dice = random.Random(7)
    secrets = ["abababab", "babaabba", "aaaaaaaaab", "abbaabbaabba", "bbbbbbbbbbbbbbbb", "abababababc"]
    for _ in range(400):
        redaction = known(*dice.sample(secrets, dice.randint(1, 4)))
        whole = "".join(dice.choice([*"abc", *secrets]) for _ in range(dice.randint(1, 40)))
        cuts = sorted(dice.choices(range(len(whole) + 1), k=dice.randint(0, 12)))
        parts = [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
        assert "".join(shown(redaction, parts)) == redaction.text(whole), (whole, parts)


def test_streams_do_not_mix_and_each_is_decided_by_its_own_end() -> None:
    redaction = known(KEY)
    half, rest = KEY[:10], KEY[10:]
    one, two = MessageDelta(request=1, cause=5, text=half), MessageDelta(request=1, cause=6, text=rest)
    loud, low = ModelDelta(request=5, text=half, channel="reasoning"), ModelDelta(request=5, text=rest)
    assert [redaction.take(event) for event in (one, two, loud, low)] == [False, True, False, True]
    assert [(event.kind, event.text) for event in redaction.rest(5)] == [  # type: ignore[attr-defined]  # deltas
        ("message.delta", half),
        ("model.delta", half),
    ]
    assert not redaction.held


# -- in a runtime


def canaries(stage: Stage) -> list[Any]:
    """What is on disk, in all forms, that a canary is in."""
    encoded = [value.encode() for value in (KEY, OTHER, ESCAPED, json.dumps(ESCAPED)[1:-1])]
    files = [one for one in stage.state.rglob("*") if one.is_file()]
    assert any(one.name.startswith("log.sqlite") for one in files)
    return [(file.name, value) for file in files for value in encoded if value in file.read_bytes()]


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("CANARY_TOKEN", KEY)
    return KEY


def test_a_secret_is_in_no_event_export_history_or_file_wherever_it_comes_from(stage: Stage, key: str) -> None:
    async def tell(_: Mapping[str, Any], caller: Caller) -> str:
        for cut in range(0, len(key) + 1, 4):
            caller.output(f"out {key[:cut]}")
            caller.output(f"{key[cut:]} end\n")
        process = await caller.spawn(["sh", "-c", "sleep 60 # $0", key], background=True)
        assert process.argv[-1] == key  # what runs is what was asked for
        raise ValueError(f"failed with {key}")

    stage.tool("tell", tell)
    stage.agents = [stage.agent(env={"SOME_PASSWORD": OTHER, "NOT_SO": "an ordinary value"})]

    async def fails(_: Ask) -> AsyncIterator[Chunk]:
        yield Text("half an answer, ")
        raise OSError(f"401 for {key}")

    contexts: list[PluginContext] = []
    stage.plugins = [Troupe(contexts.append, "chatty")]
    stage.model.will(
        [Reasoning(f"use {key}"), *map(Text, f"I know {key}."), call("tell", k={key: [key]})],
        [Text("now: "), call("shell", command='printf %s "$SOME_PASSWORD"; echo; echo $CANARY_TOKEN')],
        [Text(key[:-1])],
        fails,
    )
    exports: list[str] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, title=f"about {key}")
        sent = session.send(f"my key is {key}")
        assert (await sent).end == "completed"
        assert sent.text == key[:-1]
        exports.extend([await session.export("markdown"), session.title])
        await session.rename(f"still {key}")
        contexts[0].emit("said", {"key": key, "more": [OTHER]})
        [job] = session.processes()
        assert job.argv[-1] == MASK
        failed = await session.send("again")
        assert failed.end == "failed"
        assert key not in failed.reason
        receipt = await session.stop(reason=f"because of {key}")
        assert rt.redact(json.loads(receipt.to_json()))["reason"] == f"because of {MASK}"
        exports.extend([await session.export(), await session.export("markdown"), session.title])
        exports.extend(repr(one) for one in await rt.sessions())
        assert rt.redact(f"a sentence with {key} for a client") == f"a sentence with {MASK} for a client"

    stage.play(main)
    assert canaries(stage) == []
    told = [repr(stage.model.asks), *exports, *(repr(one) for one in stage.events())]
    assert not [text for text in told if key in text or OTHER in text or ESCAPED in text]
    output = "".join(one.text for one in stage.of(ToolOutput) if one.source == "tool:tell")
    assert output == f"out {MASK} end\n" * len(range(0, len(key) + 1, 4))
    assert [one.text for one in stage.of(MessageUser)] == [f"my key is {MASK}", "again"]
    assert stage.of(ToolRequested)[0].arguments == {"k": {MASK: [MASK]}}
    ended = stage.of(ToolEnded)
    assert ended[0].error == f"ValueError: failed with {MASK}"
    assert ended[1].result == f"{MASK}\n\n"
    assert stage.of(ModelFailed)[0].error == f"OSError: 401 for {MASK}"
    assert any(f"failed with {MASK}" in one.error for one in stage.of(PluginError))
    assert [one.data for one in stage.of(PluginEvent)] == [{"key": MASK, "more": [MASK]}]
    assert stage.of(MessageDone)[0].text == key[:-1]  # all but one character of it is no secret
    deltas = [one.text for one in stage.of(MessageDelta)]
    assert "".join(deltas) == f"I know {MASK}.now: {key[:-1]}half an answer, "


def test_what_is_held_back_of_a_void_answer_is_not_joined_with_the_next(stage: Stage, key: str) -> None:
    stage.model.will([Text(f"one {key[:5]}"), Anew("again"), Text(f"{key[5:]} four")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        seen = [event async for event in session.send("go")]
        assert [(one.kind, one.text) for one in seen if isinstance(one, MessageDelta)] == [
            ("message.delta", "one "),
            ("message.delta", key[:5]),
            ("message.delta", f"{key[5:]} four"),
        ]
        assert [one.kind for one in seen if one.kind in ("message.delta", "model.restarted")][2] == "model.restarted"

    stage.play(main)


def test_what_is_held_back_comes_before_the_end_of_its_request(stage: Stage, key: str) -> None:
    async def half(_: Mapping[str, Any], caller: Caller) -> str:
        caller.output(f"ends with {key[:8]}")
        return "done"

    stage.tool("half", half)
    stage.model.will([Text(f"about {key[:5]}"), call("half")], [Text(key[:3])])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        seen = [event async for event in session.send("go")]
        order = [(one.kind, getattr(one, "text", "")) for one in seen]
        texts = [one for one in order if one[0] in ("message.delta", "model.answered", "tool.output", "message.done")]
        assert texts == [
            ("message.delta", "about "),
            ("message.delta", key[:5]),
            ("model.answered", f"about {key[:5]}"),
            ("tool.output", "ends with "),
            ("tool.output", key[:8]),
            ("message.delta", key[:3]),
            ("model.answered", key[:3]),
            ("message.done", key[:3]),
        ]
        kinds = [one[0] for one in order]
        assert kinds.index("tool.ended") > kinds.index("tool.output") + 1
        assert not rt.redaction.held

    stage.play(main)


def test_what_a_stopped_turn_held_back_is_shown_and_nothing_stays_behind(stage: Stage, key: str) -> None:
    """H09: streams that end in any way leave nothing in the map."""
    gate = stage.waiting()

    async def half(_: Ask) -> AsyncIterator[Chunk]:
        yield Text(key[:6])
        await gate()

    stage.model.will(half)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        session.send("go")
        await gate.reached.wait()
        assert len(rt.redaction.held) == 1
        await session.stop()
        assert not rt.redaction.held

    stage.play(main)
    assert [one.text for one in stage.of(MessageDelta)] == [key[:6]]


def test_a_secret_that_is_named_later_is_masked_from_then_on(stage: Stage) -> None:
    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send(f"one {KEY}")
        rt.conceal(KEY)
        rt.conceal(KEY)
        await session.send(f"two {KEY}")

    stage.play(main)
    assert [one.text for one in stage.of(MessageUser)] == [f"one {KEY}", f"two {MASK}"]


def test_secrets_that_are_given_to_the_runtime_are_masked(stage: Stage) -> None:
    runtime = quell.Runtime(state_dir=stage.state, secrets=[KEY])

    async def main() -> None:
        async with runtime as rt:
            session = await rt.open(cwd=stage.cwd)
            await session.send(f"say {KEY}")

    stage.run(main)
    assert canaries(stage) == []


def test_a_secret_half_of_which_would_be_cut_off_is_masked_before(
    stage: Stage, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quell.kernel.loop.MOST", 100)

    async def much(_: Mapping[str, Any], caller: Caller) -> str:
        return "x" * 40 + key + "y" * 200

    stage.tool("much", much)
    stage.model.will([call("much")])

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    assert stage.of(ToolEnded)[0].result.startswith("x" * 40 + MASK + "y")


def test_what_nests_too_deep_or_is_of_a_strange_type_is_masked_too(stage: Stage, key: str) -> None:
    contexts: list[PluginContext] = []
    stage.plugins = [Troupe(contexts.append, "deep")]

    class Strange(msgspec.Struct):
        word: str

    async def main(rt: Runtime) -> None:
        deep: Any = key
        for _ in range(450):
            deep = [deep]
        contexts[0].emit("deep", deep)
        contexts[0].emit("struct", {"s": Strange(key), "b": key.encode(), "set": {key}})
        contexts[0].emit("odd", {"o": ValueError(key), 3: key})
        await rt.host.journal.flushed()

    stage.play(main)
    assert canaries(stage) == []
    assert len(stage.of(PluginEvent)) == 3


def test_memories_are_kept_and_recalled_without_secrets(stage: Stage, key: str) -> None:
    kept: list[str] = []

    class Memory:
        async def store(self, whose: Whose, text: str) -> None:
            kept.append(text)

        async def recall(self, whose: Whose, query: str, limit: int) -> list[str]:
            return [f"from before: {key}"]

    async def keep(_: Mapping[str, Any], caller: Caller) -> str:
        await caller.remember(f"the key is {key}")
        return "kept"

    stage.parts = [lambda ctx: ctx.memory("mem", Memory())]
    stage.tool("keep", keep)
    stage.agents = [stage.agent(memory="mem")]
    stage.model.will([call("keep")])

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    assert kept == [f"the key is {MASK}"]
    assert key not in repr(stage.model.asks)


def test_a_log_is_the_same_with_secrets_that_are_not_in_it(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Nothing but secrets is altered: two runs, one with many of them, tell the same."""

    def told() -> list[tuple[str, dict[str, Any]]]:
        stage.model.asks.clear()
        stage.model.will(
            [Text("I "), Text("look"), call("shell", command="echo sk-; echo some words; printf 'g'")], [Text("done")]
        )

        async def main(rt: Runtime) -> None:
            session = await stage.open(rt, title="a title")
            await session.send("go: sk-can")
            await idle(session)

        stage.play(main)
        stage.state.rename(tmp_path / f"state-{len(list(tmp_path.iterdir()))}")
        events = sorted(tmp_path.glob("state-*"))
        return [(one.kind, _plain(one)) for one in stage.events(events[-1]) if one.session and not one.delta]

    def _plain(event: Event) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(event)
        varies = ("at", "session", "seq", "cause", "request", "pid", "receipt")
        return {name: one for name, one in fields.items() if name not in varies}

    plain = told()
    for n in range(10):
        monkeypatch.setenv(f"CANARY_{n}_TOKEN", f"sk-{n}-{'abcdefghij'[n] * 20}")
    monkeypatch.setenv("CANARY_TOKEN", KEY)
    assert told() == plain


# -- the program's own log


def test_records_of_our_loggers_are_masked_while_the_runtime_runs(
    stage: Stage, key: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("quell")
    before = list(log.filters)

    async def main(rt: Runtime) -> None:
        log.error("it was %s", key)
        log.error("%(what)s", {"what": key})
        try:
            raise ValueError(key)
        except ValueError:
            log.exception("while it was at work")
        log.error("an ordinary one: %d", 3)

    stage.play(main)
    assert key not in caplog.text
    assert [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR] == [
        f"it was {MASK}",
        MASK,
        "while it was at work",
        "an ordinary one: 3",
    ]
    assert f"ValueError: {MASK}" in caplog.text
    assert log.filters == before


def test_a_handler_masks_the_records_of_any_logger(key: str) -> None:
    redaction = known(key)
    record = logging.LogRecord("uvicorn", logging.INFO, "f", 1, "GET /launch?code=%s %d", (key, 200), None)
    assert redaction.filter(record)
    assert record.getMessage() == f"GET /launch?code={MASK} 200"
    broken = logging.LogRecord("x", logging.INFO, "f", 1, "%d", ("no number",), None)
    assert redaction.filter(broken)  # logging itself complains of it
    stack = logging.LogRecord("x", logging.INFO, "f", 1, "m", (), None, sinfo=f"Stack: {key}")
    assert redaction.filter(stack)
    assert stack.stack_info == f"Stack: {MASK}"


def test_a_follower_never_sees_a_secret(stage: Stage, key: str) -> None:
    seen: dict[int, Event] = {}

    async def main(rt: Runtime) -> None:
        async def client() -> None:
            async for event in rt.follow():
                seen[event.seq] = event

        task = asyncio.ensure_future(client())
        stage.model.will([Text(part) for part in f"the key is {key} as you know".split("a")])
        session = await stage.open(rt)
        await session.send(key)
        assert await until(lambda: any(one.kind == "turn.ended" for one in list(seen.values())))
        task.cancel()

    stage.play(main)
    assert seen
    assert not [one for one in seen.values() if key in repr(one)]
    text = "".join(one.text for one in seen.values() if isinstance(one, MessageDelta))
    assert key not in text
