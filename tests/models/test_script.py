"""A script is read whole before anything is answered, and what is wrong in it is said with file and line."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from quell.errors import UsageError
from quell.models.script import Step, read_script, script_of
from quell.models.scripted import Scripted
from quell.ports import Ask, Message, Text


def test_each_line_of_a_file_is_one_answer(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    path.write_text('# a demo\n{"say": "one"}\n\n[{"wait": 0.5}, {"call": "shell"}, {"hang": true}]\n[]\n')
    assert read_script(path) == [[Step(say="one")], [Step(wait=0.5), Step(call="shell"), Step(hang=True)], []]
    assert read_script(str(path)) == read_script(path)


def test_a_model_is_given_a_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.jsonl"
    path.write_text('{"say": "from a file"}\n')

    async def main() -> list[object]:
        return [chunk async for chunk in Scripted(path).answer(Ask([Message("user", "go")]))]

    assert asyncio.run(main())[:3] == [Text("from"), Text(" a"), Text(" file")]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("say hello", "JSON is malformed"),
        ('{"say": "a"', "Input data was truncated"),
        ('{"say": 1}', "Expected `str | null`, got `int` - at `$.say`"),
        ('{"shout": "a"}', "Object contains unknown field `shout`"),
        ("{}", "a step has exactly one of say, think, notice, wait, call, usage, fail, hang"),
        ('{"say": "a", "wait": 1}', "a step has exactly one of"),
        ('[{"say": "a"}, {"wait": -1}]', "Expected `float` >= 0.0 - at `$[1].wait`"),
        ('{"wait": 1e9}', "Expected `float` <= 86400.0"),
        ('{"hang": false}', "Invalid enum value False - at `$.hang`"),
        ('{"call": ""}', "Expected `str` of length >= 1"),
        ('{"say": "a", "arguments": {}}', "`arguments` go with `call`"),
        ('{"usage": {"input": "many"}}', "Expected `int`, got `str`"),
        ('"say"', "Expected `object | array`, got `str`"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(f'{{"say": "fine"}}\n\n{line}\n{{"say": "fine"}}\n')
    with pytest.raises(UsageError) as refusal:
        Scripted(path)
    assert str(refusal.value).startswith(f"{path}, line 3: {sentence}")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.jsonl: cannot be read: No such file or directory$"):
        read_script(tmp_path / "nowhere.jsonl")
    (tmp_path / "latin").write_bytes(b"\xe4")
    with pytest.raises(UsageError, match=r"latin: is not UTF-8 text$"):
        read_script(tmp_path / "latin")


@pytest.mark.parametrize("answers", [[[], [{"say": 1}]], [[], {"say": "a"}], [[], [{}]]])
def test_a_bad_answer_of_a_list_is_named(answers: Any) -> None:
    with pytest.raises(UsageError, match=r"^answer 2 of the script: "):
        script_of(answers)
