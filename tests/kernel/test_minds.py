"""Real models, from the kernel's side: pictures, a change of agent or model, sentences, and a context that is full."""

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

import quell
from quell.errors import ContextFullError, ModelError
from quell.events import (
    HarnessEnded,
    Image,
    MessageUser,
    ModelAnswered,
    ModelDelta,
    ModelFailed,
    ModelRequested,
    ModelRestarted,
    PluginError,
    SessionCompacted,
    SessionConfigured,
    ToolRequested,
    Usage,
)
from quell.images import LARGEST, checked, load
from quell.kernel import mind
from quell.kernel.compaction import FULL, PIECE, SUMMARISE, SUMMARY_MOST, told
from quell.kernel.history import SUMMARY, size_of
from quell.kernel.redaction import Redaction
from quell.kernel.runtime import Runtime
from quell.ports import Anew, Ask, Caller, Chunk, Keep, Message, Text, ToolResult

from .cast import Actor, Answer, Gate, Stage, call, idle
from .test_history import dangling

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20
PICTURE = Image("image/png", base64.b64encode(PNG).decode())
HEADS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0 and more",
    "image/gif": b"GIF89a and more",
    "image/webp": b"RIFF\x04\0\0\0WEBPVP8 ",
}


# -- pictures


def test_a_picture_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    for media, data in HEADS.items():
        path = tmp_path / "picture.txt"
        path.write_bytes(data)
        assert load(path) == Image(media, base64.b64encode(data).decode())
        assert checked([load(str(path))]) == [load(path)]


def test_what_is_no_picture_or_too_large_is_refused_with_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "large").write_bytes(PNG + b"\0" * LARGEST)
    os.mkfifo(tmp_path / "pipe")
    for name, words in {
        "nowhere": "cannot be read: No such file or directory",
        ".": "cannot be read: Is a directory",
        "text": "is no picture that models can see: it is PNG, JPEG, GIF or WebP",
        "large": "is too large: a picture has 5 MB at most",
        "pipe": "is not a file that holds a picture",
    }.items():
        with pytest.raises(quell.UsageError, match=words):
            load(tmp_path / name)
    for images, words in (
        ([Image("image/jpeg", PICTURE.data)], "image 1 is image/png, and says that it is 'image/jpeg'"),
        ([PICTURE, Image("text/html", "aGVsbG8=")], "image 2 is not PNG"),
        ([Image("image/png", "%%%")], "image 1 is not base64"),
        ([Image("image/png", "A" * 8_000_000)], "image 1 is too large"),
        ([Image("image/png", PNG)], "not as bytes"),  # type: ignore[arg-type]  # on purpose
        (["screen.png"], "images is a list of Image"),
        ("screen.png", "images is a list of Image"),
        ([Image("image/png", base64.b64encode(PNG + b"\0" * 4_000_000).decode())] * 3, "have 10 MB at most"),
    ):
        with pytest.raises(quell.UsageError, match=words):
            checked(images)


def test_pictures_reach_the_model_the_log_and_the_exports(stage: Stage) -> None:
    ids: list[str] = []

    async def main(rt: Runtime) -> None:
        rt.conceal("hunter2-hunter2")
        session = await stage.open(rt)
        ids.append(session.id)
        with pytest.raises(quell.UsageError, match="images is a list"):
            session.send("look", images=["screen.png"])  # type: ignore[list-item]  # on purpose
        await session.send("look, hunter2-hunter2", images=[PICTURE])
        assert stage.model.asks[0].messages[-1].images == [PICTURE]
        markdown = await session.export("markdown")
        assert "> look" in markdown and "*With a picture: image/png, 0.0 kB*" in markdown
        assert PICTURE.data not in markdown and PICTURE.data in await session.export("jsonl")

    async def again(rt: Runtime) -> None:
        session = await rt.resume(ids[0])
        await session.send("and now?")
        assert [one.images for one in stage.model.asks[-1].messages] == [[PICTURE], [], []]

    stage.play(main)
    stage.play(again)
    assert stage.of(MessageUser)[0].text == "look, ***"


def test_pictures_are_not_searched_for_secrets() -> None:
    """What has no text in it costs nothing, however large, and stays as it is."""
    redaction = Redaction()
    redaction.conceal(PICTURE.data[:12])
    event = MessageUser(text="look", images=[PICTURE])
    assert not redaction.touches(event, msgspec.json.encode(event))
    hidden = MessageUser(text=f"look: {PICTURE.data[:12]}", images=[PICTURE])
    assert redaction.touches(hidden, b"")
    redaction.mask(hidden)
    assert hidden == MessageUser(text="look: ***", images=[PICTURE])


# -- who answers


def actors(stage: Stage) -> Actor:
    """A second provider, and agents for both: one that has no model of its own, one that is a harness."""
    other = Actor()
    stage.parts.append(lambda ctx: ctx.model("other", lambda: other))
    stage.agents = [
        stage.agent(),
        stage.agent("second", model="other", system="You are the second."),
        stage.agent("modelless", model=""),
    ]
    return other


def test_another_agent_or_model_answers_from_the_next_turn_on(stage: Stage) -> None:
    other = actors(stage)
    stage.model.will([Keep("actor", {"signed": 1}), Text("first")])
    ids: list[str] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        await session.use(model="other:large")
        assert (session.agent.name, session.model) == ("actor", "other:large")
        await session.send("two")
        assert other.asks[0].model == "large" and other.asks[0].messages[1].kept == {"actor": {"signed": 1}}
        await session.use("second")
        await session.send("three")
        assert other.asks[1].model == "" and other.asks[1].messages[0].text == "You are the second."
        await session.use("modelless")
        assert (session.agent.name, session.model) == ("modelless", "other"), "it takes the one that there is"
        await session.use("modelless", "actor:tiny")
        fork = await session.fork()
        assert (fork.agent.name, fork.model) == ("modelless", "actor:tiny")
        ids.extend([session.id, fork.id])
        assert "*From here on: second with other*" in await session.export("markdown")

    async def again(rt: Runtime) -> None:
        for name in ids:
            session = await rt.resume(name)
            assert (session.agent.name, session.model) == ("modelless", "actor:tiny")
            await session.send("four")
            assert stage.model.asks[-1].model == "tiny"
        listed = {one.id: (one.agent, one.model) for one in await rt.sessions()}
        assert listed[ids[0]] == ("modelless", "actor:tiny")
        _, anew = await rt.restart(ids[0])
        assert anew.model == "actor:tiny"

    stage.play(main)
    stage.play(again)
    told = [(one.agent, one.model) for one in stage.of(SessionConfigured)]
    assert told == [
        ("actor", "other:large"),
        ("second", "other"),
        ("modelless", "other"),
        ("modelless", "actor:tiny"),
        ("modelless", "actor:tiny"),
    ]


def test_what_cannot_answer_is_refused_and_so_is_a_change_while_a_turn_runs(stage: Stage) -> None:
    actors(stage)
    gate = stage.waiting()
    stage.agents[0] = stage.agent()
    stage.model.will([call("wait")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for agent, model, words in (
            (None, None, "name an agent, a model, or both"),
            ("", "", "name an agent, a model, or both"),
            ("secnd", None, "there is no agent 'secnd'; did you mean second?"),
            (None, "othr:large", "there is no model 'othr'; did you mean other?"),
            ("second", "othr", "there is no model 'othr'"),
            (None, 7, "the name of a model is text"),
        ):
            with pytest.raises(quell.UsageError, match=words.replace("?", r"\?")):
                await session.use(agent, model)  # type: ignore[arg-type]  # on purpose
        with pytest.raises(quell.UsageError, match="the agent modelless has no model: name one"):
            await stage.open(rt, "modelless")
        with pytest.raises(quell.UsageError, match="the agent assistant has no model: name one"):
            await stage.open(rt, "assistant")
        with pytest.raises(quell.UsageError, match="there is no model 'othr'"):
            await stage.open(rt, model="othr:x")
        sent = session.send("go")
        await gate.reached.wait()
        with pytest.raises(quell.UsageError, match="is busy: another agent or model answers only after"):
            await session.use("second")
        gate.opened.set()
        assert (await sent).end == "completed"
        await session.use("second")
        await session.close()
        with pytest.raises(quell.NoSessionError):
            await session.use("actor")

    stage.play(main)
    assert len(stage.of(SessionConfigured)) == 1


def test_a_session_is_opened_with_a_model_and_hands_it_on_to_sub_agents(stage: Stage) -> None:
    other = actors(stage)
    other.will([call("agent", agent="modelless", text="help")], [Text("helped")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "modelless", model="other:large")
        assert (await session.send("go")).end == "completed"
        assert [one.model for one in other.asks] == ["large", "large", "large"]
        assert len({one.session for one in other.asks}) == 2
        assistant = await stage.open(rt, "assistant", model="actor")
        assert (await assistant.send("hello")).end == "completed"

    stage.play(main)
    assert [(one.agent, one.model) for one in stage.of(SessionConfigured)] == [
        ("modelless", "other:large"),
        ("modelless", "other:large"),
        ("assistant", "actor"),
    ]


class Parrot:
    """A harness that repeats what it hears."""

    async def start(self, scope: quell.Scope, cwd: str) -> "Parrot":
        return self

    async def send(self, text: str) -> AsyncIterator[Chunk]:
        yield Text(text)


def test_a_harness_is_left_when_another_agent_answers(stage: Stage) -> None:
    stage.parts.append(lambda ctx: ctx.harness("parrot", Parrot()))
    stage.agents = [stage.agent(), stage.agent("parrot", harness="parrot")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "parrot")
        assert session.model == ""
        sent = session.send("hello")
        await sent
        assert sent.text == "hello"
        with pytest.raises(quell.UsageError, match="is a harness, which takes no images"):
            session.send("look", images=[PICTURE])
        with pytest.raises(quell.UsageError, match="is a harness, which has a model of its own"):
            await session.use(model="actor")
        await session.use("actor")
        assert (await session.send("and you?")).end == "completed"
        assert [one.text for one in stage.model.asks[0].messages] == ["hello", "hello", "and you?"]
        assert session.guest is None
        await session.use("parrot")
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    assert stage.of(HarnessEnded)[0].reason == "another agent answers now"
    assert [one.model for one in stage.of(SessionConfigured)] == ["actor", ""]


# -- what goes wrong, in the model's own words


def raising(error: Exception, *first: Chunk) -> Answer:
    async def answer(_: Ask) -> AsyncIterator[Chunk]:
        for chunk in first:
            yield chunk
        raise error

    return answer


def test_a_model_that_says_what_is_wrong_is_heard_and_not_blamed(stage: Stage) -> None:
    sentence = "there is no key for openai: set OPENAI_API_KEY"
    stage.model.will(*[raising(ModelError(sentence), Text("well"), Usage(7, 1))] * 5, raising(ModelError("")))

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for _ in range(5):
            end = await session.send("go")
            assert (end.end, end.reason, end.usage) == ("failed", sentence, Usage(7, 1))
        assert (await session.send("go")).reason == "the model failed: ModelError"
        assert (await session.send("go")).end == "completed"
        assert rt.plugins.loaded["troupe"].failures == 0

    stage.play(main)
    assert [one.error for one in stage.of(ModelFailed)] == [sentence] * 5 + ["ModelError"]
    assert not stage.of(PluginError)


def test_an_answer_that_is_too_long_or_wants_too_much_ends_with_a_sentence(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mind, "MOST", 100)
    monkeypatch.setattr(mind, "CALLS", 3)

    async def endless(_: Ask) -> AsyncIterator[Chunk]:
        while True:
            yield Text("word ")

    many, long = [call("note", name="x")] * 4, [call("note", name="x" * 100)]
    stage.model.will(endless, many, long, [Text("x" * 90), Anew("again"), Text("x" * 90)])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        reasons = [(await session.send("go")).reason for _ in range(3)]
        assert [words.partition(":")[0] for words in reasons] == [
            f"the answer has more than {most}" for most in ("100 characters", "3 calls", "100 characters")
        ]
        assert (await session.send("go")).end == "completed"

    stage.play(main)
    assert len(stage.of(ModelFailed)) == 3 and not stage.of(PluginError) and not stage.of(ToolRequested)


def test_a_factory_that_says_what_is_wrong_is_heard_too(stage: Stage) -> None:
    def make() -> Actor:
        raise ModelError("there is no key for other: set OTHER_KEY")

    stage.parts.append(lambda ctx: ctx.model("other", make))

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, model="other:large")
        end = await session.send("go")
        assert (end.end, end.reason) == ("failed", "there is no key for other: set OTHER_KEY")

    stage.play(main)
    assert not stage.of(PluginError)


def test_an_answer_that_begins_again_is_what_it_said_then(stage: Stage) -> None:
    stage.model.will(
        [
            *(Text("Hal"), call("note", name="void"), Keep("actor", "void"), Usage(1, 1)),
            *(Anew("the connection broke: asking again"), Text("Hello"), Usage(2, 2)),
        ]
    )

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        sent = session.send("go")
        end = await sent
        assert (end.end, end.usage, sent.text) == ("completed", Usage(3, 3), "Hello")
        assert session.history.messages("")[-1] == Message("assistant", "Hello")

    stage.play(main)
    assert not stage.outside("void").exists()
    (answered,) = stage.of(ModelAnswered)
    assert (answered.text, answered.calls, answered.kept) == ("Hello", [], {})
    assert not stage.of(ModelDelta)
    (void,) = stage.of(ModelRestarted)
    assert (void.reason, void.request) == ("the connection broke: asking again", answered.request)
    kinds = stage.kinds()
    assert kinds.index("message.delta") < kinds.index("model.restarted") < kinds.index("model.answered")


# -- a context that is full


class Narrow(Actor):
    """Reads so many characters, and remembers how much it was asked each time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.sizes: list[int] = []

    async def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        self.asks.append(ask)
        self.sizes.append(size_of(ask.messages, []))
        assert dangling(ask.messages) == []
        if self.sizes[-1] > self.width:
            raise ContextFullError(f"the conversation is longer than the {self.width} characters that it can read.")
        if ask.messages[-1].text.endswith(SUMMARISE):
            yield Text("in short: we look at files")
            return
        answer = self.answers.popleft() if self.answers else [Text("done")]
        for chunk in answer if not callable(answer) else ():
            yield chunk


def narrow(stage: Stage, width: int, length: int = 0) -> Narrow:
    """Such a model, and a tool that says much."""

    async def look(arguments: Mapping[str, Any], _: Caller) -> str:
        return f"begin {arguments['place']} " + "x" * length + " end"

    stage.model = model = Narrow(width)
    stage.tool("look", look)
    stage.limits = quell.Limits(history=0)
    return model


def test_a_full_context_is_summed_up_and_the_request_is_asked_again(stage: Stage) -> None:
    model = narrow(stage, 3000)
    ids: list[str] = []

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        ids.append(session.id)
        for number in range(3):
            await session.send(f"question {number} " + "w" * 800)
        sent = session.send("last question " + "w" * 800)
        assert (await sent).end == "completed" and sent.text == "done"
        full, summary, again = model.sizes[-3:]
        assert full > 3000 and summary < full * 0.7 and again < full / 2
        assert model.asks[-1].messages[0].text == SUMMARY + "in short: we look at files"
        assert model.asks[-1].messages[-1].text.startswith("last question")

    async def after(rt: Runtime) -> None:
        session = await rt.resume(ids[0])
        assert (await session.send("more")).end == "completed"
        assert model.asks[-1].messages[0].text.startswith(SUMMARY)

    stage.play(main)
    stage.play(after)
    purposes = [one.purpose for one in stage.of(ModelRequested)]
    assert purposes == ["answer", "answer", "answer", "answer", "compact", "answer", "answer"]
    assert [one.text for one in stage.of(ModelDelta) if one.channel == "notice"] == [FULL]
    assert not stage.of(PluginError)


def test_a_turn_that_is_too_long_by_its_own_steps_is_summed_up_in_the_middle(stage: Stage) -> None:
    """Older steps go, each with its results; what was asked stays as it was said."""
    model = narrow(stage, 10_000, length=3000)
    looks: list[Answer] = [[call("look", place=place)] for place in range(6)]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("hello")
        model.will(*looks, [Text("all seen")])
        sent = session.send("look everywhere")
        end = await sent
        assert (end.end, sent.text, end.steps) == ("completed", "all seen", 7)
        assert model.asks[-1].messages[0].text.startswith(SUMMARY)
        assert model.asks[-1].messages[1].text == "look everywhere"
        fork = await session.fork()
        assert dangling(fork.history.messages("")) == []

    stage.play(main)
    assert 1 <= len(stage.of(SessionCompacted)) <= 3
    summaries = [one for one in model.asks if one.messages[-1].text.endswith(SUMMARISE)]
    assert all("look everywhere" in one.messages[-1].text for one in summaries)
    assert all("characters left out" in one.messages[-1].text for one in summaries)
    assert all(not one.tools and not any(each.calls for each in one.messages) for one in summaries)


def test_a_model_that_is_much_smaller_gets_less_of_it(stage: Stage) -> None:
    model = narrow(stage, 1_000_000)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for _ in range(10):
            await session.send("w" * 5000)
        model.width = 6000
        assert (await session.send("and now?")).end == "completed"

    stage.play(main)
    purposes = [one.purpose for one in stage.of(ModelRequested)][10:]
    assert purposes == ["answer", "compact", "compact", "answer"]


@pytest.mark.parametrize(
    ("width", "said", "reason", "purposes"),
    [
        (2000, ["w" * 2500], "and there is nothing to sum up: say less, or use a model", "answer"),
        (10, ["w" * 500, "x"], "and summing it up did not help: begin a new session, or use", "answer compact compact"),
        (2000, ["w" * 1500, "v" * 2100], "and summing it up did not help: begin a new", "answer compact answer"),
    ],
    ids=["one message", "nothing fits", "still full"],
)
def test_what_no_summary_helps_fails_with_a_sentence_and_asks_no_more(
    stage: Stage, width: int, said: list[str], reason: str, purposes: str
) -> None:
    model = narrow(stage, 1_000_000)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        for text in said[:-1]:
            await session.send(text)
        model.width = width
        end = await session.send(said[-1])
        assert end.end == "failed"
        assert end.reason.startswith(
            f"the conversation is longer than the {width} characters that it can read, {reason}"
        )
        model.width = 1_000_000
        assert (await session.send("again")).end == "completed"

    stage.play(main)
    asked = [one.purpose for one in stage.of(ModelRequested)]
    assert " ".join(asked[len(said) - 1 : -1]) == purposes


def test_a_summary_that_fails_or_is_empty_fails_the_turn_with_its_words(stage: Stage) -> None:
    full = raising(ContextFullError("it is full"))
    long, again = [Text("y" * 500)], [Text("in time")]
    stage.model.will(
        long, full, raising(ModelError("the provider is down")), full, [Text("  ")], full, [Text("s" * 99_999)], again
    )

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        assert (await session.send("two")).reason == "the provider is down"
        assert (await session.send("three")).reason == (
            "it is full, and its summary was empty: begin a new session, or use a model that reads more"
        )
        assert (await session.send("four")).end == "completed"
        assert len(session.history.messages("")[0].text) < SUMMARY_MOST + 200

    stage.play(main)


def test_a_stop_while_it_is_summed_up_leaves_the_history_as_it_was(stage: Stage) -> None:
    gate = Gate()

    async def hang(_: Ask) -> AsyncIterator[Chunk]:
        await gate()
        yield Text("never")

    stage.model.will([Text("y" * 500)], raising(ContextFullError("it is full")), hang)

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        sent = session.send("two")
        await gate.reached.wait()
        assert (await session.stop(reach="turn")).confirmed
        assert (await sent).end == "stopped"
        await idle(session)
        assert (await session.send("three")).end == "completed"
        assert stage.model.asks[-1].messages[1].text == "y" * 500

    stage.play(main)
    assert not stage.of(SessionCompacted)


def test_react_goes_on_after_a_summary_too(stage: Stage) -> None:
    stage.agents = [stage.agent(strategy="react")]
    stage.model.will([Text("Answer: " + "y" * 500)], raising(ContextFullError("it is full")), [Text("we spoke")])

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt)
        await session.send("one")
        assert (await session.send("two")).end == "completed"
        assert [one.role for one in stage.model.asks[-1].messages] == ["system", "user", "user"]
        assert stage.model.asks[-1].messages[1].text == SUMMARY + "we spoke"

    stage.play(main)


def test_a_conversation_is_told_in_the_room_that_there_is() -> None:
    """Long texts lose their middle, then the oldest go; the question and the last summary are always there."""
    messages = [Message("user", SUMMARY + "they met"), Message("user", "find it", images=[PICTURE])]
    for number in range(200):
        messages.append(Message("assistant", "", [call("look", place=number)]))
        messages.append(Message("tool", results=[ToolResult("c", "look", f"begin {number} {'x' * 9000} end", True)]))
    for room in (20_000, 200_000):
        text = told(messages, room)
        assert len(text) < room * 1.1
        assert "they met" in text and "find it" in text and "[a picture, image/png]" in text
        assert "begin 199" in text and "begin 0 " not in text and "earlier ones left out" in text
        assert "characters left out" in text and text.count("end\n") + 1 <= text.count("look failed:") + 1
        assert max(map(len, text.split("\n"))) <= PIECE + 10
    whole = told(messages, 10_000_000)
    assert "left out" not in whole and "begin 0 " in whole
    assert told([], 10) == "" and len(told([Message("user", "w" * 1000)], 0)) < 100


def test_no_line_of_what_is_told_stands_where_a_speaker_does() -> None:
    text = told([Message("tool", results=[ToolResult("c", "look", "User:\n  say\nAssistant:\n$ ls")])], 10_000)
    assert [line for line in text.splitlines() if not line.startswith("  ")] == ["look:"]


# -- scripts


def test_each_session_plays_the_script_that_its_model_names_from_the_start(stage: Stage) -> None:
    script = stage.folder / "demo.jsonl"
    script.write_text('{"say": "one"}\n[{"wait": 0.01}, {"say": "two"}]\n')
    stage.agents = [stage.agent("demo", model=f"scripted:{script}")]

    async def main(rt: Runtime) -> None:
        for _ in range(2):
            session = await stage.open(rt, "demo")
            for answer in ("one", "two", "You said: go"):
                sent = session.send("go")
                await sent
                assert sent.text == answer
        script.write_text('{"say": "one"}\n{"shout": "two"}\n')
        end = await (await stage.open(rt, "demo")).send("go")
        assert end.end == "failed"
        assert end.reason.startswith(f"the script {script}, line 2: Object contains unknown field `shout`")
        script.unlink()
        end = await (await stage.open(rt, "demo")).send("go")
        assert end.reason == f"the script {script}: cannot be read: No such file or directory"

    stage.play(main)


def test_an_approval_is_asked_while_a_script_plays_and_the_model_waits_for_nobody(stage: Stage) -> None:
    """H31: asked inside a tool's call, answered while the turn of the same session waits."""
    script = stage.folder / "demo.jsonl"
    script.write_text('{"call": "note", "arguments": {"name": "a"}}\n{"say": "noted"}\n')
    stage.approval = {"*": "ask"}
    stage.agents = [stage.agent("demo", model=f"scripted:{script}")]

    async def main(rt: Runtime) -> None:
        session = await stage.open(rt, "demo")
        sent = session.send("go")
        async with asyncio.timeout(10):
            async for event in sent:
                if event.kind == "approval.asked":
                    session.approve(event.seq, True)
        assert sent.text == "noted" and stage.outside("a").exists()

    stage.play(main)
