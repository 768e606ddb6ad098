"""The scripted model answers the same to the same, offline: calls, words, and the steps of a script."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quell.errors import ModelError
from quell.events import ToolCall, Usage
from quell.models import scripted
from quell.models.scripted import ECHO, REACT, Scripted, plugin
from quell.ports import Ask, Chunk, Message, Model, Notice, Reasoning, Text, ToolResult

T = TypeVar("T")

SYSTEM = Message("system", f"You are an agent. {REACT}, one at a time.")


def run(main: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(10):
            return await main

    return asyncio.run(bounded())


async def chunks(model: Model, *messages: Message) -> list[Chunk]:
    return [chunk async for chunk in model.answer(Ask(list(messages)))]


def answer(*messages: Message, model: Model | None = None) -> list[Chunk]:
    return run(chunks(model or Scripted(), *messages))


def text_of(said: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in said if isinstance(chunk, Text))


def calls_of(said: list[Chunk]) -> list[ToolCall]:
    return [chunk for chunk in said if isinstance(chunk, ToolCall)]


def user(text: str) -> Message:
    return Message("user", text)


def test_plain_words_are_answered_word_by_word() -> None:
    said = answer(Message("system", "Be kind."), user("say hello"))
    assert said[:-1] == [Text("You"), Text(" said:"), Text(" say"), Text(" hello")]
    assert said[-1] == Usage(input=4, output=4, cost=0.0)


@pytest.mark.parametrize(
    ("line", "tool", "arguments"),
    [
        ("$ echo hello", "shell", {"command": "echo hello"}),
        ("$ make -j2 && ls", "shell", {"command": "make -j2 && ls"}),
        ("$ sleep 600 &", "shell", {"command": "sleep 600", "background": True}),
        ("$ make 2>&1 &  ", "shell", {"command": "make 2>&1", "background": True}),
        ("$ echo a\\&", "shell", {"command": "echo a\\&"}),
        ("$ true &&", "shell", {"command": "true &&"}),
        ("@scripted $ echo hi", "agent", {"agent": "scripted", "text": "$ echo hi"}),
    ],
)
def test_a_line_becomes_a_call(line: str, tool: str, arguments: dict[str, Any]) -> None:
    said = answer(user(line))
    assert calls_of(said) == [ToolCall("call-1-1", tool, arguments)]
    assert text_of(said) == ""


@pytest.mark.parametrize("line", ["$", "$ ", "$ &", "$5 is much", " $ ls", "@", "@name", "@ text", "costs $ 5"])
def test_what_is_no_call_is_said(line: str) -> None:
    said = answer(user(line))
    assert calls_of(said) == []
    assert text_of(said) == f"You said: {line.strip()}"


def test_all_calls_of_one_message_come_in_one_answer_with_their_own_ids() -> None:
    said = answer(user("Please:\n$ one\n$ two &\n@other three\nThank you."))
    assert text_of(said) == "You said: Please:\nThank you.\n"
    assert [(call.id, call.tool) for call in calls_of(said)] == [
        ("call-1-1", "shell"),
        ("call-1-2", "shell"),
        ("call-1-3", "agent"),
    ]
    later = answer(user("$ one"), Message("assistant", "done"), user("$ one"))
    assert [call.id for call in calls_of(later)] == ["call-3-1"]


def test_after_results_it_tells_them_and_calls_nothing() -> None:
    results = [
        ToolResult("call-1-1", "shell", "hello\n"),
        ToolResult("call-1-2", "shell", "1\n2\n3\n4\n5\n[exit 3]"),
        ToolResult("call-1-3", "agent", "no such agent", failed=True),
        ToolResult("call-1-4", "shell", ""),
    ]
    asked = user("$ a\n$ b\n@c d\n$ e")
    expected = "shell: hello\nshell: 1\n2\n3\n…\n[exit 3]\nagent failed: no such agent\nshell: nothing"
    for told in ([Message("tool", results=results)], [Message("tool", results=[each]) for each in results]):
        said = answer(asked, Message("assistant", calls=calls_of(answer(asked))), *told)
        assert calls_of(said) == []
        assert text_of(said) == expected


def test_the_same_request_gets_the_same_answer() -> None:
    model = Scripted()
    message = user("a\n$ b\n@c d")
    assert answer(message, model=model) == answer(message, model=model)


def test_a_long_message_is_not_repeated_in_full() -> None:
    said = answer(user("word " * ECHO))
    assert len(text_of(said)) < ECHO + 20
    assert text_of(said).endswith("…")


@pytest.mark.parametrize("messages", [[], [user("")], [user(" \n ")], [Message("system", "Hello.")]])
def test_nothing_is_answered_too(messages: list[Message]) -> None:
    assert text_of(answer(*messages)) == "There is nothing to answer."


def test_without_native_tools_it_calls_by_text_one_at_a_time() -> None:
    messages = [SYSTEM, user('Please:\n$ echo "a"\n@b c')]
    first = answer(*messages)
    assert (text_of(first), calls_of(first)) == ('Action: shell\nInput: {"command":"echo \\"a\\""}\n', [])
    messages += [Message("assistant", text_of(first)), user("Observation: a\n[exit 1]")]
    second = answer(*messages)
    assert text_of(second) == 'Action: agent\nInput: {"agent":"b","text":"c"}\n'
    messages += [Message("assistant", text_of(second)), user("Observation: done")]
    assert text_of(answer(*messages)) == "Answer: Observed: a\n[exit 1]\nObserved: done"
    messages += [Message("assistant", text_of(answer(*messages))), user("thanks")]
    assert text_of(answer(*messages)) == "Answer: You said: thanks"


def test_an_observation_is_words_like_any_other_where_tools_are_native() -> None:
    assert text_of(answer(user("Observation: it rains"))) == "You said: Observation: it rains"


# -- scripts


def test_a_script_is_answered_in_order_and_then_plainly() -> None:
    model = Scripted(
        [
            [{"think": "Hm."}, {"say": "Look "}, {"say": "here."}, {"call": "shell", "arguments": {"command": "ls"}}],
            [{"notice": "Retrying."}, {"usage": {"input": 7, "output": 8, "cost": 0.5}}],
        ]
    )
    first = answer(user("go"), model=model)
    assert first[0] == Reasoning("Hm.")
    assert text_of(first) == "Look here."
    assert calls_of(first) == [ToolCall("call-1-1", "shell", {"command": "ls"})]
    assert first[-1] == Usage(input=1, output=3)
    assert answer(user("go"), model=model) == [Notice("Retrying."), Usage(7, 8, 0.5)]
    assert text_of(answer(user("go"), model=model)) == "You said: go"


def test_each_session_plays_the_file_that_it_names_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H09: however many sessions there are, so many are remembered."""
    (tmp_path / "a.jsonl").write_text('{"say": "one"}\n{"say": "two"}\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(scripted, "PLAYED", 3)
    model = Scripted([[{"say": "for whoever names none"}]])

    async def ask(session: str, file: str = "a.jsonl") -> str:
        return text_of([one async for one in model.answer(Ask([user("go")], model=file, session=session))])

    async def main() -> None:
        full = str(tmp_path / "a.jsonl")
        assert [await ask("s"), await ask("t"), await ask("s"), await ask("s")] == ["one", "one", "two", "You said: go"]
        assert [await ask("s", full), await ask("t"), await ask("s", "")] == ["one", "two", "for whoever names none"]
        for number in range(20):
            assert await ask(str(number)) == "one"
        assert len(model._played) == 3
        for file, words in {
            "nowhere.jsonl": f"^the script {tmp_path}/nowhere.jsonl: cannot be read: No such file",
            ".": f"^the script {tmp_path}: is not a file$",
            "a\0b": "cannot be read: embedded null byte",
        }.items():
            with pytest.raises(ModelError, match=words):
                await ask("s", file)
        assert len(model._played) == 3

    run(main())


def test_words_keep_every_space_and_line() -> None:
    text = "  one\n\n two\tthree  \n"
    assert text_of(answer(user(""), model=Scripted([[{"say": text}]]))) == text


def test_a_script_waits_and_fails_with_its_own_words() -> None:
    async def main() -> None:
        model = Scripted([[{"wait": 0.05}, {"say": "now"}, {"fail": "on fire"}]])
        stream = model.answer(Ask([user("go")]))
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await anext(stream) == Text("now")
        assert loop.time() - began >= 0.05
        with pytest.raises(ModelError, match=r"^on fire$"):
            await anext(stream)

    run(main())


@pytest.mark.parametrize("step", [{"hang": True}, {"wait": 600}])
def test_a_request_that_hangs_ends_at_once_when_it_is_cancelled(step: dict[str, Any]) -> None:
    """H08: nothing of it is left."""

    async def main() -> None:
        model, heard = Scripted([[{"say": "hm"}, step]]), asyncio.Event()

        async def listen() -> None:
            async with aclosing(model.answer(Ask([user("go")]))) as stream:  # type: ignore[type-var]  # a generator
                async for _ in stream:
                    heard.set()

        task = asyncio.create_task(listen())
        await heard.wait()
        task.cancel()
        await asyncio.wait([task], timeout=1)
        assert task.cancelled()

    run(main())


def test_closing_the_answer_in_the_middle_ends_it() -> None:
    async def main() -> None:
        said = []
        async with aclosing(Scripted().answer(Ask([user("word " * 100)]))) as stream:  # type: ignore[type-var]
            async for chunk in stream:
                said.append(chunk)
                if len(said) == 3:
                    break
        assert len(said) == 3
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    run(main())


def test_a_script_speaks_by_text_where_tools_are_not_native() -> None:
    steps: list[list[dict[str, Any]]] = [
        [{"say": "Let me look.\n"}, {"call": "shell", "arguments": {"command": "ls"}}],
        [{"say": "Done."}],
    ]
    model = Scripted(steps)
    assert text_of(answer(SYSTEM, user("go"), model=model)) == (
        'Let me look.\nAction: shell\nInput: {"command":"ls"}\n'
    )
    assert text_of(answer(SYSTEM, user("go"), model=model)) == "Answer: Done."


def test_the_plugin_registers_the_model_by_its_name() -> None:
    made: dict[str, Any] = {}

    class Context:
        def model(self, name: str, make: Any) -> None:
            made[name] = make

    plugin.setup(Context())  # type: ignore[arg-type]  # as much of one as it uses
    assert plugin.name == "scripted"
    assert isinstance(made["scripted"](), Scripted)
