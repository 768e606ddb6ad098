"""Markdown as HTML that can do nothing: no script, no style, no image, no link but to the web and to mail.

Two nets: the parser takes no HTML, and what it makes is sanitised all the same. Never raises and never takes long.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

LONGEST = 200_000
"""Characters. What is longer is shown as it is, without any markup."""
MARKS = 20_000
"""Lines, brackets and stars: each may cost the parser up to 25 µs."""
ALL_MARKS = 2 * MARKS
"""Of many texts together."""
GROWTH = 1_000_000
"""Characters of addresses: one long reference that is used often would make a page of gigabytes."""
DEEPEST = 50
"""Lists and quotes within each other. The parser leaves out what is deeper."""

TAGS = frozenset(
    "p br hr h1 h2 h3 h4 h5 h6 blockquote ul ol li pre code em strong s a table thead tbody tr th td".split()
)
ATTRIBUTES = {"a": {"href"}, "ol": {"start"}, "code": {"class"}, "th": {"align"}, "td": {"align"}}
SCHEMES = frozenset({"http", "https", "mailto"})
REL = "noopener noreferrer nofollow"

VALUES = {
    "href": re.compile(r"(?:https?://|mailto:)[^\x00-\x20\x7f]+", re.ASCII | re.IGNORECASE),
    "start": re.compile(r"[0-9]{1,9}", re.ASCII),
    "class": re.compile(r"language-[\w.+#-]{1,40}", re.ASCII),
    "align": re.compile(r"left|center|right"),
}
"""What an attribute may be; all of it."""

_parser = MarkdownIt("commonmark", {"html": False, "maxNesting": DEEPEST}).enable(["table", "strikethrough"])


def render(text: str) -> str:
    """Safe to be put into a page."""
    text = text.encode("utf-8", "replace").decode()
    if len(text) > LONGEST or marks(text) > MARKS:
        return plain(text)
    try:
        return clean(_render(text))
    except Exception:  # noqa: BLE001  a boundary: whatever the parser stumbles over is shown as it is
        return plain(text)


def render_all(texts: Iterable[str]) -> list[str]:
    """Each as `render` does it, until they have taken long: the rest is shown as it is."""
    left, found = ALL_MARKS, []
    for text in texts:
        left -= marks(text)
        found.append(render(text) if left >= 0 else plain(text.encode("utf-8", "replace").decode()))
    return found


def marks(text: str) -> int:
    return sum(map(text.count, "\n[*_|"))


def plain(text: str) -> str:
    """As it is, without any markup."""
    return f"<pre>{html.escape(text.replace(chr(0), chr(0xFFFD)))}</pre>"


def clean(dirty: str) -> str:
    return nh3.clean(
        dirty,
        tags=set(TAGS),
        attributes=ATTRIBUTES,
        attribute_filter=_only_fit,
        link_rel=REL,
        set_tag_attribute_values={"a": {"target": "_blank"}},
        url_schemes=set(SCHEMES),
    )


def _only_fit(tag: str, attribute: str, value: str) -> str | None:
    if tag == "a" and attribute in ("rel", "target"):  # they are our own
        return value
    fit = VALUES.get(attribute)
    return value if fit is not None and fit.fullmatch(value) else None


def _render(text: str) -> str:
    tokens = _parser.parse(text)
    if any(one.level >= DEEPEST - 1 for one in tokens):
        raise ValueError("too deep: something would be left out")
    addresses = 0
    for one in tokens:
        if one.children is not None:
            one.children = list(_without_images(one.children))
            for part in one.children:
                part.attrs.pop("title", None)
                addresses += len(str(part.attrs.get("href", "")))
        elif one.type in ("th_open", "td_open") and (style := str(one.attrs.pop("style", ""))):
            one.attrs["align"] = style.removeprefix("text-align:")
    if addresses > GROWTH:
        raise ValueError("too long: it would grow beyond measure")
    return str(_parser.renderer.render(tokens, _parser.options, {}))


def _without_images(tokens: Iterable[Token]) -> Iterable[Token]:
    """A page that shows an image tells whoever has it: there is a link to it instead, where there may be one."""
    linked = 0
    for one in tokens:
        linked += one.nesting if one.type in ("link_open", "link_close") else 0
        if one.type != "image":
            yield one
            continue
        words = Token("text", "", 0, content=one.content or "image")
        if linked:
            yield words
        else:
            yield from (
                Token("link_open", "a", 1, attrs={"href": one.attrs["src"]}),
                words,
                Token("link_close", "a", -1),
            )
