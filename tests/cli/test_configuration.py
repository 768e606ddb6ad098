"""`quell config`: each value is told with where it comes from; a change changes what was asked for, or nothing."""

import fcntl
import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import quell.cli.draft
from quell.cli import main
from quell.cli.schema import key_of
from quell.config import Agent, Defaults, Provider, Settings
from quell.configfile import load
from tests.cli.stand_in import heard

CANARY = "sk-canary-0123456789abcdef"
FLAGS = {
    "config show --json": "test_each_value_is_told_with_where_it_comes_from",
    "config show --config": "test_another_file_may_be_named_everywhere",
    "config set --unset": "test_a_key_is_set_and_taken_out_again_and_the_rest_stays_as_it_is",
    "config set --config": "test_another_file_may_be_named_everywhere",
    "config path --config": "test_another_file_may_be_named_everywhere",
    "config check --json": "test_check_says_ok_or_what_makes_no_sense",
    "config check --config": "test_another_file_may_be_named_everywhere",
}

TEXT = """\
# ours, do not touch
[settings]  # seconds
term = 3  # a short one

[agents.coder]
# it reviews
model = "openai:gpt-5"
tools = [
    "shell",  # the first
]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of this user, and not there yet. There are keys in the environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("QUELL_CONFIG", "QUELL_AGENT", "QUELL_MODEL", "QUELL_TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("LOCAL_THING", CANARY)
    return tmp_path / "config" / "quell" / "config.toml"


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def say(words: str) -> tuple[int, str, str]:
    """No key is ever in what is said."""
    found = heard(*shlex.split(words))
    assert CANARY not in "".join(found[1:]), words
    assert "Traceback" not in found[2]
    return found


def refused(words: str, code: int = 125) -> str:
    got, out, err = say(words)
    assert (got, out) == (code, ""), words
    assert err.count("\n") == 1 and err.startswith("quell: "), err
    return err


def values(words: str = "config show --json") -> dict[str, Any]:
    code, out, _ = say(words)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_key_is_set_and_taken_out_again_and_the_rest_stays_as_it_is(file: Path) -> None:
    written(file, TEXT).chmod(0o640)
    assert say("config set settings.ask 1.5") == (0, f"settings.ask is set in {file}\n", "")
    assert say("config set settings.term 4")[0] == 0
    assert file.read_text() == TEXT.replace("term = 3", "term = 4").replace("one\n", "one\nask = 1.5\n", 1)
    assert file.stat().st_mode & 0o777 == 0o640
    assert say("config set settings.ask --unset") == (0, f"settings.ask is taken out of {file}\n", "")
    assert say("config set settings.term 3")[0] == 0
    assert file.read_text() == TEXT
    assert f"settings.ask is not set in {file}" in refused("config set settings.ask --unset")
    assert os.listdir(file.parent) == ["config.toml"]


def test_each_key_takes_what_its_type_says_and_a_new_file_is_for_its_user_only(file: Path) -> None:
    for words in (
        "settings.term 3",
        "defaults.model openai:gpt-5",
        "agents.coder.tools 'shell, read'",
        "agents.coder.network false",
        "agents.coder.limits.steps 20",
        "agents.coder.limits.cost 0.5",
        "'agents.coder.approval.shell(git *.py)' allow",
        "agents.coder.env.EDITOR 'vim -u NONE'",
        'agents."other-one".tools \'["a", "b"]\'',
        "models.local.base_url http://127.0.0.1:1/v1",
        "models.local.price_input 0.5",
        "models.local.key_env LOCAL_THING",
    ):
        assert say(f"config set {words}")[0] == 0, words
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    loaded = load(None, os.environ)
    coder, other = loaded.agents
    assert (loaded.settings, loaded.defaults) == (Settings(term=3.0), Defaults(model="openai:gpt-5"))
    assert (coder.tools, coder.network, coder.limits.steps, coder.limits.cost) == (("shell", "read"), False, 20, 0.5)
    assert coder.approval == {"shell(git *.py)": "allow"}
    assert coder.env == {"EDITOR": "vim -u NONE"}
    assert (coder.model, other.tools) == ("openai:gpt-5", ("a", "b"))
    base_url = "http://127.0.0.1:1/v1"
    assert loaded.providers == (Provider(name="local", base_url=base_url, price_input=0.5, key_env="LOCAL_THING"),)
    assert loaded.secrets == (CANARY,)


WRONG = [
    ("settings.tem 3", "settings: there is no key 'tem'; did you mean term?"),
    ("setings.term 3", "there is no table 'setings'; did you mean settings?"),
    ("settings 3", "settings is a table: name a key in it, as in settings.term"),
    ("agents.coder.limits 3", "agents.coder.limits is a table: name a key in it, as in agents.coder.limits.steps"),
    ("agents.coder.approval allow", "agents.coder.approval is a table"),
    ("agents.coder.limits.stps 3", "agents.coder.limits: there is no key 'stps'; did you mean steps?"),
    ("settings.term.x 3", "settings.term is no table"),
    ("settings.term soon", "settings.term takes a number, 0 or more"),
    ("settings.term -- -1", "settings.term takes a number, 0 or more"),
    ("agents.coder.limits.steps 1.5", "agents.coder.limits.steps takes a whole number, 0 or more"),
    ("agents.coder.network no", "agents.coder.network takes true or false"),
    ("settings.term 3 --config ''", "--config is empty"),
    ("settings.term inf", "settings.term is a number, not inf"),
    ("agents.coder.isolation vm", "agents.coder.isolation takes none or bwrap"),
    (f"agents.coder.isolation {CANARY}", "agents.coder.isolation takes none or bwrap"),
    ("agents.coder.tools '[1]'", "agents.coder.tools is a list of words"),
    ("'agents.a b.model' x", "'a b' is no name of an agent: letters, digits, `_` and `-`"),
    ("'agents.coder.approval.shell(git' allow", "the rule 'shell(git' makes no sense"),
    (f"models.local.key {CANARY}", "a key does not belong into the file; put it into a variable and name that"),
    (f"models.local.key_env {CANARY}", "models.local.key_env is the name of the variable that holds the key"),
    ("models.local.base_url localhost:11434", "models.local.base_url is no address; it looks like https://"),
    (f"models.local.base_url http://me:{CANARY}@x/", "models.local.base_url holds a name or a password"),
    ("settings.term", "takes a key and a value, or a key and --unset"),
    ("settings.term 3 --unset", "takes a key and a value, or a key and --unset"),
    ("settings. 3", "'settings.' is no key: it looks like settings.term"),
]


def test_what_makes_no_sense_is_refused_and_changes_nothing(file: Path) -> None:
    written(file, TEXT)
    for words, sentence in WRONG:
        assert sentence in refused(f"config set {words}"), words
        assert file.read_text() == TEXT, words


def test_what_has_no_effect_yet_is_set_and_told_of(file: Path) -> None:
    """H53"""
    for words, sentence in (
        ("agents.mine.network false", "agents.mine.network is of a sandbox: without isolation it keeps nobody off"),
        ("defaults.model gpt-5", "nobody serves 'gpt-5': a model is PROVIDER:MODEL"),
        ("defaults.agent mnie", "there is no agent 'mnie' yet; did you mean mine?"),
    ):
        code, out, err = say(f"config set {words}")
        assert code == 0 and "is set in" in out and sentence in err
    assert "keeps nobody off" in say("config check")[2]
    code, _, err = say("config set agents.mine.isolation bwrap")
    assert (code, err) == (0, "")
    assert say("config set defaults.model openai:gpt-5")[2] == say("config set defaults.agent mine")[2] == ""


def test_a_file_that_makes_no_sense_is_not_written_and_can_be_mended(file: Path) -> None:
    written(file, "[settings]\nterm = 'soon'\n")
    assert "settings.term takes a number" in refused("config set settings.ask 1")
    assert say("config set settings.term 3")[0] == 0
    written(file, "[settings\n")
    assert f"{file} is no TOML" in refused("config set settings.ask 1")


def test_a_write_that_fails_leaves_the_file_as_it_was(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(file, TEXT)

    def full(fresh: str, target: str) -> None:
        raise OSError(28, "No space left on device", target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full)
        assert f"{file} cannot be changed: No space left on device" in refused("config set settings.term 9")
    assert file.read_text() == TEXT
    assert os.listdir(file.parent) == ["config.toml"]


def test_two_changes_at_once_are_made_one_after_the_other(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(file, TEXT)
    monkeypatch.setattr(quell.cli.draft, "WAIT", 0.05)
    fd = os.open(file.parent, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert "another program changes files" in refused("config set settings.term 9")
    finally:
        os.close(fd)
    assert file.read_text() == TEXT


def test_a_link_is_followed_to_a_file_and_to_nothing_else(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "quell.toml"
    written(real, TEXT)
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    assert say("config set settings.term 9")[0] == 0
    assert file.is_symlink() and "term = 9" in real.read_text()
    real.unlink()
    assert f"{file} is a link to {real}, which is not there" in refused("config set settings.term 9")
    file.unlink()
    file.mkdir()
    assert f"{file} is a folder" in refused("config set settings.term 9")
    file.rmdir()
    os.mkfifo(file)
    assert f"{file} is no regular file" in refused("config set settings.term 9")
    file.unlink()
    real.write_text(TEXT)
    file.symlink_to(real)
    if os.geteuid() == 0:
        os.chown(real, 12345, -1)
        assert "belongs to another user" in refused("config set settings.term 9")


def test_tables_written_inline_or_with_dots_can_be_changed_too(file: Path) -> None:
    written(file, 'settings.term = 1  # one\nagents = {a = {model = "x"}}\n')
    for words in ("settings.ask 2", "agents.a.strategy react", "agents.a.limits.steps 3", "agents.b.model y"):
        assert say(f"config set {words}")[0] == 0, words
    assert "settings.term = 1  # one\n" in file.read_text()
    one, other = load(None, {"XDG_CONFIG_HOME": str(file.parents[1])}).agents
    assert (one.model, one.strategy, one.limits.steps, other.model) == ("x", "react", 3, "y")


def test_each_value_is_told_with_where_it_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(
        file,
        f"""
        [settings]
        term = 3
        ask = 1
        [defaults]
        model = "openai:gpt-5"
        [agents.coder]
        system = "the key is {CANARY}"
        [agents.coder.env]
        API_KEY = "{CANARY}"
        [models.local]
        key_env = "LOCAL_THING"
        [models.other]
        kind = "anthropic"
        """,
    ).chmod(0o600)
    monkeypatch.setenv("QUELL_TERM", "7")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    found = values("config show --json")
    assert found["path"] == found["file"] == str(file)
    assert found["settings"]["term"] == {"value": 7.0, "from": "QUELL_TERM"}
    assert found["settings"]["ask"] == {"value": 1.0, "from": "file"}
    assert found["settings"]["handler"] == {"value": 30.0, "from": "default"}
    assert found["defaults"]["model"] == {"value": "openai:gpt-5", "from": "file"}
    assert found["models"]["local"]["key"] == {"value": "$LOCAL_THING is set", "from": "environment"}
    assert found["models"]["other"]["key"]["value"] == "$ANTHROPIC_API_KEY is not set"
    agents = found["agents"]
    assert agents["coder"]["env"] == {"API_KEY": {"value": "***", "from": "file"}}
    assert agents["coder"]["system"]["value"] == "the key is ***"
    assert agents["coder"]["model"] == {"value": "openai:gpt-5", "from": "defaults.model"}
    assert agents["assistant"]["model"]["from"] == "defaults.model"
    assert agents["scripted"]["model"] == {"value": "scripted", "from": "built in"}
    monkeypatch.setenv("QUELL_MODEL", "local:llama3")
    assert values()["defaults"]["model"] == {"value": "local:llama3", "from": "QUELL_MODEL"}
    lines = [line.split() for line in say("config show")[1].splitlines()]
    assert ["settings.term", "7", "QUELL_TERM"] in lines
    assert ["agents.coder.env.API_KEY", "***", "file"] in lines
    assert "QUELL_TERM is set, and goes before the file" in say("config set settings.term 4")[1]


def test_check_says_ok_or_what_makes_no_sense(file: Path, tmp_path: Path) -> None:
    assert say("config check")[:2] == (0, f"ok: {file} is not there, so these are the defaults\n")
    written(file, TEXT)
    assert say("config check") == (0, f"ok: {file}\n", "")
    bad = written(tmp_path / "bad.toml", "[agents.x]\nmodle = 'y'\n")
    assert "agents.x: there is no key 'modle'; did you mean model?" in refused(f"config check {bad}", 1)
    code, out, _ = say(f"config check {bad} --json")
    assert code == 1
    assert json.loads(out) == {"path": str(bad), "ok": False, "problem": json.loads(out)["problem"], "warnings": []}
    assert f"there is no file {tmp_path}/none" in refused(f"config check {tmp_path}/none", 1)
    key = written(tmp_path / "key.toml", f"[models.x]\napi_key = '{CANARY}'\n")
    assert 'put it into a variable and name that: key_env = "X_API_KEY"' in refused(f"config check {key}", 1)
    spread = written(tmp_path / "open.toml", f"[agents.x.env]\nAPI_KEY = '{CANARY}'\n")
    spread.chmod(0o644)
    assert "holds secrets, and others may read it" in say(f"config check {spread}")[2]


def test_check_names_what_is_not_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for text, sentence in (
        ("[agents.x]\ntools = ['shel']", "agents.x: there is no tool 'shel'; did you mean shell?"),
        ("[agents.x]\nmodel = 'opnai:gpt-5'", "agents.x: there is no model 'opnai'; did you mean openai?"),
        ("[agents.x]\nstrategy = 'rect'", "agents.x: there is no strategy 'rect'; did you mean react?"),
        ("[agents.x]\nmemory = 'sqlte'", "agents.x: there is no memory 'sqlte'; did you mean sqlite?"),
        ("[agents.mine]\n[defaults]\nagent = 'mnie'", "defaults.agent: there is no agent 'mnie'; did you mean mine?"),
        (
            "[models.local]\n[defaults]\nmodel = 'locl:x'",
            "defaults.model: there is no model 'locl'; did you mean local?",
        ),
    ):
        written(file, text)
        assert sentence in refused("config check", 1), text
    written(file, "[settings]\nterm = 1")
    monkeypatch.setenv("QUELL_TREM", "3")
    code, out, err = say("config check")
    assert (code, out) == (0, f"ok: {file}\n") and "QUELL_TREM is not read; did you mean QUELL_TERM?" in err


def test_another_file_may_be_named_everywhere(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    assert say(f"config set settings.term 8 --config {other}")[0] == 0
    assert not file.exists()
    assert values(f"config show --json --config {other}")["settings"]["term"] == {"value": 8.0, "from": "file"}
    assert say(f"config path --config {other}")[1] == say(f"config check --config {other}")[1][4:] == f"{other}\n"
    assert say("config path")[1] == f"{file}\n"
    monkeypatch.setenv("QUELL_CONFIG", str(other))
    assert say("config path")[1] == f"{other}\n"
    assert values()["file"] == str(other)


def test_a_wrong_word_is_told_with_the_nearest(file: Path) -> None:
    for words, hint in {
        "confg": "there is no command 'confg' (did you mean config?)",
        "config": "quell config: missing command; see quell config --help",
        "config sho": "quell config has no command 'sho' (did you mean show?); see quell config --help",
        "config show --jsn": "quell config show has no option --jsn (did you mean --json?)",
    }.items():
        assert hint in refused(words)


def test_keys_agents_models_and_commands_are_completed_without_a_server(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written(file, TEXT + '[models.local]\nkind = "openai"\n')
    monkeypatch.setenv("_QUELL_COMPLETE", "complete_bash")
    for words, expected in {
        "co": {"config", "completion"},
        "config s": {"show", "set"},
        "config set settings.t": {"settings.term"},
        "config set agents.coder.limits.st": {"agents.coder.limits.steps"},
        "config set models.local.pr": {f"models.local.price_{one}" for one in ("input", "cached", "output")},
        "agent show ": {"scripted", "assistant", "coder"},
        "agent add x --tool re": {"read", "remember", "recall"},
        "agent add x --model lo": {"local:"},
        "agent show --js": {"--json"},
    }.items():
        monkeypatch.setenv("COMP_WORDS", f"quell {words}")
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) if not words.endswith(" ") else len(words.split()) + 1))
        assert main(()) == 0
        assert set(capsys.readouterr().out.split()) == expected, words


def test_every_key_that_can_be_in_the_file_can_be_set(file: Path) -> None:
    """H53: the two lists are one."""
    for table, kind in (
        ("settings.", Settings),
        ("defaults.", Defaults),
        ("agents.x.", Agent),
        ("models.x.", Provider),
    ):
        for name in kind.__struct_fields__:
            below = {"limits": ".steps", "approval": ".shell", "env": ".A"}.get(name, "")
            below = below if kind is Agent else ""
            if name != "name":
                assert key_of(f"{table}{name}{below}").parts[-1 if not below else -2] == name


def test_what_cannot_be_changed_safely_is_left_to_a_person(file: Path) -> None:
    """And what is told is about the file as it is, not about a draft that came out wrong."""
    text = """agents.x.model = "scripted"  # mine
agents.x.tools = ["read"]

[settings]
term = 1
"""
    for words in ("config set agents.z.effort low", "agent add q --tool read"):
        written(file, text)
        assert "cannot change safely: edit it by hand" in refused(words)
        assert file.read_text() == text
    assert say("agent remove x")[0] == 0
    assert tomllib.loads(file.read_text()) == {"settings": {"term": 1}}
