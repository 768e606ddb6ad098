"""`quell run` against models behind HTTP, in their good and bad hours: stdout, stderr and events."""

import json
from pathlib import Path
from typing import Any

import pytest

from quell.testing.llm import Calls, ModelServer, Says
from tests.cli.command import quell

KINDS = {"responses": ("openai", "gpt-5"), "chat": ("openai", "llama3"), "anthropic": ("anthropic", "claude-haiku-4-5")}

each_api = pytest.mark.parametrize("api", KINDS)


def config(folder: Path, api: str, base: str) -> list[str]:
    """The flags that name a server of this kind."""
    kind, model = KINDS[api]
    how = f'kind = "{kind}"\nbase_url = "{base}"\n' + (f'api = "{api}"\n' if kind == "openai" else "")
    file = folder / "config.toml"
    file.write_text(f"[models.it]\n{how}")
    return ["--config", str(file), "--model", f"it:{model}"]


def told(tmp_path: Path, api: str, server: ModelServer, *words: str, **how: Any) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one run against it."""
    base = server.root if api == "anthropic" else server.url
    ended = quell("run", *config(tmp_path, api, base), *words, **how)
    return ended.returncode, ended.stdout.decode(), ended.stderr.decode()


@each_api
def test_a_pipe_gets_only_the_answer_that_counts(tmp_path: Path, api: str) -> None:
    """What was said before a break is void; the notice is beside it, and the steps before are there."""
    broken = Says("one two three four").cut(2)
    with ModelServer(Says("First.") + Calls(("glob", {"pattern": "*"})), broken, Says("one two")) as server:
        code, out, err = told(tmp_path, api, server, "hello")
    assert (code, out) == (0, "First.\none two\n")
    assert "was lost, and what it said so far is void; trying again in " in err


def test_the_events_say_what_is_void(tmp_path: Path) -> None:
    with ModelServer(Says("one two three").cut(2), Says("four")) as server:
        code, out, _ = told(tmp_path, "chat", server, "--json", "hello")
    events = [json.loads(line) for line in out.splitlines()]
    kinds = [one["kind"] for one in events]
    at = kinds.index("model.restarted")
    said = "".join(one["text"] for one in events[:at] if one["kind"] == "message.delta")
    again = "".join(one["text"] for one in events[at:] if one["kind"] == "message.delta")
    (asked,) = [one["seq"] for one in events if one["kind"] == "model.requested"]
    assert code == 0 and (said.strip(), again) == ("one two", "four")
    assert events[at]["request"] == asked and "was lost" in events[at]["reason"]


def test_what_a_failed_answer_had_said_is_shown_with_how_it_failed(tmp_path: Path) -> None:
    with ModelServer(Says("one two").stops("filter")) as server:
        code, out, err = told(tmp_path, "chat", server, "hello")
    assert (code, out) == (1, "one two\n")
    assert "the turn failed: the provider's content filter" in err


def test_a_pipe_gets_what_was_said_before_a_stop(tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('[{"say": "one two"}, {"hang": true}]\n')
    ended = quell("run", "--model", f"scripted:{script}", "--timeout", "2", "hello")
    assert (ended.returncode, ended.stdout) == (124, b"one two\n")
    assert b"stopped: timeout of 2 s; confirmed" in ended.stderr
