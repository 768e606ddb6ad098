"""The picture in the README is what a terminal shows: `quell run`, a question, Ctrl+C and the receipt."""

import io
import json
import os
import re
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.cli.tmux import PROMPT, Tmux, running

BUILD = """#!/bin/sh
setsid sleep 7661 &   # the dev server
echo "compiling 214 files"
echo "waiting for the dev server on port 3000 ..."
wait
"""
ANSWERS = (
    [{"say": "I look at what it **starts**:\n"}, {"call": "shell", "arguments": {"command": "cat build.sh"}}],
    [
        {"say": "It waits for a server that never ends. I run it once:\n"},
        {"call": "shell", "arguments": {"command": "./build.sh"}},
    ],
)
CONFIG = """[defaults]
agent = "coder"
[agents.coder]
model = "scripted:{script}"
tools = ["shell"]
approval = {{ "shell(cat *)" = "allow" }}
"""
COLUMNS, ROWS = 84, 24


def drawn(screen: str, title: str) -> str:
    """As SVG, with the prompt that people know, and without a font that would be fetched from elsewhere."""
    lines = [line for line in screen.rstrip().split("\n") if PROMPT not in line]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text("$ ", "bold green"), Text.from_ansi("\n".join(lines).rstrip()), sep="")
    svg = console.export_svg(title=title, unique_id="quell")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", "", svg, flags=re.DOTALL)


def test_the_picture_is_what_a_terminal_shows(tmp_path: Path) -> None:
    """H14: what it says is gone is gone."""
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, ANSWERS)))
    config = tmp_path / "config" / "quell" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(script=script))
    with Tmux(tmp_path, columns=COLUMNS, rows=ROWS) as t:
        build = t.home / "build.sh"
        build.write_text(BUILD)
        build.chmod(0o755)
        t.line('quell run "why does the build hang?"')
        t.expect("y once")
        t.write("y")
        t.expect("│ waiting for the dev server")
        t.key("C-c")
        t.expect("stopped; confirmed: .* nobody is left")
        t.given_back()
        assert running("7661") == []
        shown, plain = t.coloured, t.screen
    assert "stopped; confirmed: 2 processes ended" in plain and str(tmp_path) not in plain
    picture = drawn(shown, "quell run")
    assert len(picture) < 20_000 and "http" not in picture.replace("http://www.w3.org/", "")
    if os.environ.get("QUELL_SCREENSHOTS") == "1":
        (Path(__file__).parents[2] / "docs" / "terminal.svg").write_text(picture)
