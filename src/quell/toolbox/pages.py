"""A page of the web as text that can be read: headings, lists and links as Markdown has them, and nothing that is run.

Standard library only: the process that fetches imports it.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

_UNSEEN = frozenset("script style noscript template svg head iframe object canvas select".split())
_BLOCKS = frozenset(
    "address article aside blockquote dd div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr"
    " li main nav ol p pre section table tbody thead tr ul".split()
)


def readable(page: str, url: str) -> str:
    """The text of a page that is at this address."""
    reader = _Reader(url)
    reader.feed(page)
    reader.close()
    text = "".join(reader.parts)
    text = re.sub(r"[ \t]+\n", "\n", text)
    body = re.sub(r"\n{3,}", "\n\n", text).strip()
    title = " ".join("".join(reader.title).split())
    return f"{title}\n\n{body}" if title else body


class _Reader(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.title: list[str] = []
        self._url = url
        self._unseen: list[str] = []
        self._in_title = False
        self._kept = 0  # how deep in <pre>
        self._link = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title" and not self.title:
            self._in_title = True
        if tag == "body":
            self._unseen.clear()  # whatever was not closed before it
        if tag in _UNSEEN:
            self._unseen.append(tag)
        if self._unseen:
            return
        if tag in _BLOCKS:
            self._break(tag)
        elif tag == "br":
            self.parts.append("\n")
        elif tag in ("td", "th"):
            self.parts.append("| " if self.parts and self.parts[-1].endswith("\n") else " | ")
        elif tag == "a":
            self._begin_link(dict(attrs).get("href") or "")
        elif tag == "img" and (words := dict(attrs).get("alt")):
            self.parts.append(f"[{words}]")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._unseen:
            while self._unseen.pop() != tag:
                pass
        elif not self._unseen:
            if tag == "a" and self._link:
                self.parts.append(f"]({self._link})")
                self._link = ""
            elif tag in _BLOCKS:
                self._kept -= tag == "pre" and self._kept > 0
                self.parts.append("\n" if tag in ("li", "tr") else "\n\n")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title.append(data)
        elif not self._unseen:
            if self._kept:
                self.parts.append(data)
                return
            words = re.sub(r"\s+", " ", data)
            if words == " " and self.parts and self.parts[-1].endswith(("\n", " ")):
                return
            self.parts.append(words.lstrip() if not self.parts or self.parts[-1].endswith("\n") else words)

    def _break(self, tag: str) -> None:
        self.parts.append("\n")
        if tag == "pre":
            self._kept += 1
        elif tag == "li":
            self.parts.append("- ")
        elif tag[0] == "h" and tag[1:].isdigit():
            self.parts.append("\n" + "#" * int(tag[1:]) + " ")

    def _begin_link(self, target: str) -> None:
        if self._link or not target or target.startswith(("#", "javascript:", "data:")):
            return
        try:
            self._link = urljoin(self._url, target)
        except ValueError:
            return
        self.parts.append("[")
