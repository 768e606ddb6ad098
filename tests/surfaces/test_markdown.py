"""Whatever a model or tool says: what comes of it shows the words, and can do nothing."""

from __future__ import annotations

import re
import time
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest

from quell.surfaces.http import markdown
from quell.surfaces.http.markdown import DEEPEST, GROWTH, LONGEST, MARKS, render, render_all

from .xss import CALL, STRINGS, marked

TEXTS = [marked(number) for number in range(len(STRINGS))]
BOUND = 3.0
"""Seconds for the worst text, on a busy machine."""


class Offences(HTMLParser):
    """Everything in a piece of HTML that is not on the list; written down here once more, on purpose."""

    TAGS = frozenset("p br hr h1 h2 h3 h4 h5 h6 blockquote ul ol li pre code em strong s a".split()) | frozenset(
        "table thead tbody tr th td".split()
    )
    VOID = frozenset({"br", "hr"})

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        self.found += [f"<{tag}> is left open" for tag in self.open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in self.TAGS:
            self.found.append(f"<{tag}>")
        if tag not in self.VOID:
            self.open.append(tag)
        self.found += [f"{tag} {name}={value!r}" for name, value in attrs if not self.fits(tag, name, value or "")]

    @staticmethod
    def fits(tag: str, name: str, value: str) -> bool:
        match tag, name:
            case "a", "href":
                return (
                    urlsplit(value).scheme in ("http", "https", "mailto") and re.search(r"[\s\x00-\x1f]", value) is None
                )
            case "a", "rel":
                return value == "noopener noreferrer nofollow"
            case "a", "target":
                return value == "_blank"
            case "ol", "start":
                return value.isdecimal()
            case "code", "class":
                return re.fullmatch(r"language-[A-Za-z0-9_.+#-]+", value) is not None
            case (("th" | "td"), "align"):
                return value in ("left", "center", "right")
        return False

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.found.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def handle_comment(self, data: str) -> None:
        self.found.append(f"a comment: {data}")

    def handle_decl(self, decl: str) -> None:
        self.found.append(f"a declaration: {decl}")

    def handle_pi(self, data: str) -> None:
        self.found.append(f"an instruction: {data}")


def offences(html: str) -> list[str]:
    return Offences(html).found


def test_nothing_that_could_run_is_left() -> None:
    left = {text: found for text in TEXTS if (found := offences(render(text)))}
    assert left == {}


@pytest.mark.parametrize("around", ["- {}", "> {}", "| a |\n|---|\n| {} |", "**{}**", "[{}](http://a.example)", "# {}"])
def test_nothing_that_could_run_is_left_inside_of_markup(around: str) -> None:
    for text in STRINGS:
        assert offences(render(around.replace("{}", text))) == [], text


def test_nothing_that_could_run_is_left_of_all_of_them_in_one_text() -> None:
    for between in ("\n\n", "\n", " ", ""):
        assert offences(render(between.join(STRINGS))) == []


def test_the_second_net_holds_where_the_parser_would_let_html_through() -> None:
    left = {text: found for text in TEXTS if (found := offences(markdown.clean(text)))}
    assert left == {}


def test_the_strings_are_many_and_each_is_something_else() -> None:
    assert len(STRINGS) >= 100
    assert len(set(STRINGS)) == len(STRINGS)
    assert [one for one in STRINGS if CALL not in one and "base64" not in one and "file:" not in one] == []


def test_the_check_itself_sees_what_is_wrong() -> None:
    for html in (
        "<script>1</script>",
        "<p onclick=x>a</p>",
        '<a href="javascript:1">a</a>',
        '<a href="/x">a</a>',
        '<p style="x">a</p>',
        '<code class="x">a</code>',
        "<img src=x>",
        "<!-- a -->",
        "<p>a",
        "a</p>",
    ):
        assert offences(html), html


def test_markup_becomes_html() -> None:
    assert render("# a\n\n*b* **c** ~~d~~ `e<`") == (
        "<h1>a</h1>\n<p><em>b</em> <strong>c</strong> <s>d</s> <code>e&lt;</code></p>\n"
    )
    assert render("```python\nx < 1\n```") == '<pre><code class="language-python">x &lt; 1\n</code></pre>\n'
    assert render("3. a\n4. b") == '<ol start="3">\n<li>a</li>\n<li>b</li>\n</ol>\n'
    assert "<blockquote>\n<p>a</p>" in render("> a")
    table = render("| a | b |\n|:-|-:|\n| 1 | 2 |")
    assert '<th align="left">a</th>' in table and '<td align="right">2</td>' in table


@pytest.mark.parametrize("address", ["http://a.example/b?c=d", "https://a.example", "mailto:me@a.example"])
def test_links_lead_to_the_web_and_to_mail(address: str) -> None:
    for text in (f"[x]({address} 'title')", f"<{address}>"):
        assert f'href="{address}"' in render(text)
        assert 'rel="noopener noreferrer nofollow"' in render(text) and 'target="_blank"' in render(text)
        assert offences(render(text)) == []


@pytest.mark.parametrize("address", ["/api/v1/state", "x", "//a.example", "#x", "?x", "ftp://a.example", "http:x"])
def test_links_to_anywhere_else_are_words(address: str) -> None:
    assert "href" not in render(f"[words]({address})")
    assert ">words</a>" in render(f"[words]({address})")


def test_images_become_links_and_within_links_their_words() -> None:
    """A page that loads an image tells whoever has it."""
    assert 'href="http://a.example/i.png"' in render("![a cat](http://a.example/i.png)")
    assert ">a cat</a>" in render("![a cat](http://a.example/i.png)")
    inside = render("[![a cat](http://a.example/i.png)](http://b.example)")
    assert "i.png" not in inside and ">a cat</a>" in inside
    assert ">image</a>" in render("![](http://a.example/i.png)")


def test_html_is_shown_as_it_was_written() -> None:
    assert Offences(render("a <b>c</b> &amp; <!-- d -->")).words == ["a <b>c</b> & <!-- d -->", "\n"]


def test_a_text_that_is_too_long_is_shown_as_it_is() -> None:
    text = "*a* <b> & " * (LONGEST // 10 + 1)
    assert render(text) == f"<pre>{text.replace('&', '&amp;').replace('<', '&lt;').replace('>', '&gt;')}</pre>"


HARD = {
    "quotes": "> " * 90_000 + "end",
    "quotes and lists": "> - " * 40_000 + "end",
    "lists": "\n".join("  " * depth + "- a" for depth in range(600)) + "\n" + "  " * 600 + "end",
    "brackets": "[" * 190_000 + "end",
    "images": "![" * 90_000 + "end",
    "links": "[a](" * 40_000 + "end",
    "links in links": "[" * 30_000 + "end" + "](b)" * 30_000,
    "stars": "*a " * 60_000 + "end",
    "stars in stars": "*" * 90_000 + "end" + "*" * 90_000,
    "underscores": "_a " * 60_000 + "end",
    "strikes": "~~a " * 45_000 + "end",
    "backticks": " ".join("`" * long for long in range(600)) + "end",
    "lines": "a\n" * 90_000 + "end",
    "cells": "|a" * 1_000 + "\n" + "|-" * 1_000 + "\n" + ("|a" * 1_000 + "\n") * 90 + "end",
    "columns": "|a" * 9_000 + "\n" + "|-" * 9_000 + "\n" + "a\n" * 80_000 + "end",
    "entities": "&#x" * 60_000 + "end",
    "backslashes": "\\" * 180_000 + "end",
    "tags": "<a " * 60_000 + "end",
    "addresses": "<http://" * 20_000 + "end",
    "references": "".join(f"[a{number}]: /x\n" for number in range(9_000)) + "\nend",
    "a long reference": "[a]: http://" + "x" * 100_000 + "\n\n" + "[a]" * 9_000 + "end",
    "a long image": "[a]: http://" + "x" * 100_000 + "\n\n" + "![a]" * 9_000 + "end",
    "a long title": "[a]: http://x '" + "x" * 100_000 + "'\n\n" + "[a]" * 9_000 + "end",
    "nuls": "\0" * 190_000 + "end",
    "half characters": "\ud800" * 100_000 + "end",
    "titles": "a\n=\n" * 40_000 + "end",
}


@pytest.mark.parametrize("name", HARD)
def test_no_text_takes_long_grows_beyond_measure_or_loses_its_end(name: str) -> None:
    began = time.process_time()
    html = render(HARD[name])
    assert time.process_time() - began < BOUND
    assert len(html) < 2 * GROWTH
    assert "end" in html
    assert offences(html) == []


def test_many_texts_together_do_not_take_long_either() -> None:
    texts = ["*a*", *("[" * 2_000 for _ in range(500)), "\ud800 <b> *end*"]
    began = time.process_time()
    found = render_all(texts)
    assert time.process_time() - began < BOUND
    assert (found[0], found[1], found[-1]) == (
        *("<p><em>a</em></p>\n", f"<p>{'[' * 2_000}</p>\n", "<pre>? &lt;b&gt; *end*</pre>"),
    )
    assert len(found) == len(texts)


@pytest.mark.parametrize("depth", [5, DEEPEST - 3, DEEPEST - 2, DEEPEST - 1, DEEPEST, DEEPEST + 1, 200])
def test_what_is_nested_too_deep_is_shown_all_the_same(depth: int) -> None:
    assert "words" in render("> " * depth + "words")


def test_a_fault_of_the_parser_is_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> str:
        raise RecursionError(text)

    monkeypatch.setattr(markdown, "_render", fail)
    assert render("<b>a</b>") == "<pre>&lt;b&gt;a&lt;/b&gt;</pre>"


def test_prose_of_a_usual_length_is_never_too_much() -> None:
    paragraph = "Some *words* of a [usual](http://a.example) answer, and `code`.\n\n- a\n- b\n\n"
    text = paragraph * (MARKS // 20)
    assert len(text) < LONGEST
    assert render(text).startswith("<p>Some <em>words</em>")
