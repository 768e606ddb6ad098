"""Lines are broken between words, the same however the text was cut; only blanks are lost, and code is left alone."""

import random

import pytest

from quell.cli.cells import cells, cut, pieces
from quell.cli.screen import Line
from quell.cli.wrapping import CODE, Plain, Wrap, folded

WIDE = "\u65e5\u672c\u8a9e\u306e\u6587\u7ae0\u3001\u6298\u308a\u8fd4\u3057\u3002"


def rows(parts: Line, width: int, chance: random.Random | None = None) -> list[str]:
    wrap, given = Wrap(lambda: width), []
    for style, text in parts:
        while text:
            size = len(text) if chance is None else chance.randrange(1, 5)
            given += wrap.take([(style, text[:size])])
            text = text[size:]
    return "".join(text for _, text in [*given, *wrap.end()]).split("\n")


def test_what_follows_a_bullet_a_number_or_a_bar_stays_below_it() -> None:
    text = "one two three four\n  • five six seven eight\n1. nine ten eleven twelve\n│ thirteen fourteen fifteen"
    assert rows([("", text)], 18) == [
        "one two three four",
        "  • five six seven",
        "    eight",
        "1. nine ten eleven",
        "   twelve",
        "│ thirteen",
        "│ fourteen fifteen",
    ]


def test_a_long_word_and_code_are_left_to_the_terminal() -> None:
    assert rows([("", f"see {'x' * 30} it")], 20) == ["see", f"{'x' * 30} it"]
    assert rows([(CODE, "a b c d e f g h i j")], 6) == ["a b c d e f g h i j"]


def test_wide_characters_take_two_cells_and_no_line_begins_with_their_comma() -> None:
    found = rows([("", WIDE)], 12)
    assert max(map(cells, found)) <= 14 and "".join(found) == WIDE  # a comma may stand out
    assert not any(row.startswith(("\u3001", "\u3002")) for row in found)
    assert (cells("a\u0301"), cells("\U0001f389"), cells("\u4e2d")) == (1, 2, 2)
    assert cut("\u4e2d\u6587\u5b57", 5) == "\u4e2d\u6587…" and cut("abc", 3) == "abc"
    assert pieces("abcde", 2) == ["ab", "cd", "e"] and pieces("", 2) == [""]


@pytest.mark.parametrize("seed", range(3))
def test_any_cut_gives_the_same_and_loses_nothing_but_blanks(seed: int) -> None:
    chance = random.Random(seed)
    words = ["a", "bb ", " ", "\n", "• ", "12. ", "│ ", "xxxxxxxxxxxxxxxxxxxxxxx", WIDE, "word ", "\t"]
    for _ in range(200):
        text = "".join(chance.choice(words) for _ in range(chance.randrange(30)))
        parts: Line = [("", text[:7]), ("bold", text[7:])]
        whole, width = rows(parts, 20), chance.randrange(5, 40)
        assert rows(parts, 20, chance) == whole
        kept = "".join(rows(parts, width)).replace("│", "")
        assert "".join(kept.split()) == "".join(text.replace("│", "").split())


def test_a_line_that_fits_is_as_it_was() -> None:
    line: Line = [("dim", "└ "), ("red", "failed:  it  did"), ("", "")]
    assert folded(line, 40) == [line]
    assert ["".join(words for _, words in one) for one in folded(line, 12, 2)] == ["└ failed:", "  it  did"]


def test_without_styles_only_what_is_no_code_is_broken() -> None:
    text = "one **two** three\n```sh\na b c d e f g h i\n\n```\nfour five six seven\n"
    for size in (1, 3, len(text)):
        plain, wrap, given = Plain(), Wrap(lambda: 12), []
        for at in range(0, len(text), size):
            given += wrap.take(plain.take(text[at : at + size]))
        assert "".join(words for _, words in given).split("\n") == [
            *("one **two**", "three", "```sh", "a b c d e f g h i", "", "```", "four five", "six seven", "")
        ]
