"""The files of the page, read: no markup but by one door, nothing inline, nothing from elsewhere, everything used."""

import re
from pathlib import Path

import pytest

import quell

WEB = Path(quell.__file__).parent / "surfaces" / "web"
FILES = sorted(path for path in WEB.iterdir() if path.is_file())
SCRIPTS = [path for path in FILES if path.suffix == ".js"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_is_short_plain_and_loads_nothing_from_elsewhere(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 120
    assert len(lines) <= (300 if path.suffix == ".js" else 1200)
    assert text.endswith("\n") and "\t" not in text
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_says_what_it_is_for_and_makes_no_markup(path: Path) -> None:
    text = path.read_text()
    assert text.startswith("/* ")
    door = path.name == "html.js"
    for word in ("innerHTML", "createPolicy"):
        assert text.count(word) == (1 if door else 0), word
    for word in (
        "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "DOMParser", "setHTML",
        "eval(", "new Function", "srcdoc", "javascript:", "setAttribute(\"style", "cssText",
    ):  # fmt: skip
        assert word not in text, word


def test_the_page_has_no_script_style_or_handler_of_its_own() -> None:
    text = (WEB / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", text)
    for tag in re.findall(r"<script[^>]*>", text):
        assert re.search(r'src="/static/[\w.]+"', tag)


def test_every_module_is_reached_from_the_page() -> None:
    known, waiting = set(), re.findall(r'/static/([\w.]+)"', (WEB / "index.html").read_text())
    while waiting:
        name = waiting.pop()
        known.add(name)
        waiting += [one for one in re.findall(r'from "\./([\w.]+)"', (WEB / name).read_text()) if one not in known]
    assert known | {"index.html"} == {path.name for path in FILES}
