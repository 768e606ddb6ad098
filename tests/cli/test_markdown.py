"""Markdown as it streams is the same however it was cut, loses nothing, and lets nothing through to the terminal."""

import random
import time

import pytest

from quell.cli.cells import cells
from quell.cli.markdown import LONGEST, Markdown
from quell.cli.screen import Cleaner, Part, safe

TEXT = """\
# A heading with `code`
Some **bold**, *italic*, ***both***, __bold__, _italic_ and `co*de*` and ``a ` b``.
2 * 3 * 4, snake_case_name, *args, **kwargs, a [ b ] c, [a link](https://example.org/a_(b)), [same](same) \\*no\\*
- one
  * two **nested *deep* in** it
+ three
1. four

> quoted *text*
>> twice
---
***
```python
def f(*args): # **no**
    return "`" + '''
```
~~~
``` not the end
~~~
| a | b |
#no heading
*open and never closed
[half a link](http
a trailing backslash \\
the end `open"""


def shown(pieces: list[str]) -> list[Part]:
    """What is shown in the end, neighbours of one style together."""
    markdown, clean = Markdown(width=lambda: 30), Cleaner()
    parts = [part for piece in pieces for part in markdown.take(clean.take(piece))]
    merged: list[Part] = []
    for style, text in [*parts, *markdown.take(clean.end()), *markdown.end()]:
        if merged and merged[-1][0] == style:
            text = merged.pop()[1] + text
        merged.append((style, text))
    return merged


def cut(text: str, chance: random.Random) -> list[str]:
    pieces = []
    while text:
        size = chance.choice([1, 1, 2, 3, 7, 40])
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def random_text(chance: random.Random) -> str:
    marks = [
        "*",
        "**",
        "_",
        "`",
        "```",
        "\n",
        "\n\n",
        " ",
        "[",
        "](",
        ")",
        "> ",
        "- ",
        "# ",
        "\\",
        "~~~",
        "|",
        "|-|",
        "\n| a | b |\n|---|--:|\n",
        "a",
        "b c",
        "1",
    ]
    wild = ["\x1b[31m", "\x1b]0;title\x07", "\x1b", "\r", "\r\n", "\x9b", "\u202e", "\x07", "\x1b\\"]
    return "".join(chance.choice(marks + wild) for _ in range(chance.randrange(60)))


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_of_the_input_gives_the_same(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(150):
        text = random_text(chance)
        assert shown(cut(text, chance)) == shown([text]), text
    for _ in range(10):
        assert shown(cut(TEXT, chance)) == shown([TEXT])


@pytest.mark.parametrize("seed", range(3))
def test_text_in_pieces_is_made_safe_as_if_it_came_at_once(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(300):
        text, clean = random_text(chance), Cleaner()
        assert "".join(map(clean.take, cut(text, chance))) + clean.end() == safe(text), text


def test_marks_become_styles() -> None:
    parts = shown([TEXT])
    assert ("bold underline", "A heading with ") in parts
    assert ("bold underline cyan", "code") in parts
    for part in [
        ("bold", "bold"),
        ("italic", "italic"),
        ("bold italic", "both"),
        ("cyan", "co*de*"),
        ("cyan", "a ` b"),
    ]:
        assert part in parts
    assert ("underline", "a link") in parts and ("dim", " (https://example.org/a_(b))") in parts
    assert ("bold italic", "deep") in parts
    text = "".join(text for _, text in parts)
    for words in (
        "2 * 3 * 4, snake_case_name, *args, **kwargs, a [ b ] c",
        "same *no*\n",
        "\n• one\n  • two nested deep in it\n• three\n1. four\n",
        "│ quoted text\n│ │ twice\n" + "─" * 30 + "\n" + "─" * 30 + "\n```python\n",
        "def f(*args): # **no**\n    return \"`\" + '''\n```\n~~~\n``` not the end\n~~~\n",
        "#no heading\n*open and never closed\n[half a link](http\na trailing backslash \\\nthe end `open",
    ):
        assert words in text


def test_what_is_clear_is_shown_at_once_and_what_is_not_for_no_longer_than_it_must() -> None:
    markdown = Markdown()
    assert markdown.take("Hello, wor") == [("", "Hello, wor")]
    assert markdown.take("ld **bo") == [("", "ld ")]
    assert markdown.take("ld** and") == [("bold", "bold"), ("", " and")]
    assert markdown.take(" *open") == [("", " ")]
    assert markdown.take("\n") == [("", "*open\n")]
    assert markdown.take("* " + "x" * 3) == [("cyan", "•"), ("", " xxx")]
    assert "".join(text for _, text in markdown.take("*" + "y" * LONGEST)) == "*" + "y" * LONGEST


def test_without_more_than_ascii_the_marks_are_ascii() -> None:
    markdown = Markdown(width=lambda: 5, fancy=False)
    parts = markdown.take("- a\n> b\n---\n")
    assert "".join(text for _, text in parts) == "- a\n| b\n-----\n"


def rows_of(text: str, width: int, *, fancy: bool = True) -> list[str]:
    markdown = Markdown(width=lambda: width, fancy=fancy)
    return "".join(words for _, words in [*markdown.take(text), *markdown.end()]).split("\n")


def test_a_table_has_its_columns_below_each_other_and_fits() -> None:
    text = "| Name | Size |\n|:--|--:|\n| `alpha` | 1 |\n| \u4e2d\u6587 | 22,000 and more |\nafter"
    assert rows_of(text, 80) == [
        "Name              Size",
        "─────  ───────────────",
        "alpha                1",
        "\u4e2d\u6587   22,000 and more",
        "after",
    ]
    narrow = rows_of(text, 16)
    assert max(map(cells, narrow)) <= 16 and narrow[-1] == "after" and "22,000" in "\n".join(narrow)
    assert rows_of("| a | b |\nno table", 80) == ["| a | b |", "no table"]
    assert rows_of("| a | b |\n|---|---|\n| c | d |", 6) == ["| a | b |", "|---|---|", "| c | d |"]
    assert "".join(rows_of(text.replace("\u4e2d\u6587", "x"), 80, fancy=False)).isascii()


def test_a_table_is_shown_when_it_is_whole() -> None:
    markdown = Markdown()
    assert markdown.take("Here:\n") == [("", "Here:\n")]
    assert markdown.take("| a |\n|---|\n| b |\n") == [] and markdown.holds
    assert "b" in "".join(words for _, words in markdown.take("T")) and not markdown.holds


@pytest.mark.parametrize("mark", ["`", "*", "_", "\x9d", "\x90", "\x9b", "\x1b]"])
def test_a_run_of_one_mark_takes_time_by_its_length(mark: str) -> None:
    """The loop that shows it is the one that hears of a stop: what a model repeats for ever must not hold it."""
    text = mark * 100_000
    clean, markdown = Cleaner(), Markdown()
    began = time.process_time()
    for at in range(0, len(text), 1000):
        markdown.take(clean.take(text[at : at + 1000]))
    safe(text)
    assert time.process_time() - began < 5
