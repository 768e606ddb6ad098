"""Rules of approval: what is allowed is exactly what a rule says, and what is denied is whatever it may mean."""

import os
import shlex
import string
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.config import Agent, Policy, fit, rule
from quell.kernel.policy import policy

CWD = "/work/of/nobody"
SHELL = {
    "type": "object",
    "properties": {
        "command": {"type": "string"},
        "background": {"type": "boolean", "default": False},
        "timeout": {"type": "number", "default": 120.0},
    },
    "required": ["command"],
}
PATH = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


def judged(rules: dict[str, Policy], tool: str, arguments: dict[str, Any], **more: Any) -> Policy:
    given: dict[str, Any] = {"cwd": CWD, "parameters": SHELL if tool == "shell" else {}} | more
    return policy(Agent(name="x", approval=rules), tool, arguments, **given)


def shell(rules: dict[str, Policy], command: Any, **more: Any) -> Policy:
    return judged(rules, "shell", {"command": command, **more})


# -- precedence


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ({}, "ask"),
        ({"*": "allow"}, "allow"),
        ({"shell": "deny", "*": "allow"}, "deny"),
        ({"shell": "ask", "*": "deny"}, "ask"),
        ({"other": "allow"}, "ask"),
        ({"other(git *)": "allow"}, "ask"),
        ({"shell": "deny", "shell(git *)": "allow"}, "allow"),
        ({"shell": "allow", "shell(git *)": "ask"}, "ask"),
        ({"*": "allow", "shell(git *)": "deny"}, "deny"),
        ({"shell(git status)": "allow", "shell(git *)": "ask"}, "ask"),
        ({"shell(git *)": "deny", "shell(git status)": "ask"}, "deny"),
        ({"shell(git *)": "allow", "shell(*status)": "deny"}, "deny"),
        ({"shell": "deny", "shell(git *)": "ask"}, "ask"),
        ({"Shell": "allow"}, "ask"),
        ({"shell(git)": "allow"}, "ask"),
    ],
)
def test_deny_goes_before_ask_and_allow_then_the_tool_then_all_then_the_default(
    rules: dict[str, Policy], expected: str
) -> None:
    assert shell(rules, "git status") == expected


# -- rules that make no sense


@pytest.mark.parametrize(
    "key",
    [
        "",
        " ",
        "()",
        "(x)",
        "shell(",
        "shell)",
        "shell()",
        "shell( )",
        "shell(a",
        "shell(a))",
        "shell(a)b",
        "*(a)",
        "sh*",
        "shell(command=)",
        "shell(command=a, command=b)",
        "shell(a\\)",
        "shell(\x00)",
        "she ll",
        "-x",
        "shell(a)(b",
        "**",
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_a_sentence_that_names_it(key: str) -> None:
    with pytest.raises(quell.UsageError, match=r"agent 'x': the rule .* makes no sense"):
        Agent(name="x", approval={key: "allow"})
    with pytest.raises(quell.UsageError):
        fit({"name": "x", "approval": {key: "allow"}}, Agent)


def test_a_rule_is_read_as_it_is_written() -> None:
    assert rule("shell(git *)").patterns == (("", "git \0"),)
    assert rule("shell(echo (a), b)").patterns == (("", "echo (a), b"),)
    assert rule(r"shell(a\*\(\,\\)").patterns == (("", r"a*(,\ ".strip()),)
    assert rule("shell(command=git *, background=false)").patterns == (("command", "git \0"), ("background", "false"))
    assert rule(r"shell(command=a\, b=c)").patterns == (("command", "a, b=c"),)
    assert rule("shell(command=a, b)").patterns == (("command", "a, b"),)


# -- commands

PLAIN = [
    "git status",
    "git log -n 3 -- src/a.py",
    "git commit -m 'fix it'",
    'git add "a b"',
    "git add *.py",
    "git diff HEAD^",
]
OTHERS = [
    *("git status; rm x", "git status;rm x", "git status && rm x", "git status & rm x", "git status | sh"),
    *("git status > x", "git status >> x", "git status < x", "git log $(rm x)", "git log `rm x`", "git log ${x}"),
    *("git status\nrm x", "git status\r\nrm x", "git status\\\nrm x", "git log $IFS", "git {a,b}", "git <(rm x)"),
    *("git log (rm x)", "git status\trm", "git status\vrm x", "git status\x00; rm x", "git status\x85rm x"),
    *("git status\u2028rm x", "git status\u00a0x", "git log !x", "git status # x", "git log \\x", "git x\x1b[2J"),
    *("gitk x", "git-evil x", "git=1 rm x", "gi\u0442 status", "\uff47it status", "GIT status", " git status", "git"),
    *(
        "git",
        "rm x; git status",
        "rm git status",
        "",
        " ",
        "git log \u202e x",
        "git log \U0001f600",
    ),
]


@pytest.mark.parametrize("command", PLAIN)
def test_a_wildcard_allows_the_words_of_one_plain_command(command: str) -> None:
    assert shell({"shell(git *)": "allow"}, command) == "allow"
    assert shell({"shell(command=git *)": "allow"}, command) == "allow"
    assert shell({"shell(git*)": "allow"}, command) == "allow"
    assert shell({"shell(*)": "allow"}, command) == "allow"


@pytest.mark.parametrize("command", OTHERS, ids=repr)
def test_a_wildcard_never_allows_what_could_be_another_command(command: str) -> None:
    assert shell({"shell(git *)": "allow"}, command) == "ask"
    if command != "git":
        assert shell({"shell(git*)": "allow"}, command) == "ask"
    assert shell({"shell(git *)": "allow", "shell": "deny"}, command) == "deny"


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("* --dry-run", "rm x # --dry-run"),
        ("* --dry-run", "rm x ' --dry-run'"),
        ("git * --dry-run", 'git push " --dry-run"'),
        ("command=A=1 git*", "A=1 git=2 rm x"),
        ("command=A=1 B=2 git*", "A=1 B=2 gitk"),
        ("make && *", "make && rm x"),
        ("git status", "git status "),
        ("git status", "git status\n"),
        ("ls", "ls;rm x"),
        (r"echo \*", "echo x"),
    ],
)
def test_what_only_looks_like_a_rule_is_asked(pattern: str, command: str) -> None:
    assert shell({f"shell({pattern})": "allow"}, command) == "ask"


def test_a_command_that_is_spelt_out_is_allowed_as_it_is() -> None:
    rules: dict[str, Policy] = {"shell(make && make test | tail -n 3)": "allow", r"shell(ls \*)": "allow"}
    assert shell(rules, "make && make test | tail -n 3") == "allow"
    assert shell(rules, "make && make test | tail -n 30") == "ask"
    assert shell(rules, "ls *") == "allow"
    assert shell({"shell(command=A=1 git *)": "allow"}, "A=1 git status") == "allow"
    assert shell({"shell(git * --dry-run)": "allow"}, "git push origin --dry-run") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "rm",
        "true; rm x",
        "true && rm -rf x",
        "true|xargs rm",
        "(rm x)",
        "$(rm x)",
        "`rm x`",
        "sudo rm x",
        "/bin/rm x",
        "'rm' x",
        'r"m" x',
        "r\\m x",
        "rm\t-rf\tx",
        "rm${IFS}x",
        "{rm,-rf,x}",
        "bash -c 'rm x'",
        "A=b rm x",
        "a\nrm x",
        "if true; then rm x; fi",
        "find . -exec rm {} +",
        "\uff52\uff4d x",
        "RM x",
        "rm<x",
        "!rm x",
        "eval 'r''m x'",
    ],
    ids=repr,
)
def test_a_deny_is_not_evaded_by_what_stands_around_the_command(command: str) -> None:
    assert shell({"shell(rm *)": "deny", "shell": "allow"}, command) == "deny"
    assert shell({"shell(rm *)": "ask", "shell": "allow"}, command) == "ask"


@pytest.mark.parametrize(
    "command", ["$x y", "`x` y", "/bin/r? x", "/bin/[r]m x", "[!x]m y", "* x", "r\\155 x", "a" * 100_001]
)
def test_what_a_shell_would_make_of_it_is_asked_where_something_is_denied(command: str) -> None:
    assert shell({"shell(rm *)": "deny", "shell": "allow"}, command) == "ask"
    assert shell({"shell(rm *)": "deny", "shell(*)": "allow"}, command) != "allow"
    assert shell({"shell(rm *)": "ask", "shell": "deny"}, command) == "deny"


@pytest.mark.parametrize("command", ["ls x", "rmdir x", "ls *.py", "farm x", "rm-x y", "perform rm.txt"])
def test_a_deny_is_of_that_command_and_no_other(command: str) -> None:
    assert shell({"shell(rm *)": "deny", "shell": "allow"}, command) == "allow"


def test_a_real_shell_runs_nothing_but_what_was_allowed(tmp_path: Path) -> None:
    """Every pair of signs before another command: of those that are allowed, bash itself says what they run."""
    signs = [*string.punctuation, *string.whitespace, "", "a", "\u00a0", "\u2028", "\x85", "\u00e9"]
    commands = [f"git x{one}{other}touch y" for one in signs for other in signs]
    allowed = sorted({one for one in commands if shell({"shell(git *)": "allow"}, one) == "allow"})
    assert "git x touch y" in allowed and len(allowed) < len(commands) / 2
    lines = [f"eval {shlex.quote(one)}" for one in allowed]
    script = ["git() { :; }", 'command_not_found_handle() { echo "ran $*"; }', *lines, "echo but; touch y"]
    told = subprocess.run(
        ["/bin/bash"], input="\n".join(script), cwd=tmp_path, env={"PATH": "/nowhere"}, capture_output=True, text=True
    )
    assert told.stdout == "but\nran touch y\n", "the last is seen, and was not allowed"
    assert list(tmp_path.iterdir()) == []


def test_an_ask_that_only_may_be_meant_does_not_soften_a_deny() -> None:
    rules: dict[str, Policy] = {"shell": "deny", "shell(git *)": "ask"}
    assert shell(rules, "git status") == "ask"
    assert shell(rules, "rm x; git status") == "deny"


# -- types


@pytest.mark.parametrize("value", [["git", "status"], {"git": 1}, None, 1, True, 1.5, ["git status"]], ids=repr)
def test_what_has_the_wrong_type_is_never_allowed_by_a_pattern(value: Any) -> None:
    for pattern in ("*", "git *", "1", "true", "null", "command=*"):
        assert shell({f"shell({pattern})": "allow"}, value) == "ask"
    assert judged({"shell(*)": "allow", "shell(command=*)": "allow"}, "shell", {}) == "ask"
    assert judged({"shell(*)": "allow"}, "shell", {"cmd": "git status"}) == "ask"


def test_a_deny_that_cannot_be_judged_is_asked() -> None:
    assert shell({"shell(rm *)": "deny", "shell": "allow"}, ["rm", "x"]) == "ask"
    assert shell({"shell(comand=rm *)": "deny", "shell": "allow"}, "ls") == "ask"
    assert shell({"shell(rm *)": "deny", "shell": "deny"}, ["rm", "x"]) == "deny"


def test_every_argument_that_is_named_must_fit() -> None:
    rules: dict[str, Policy] = {"shell(command=sleep *, background=false)": "allow"}
    assert shell(rules, "sleep 1") == "allow", "as the tool takes it where nothing is said"
    assert shell(rules, "sleep 1", background=False) == "allow"
    assert shell(rules, "sleep 1", background=True) == "ask"
    assert shell(rules, "sleep 1", background="false") == "ask"
    assert shell(rules, "rm x") == "ask"
    assert shell({"shell(background=true)": "deny", "shell": "allow"}, "x", background=True) == "deny"
    assert shell({"shell(background=true)": "deny", "shell": "allow"}, "x") == "allow"


def test_the_principal_argument_of_any_tool_is_its_first_required_text() -> None:
    schema = {
        "properties": {"n": {"type": "integer"}, "where": {"type": "string"}, "what": {"type": "string"}},
        "required": ["n", "what"],
    }
    rules: dict[str, Policy] = {"own(a*)": "allow"}
    assert judged(rules, "own", {"n": 1, "what": "abc"}, parameters=schema) == "allow"
    assert judged(rules, "own", {"n": 1, "what": "b", "where": "abc"}, parameters=schema) == "ask"
    assert judged(rules, "own", {"what": "abc"}, parameters={}) == "ask", "nobody knows which"
    for tool, argument in (("agent", "agent"), ("remember", "text"), ("recall", "query"), ("jobs", "action")):
        assert judged({f"{tool}(a*c)": "allow"}, tool, {argument: "abc\nc"}) == "allow"
        assert judged({f"{tool}(a*c)": "allow"}, tool, {argument: "abd"}) == "ask"
        assert judged({f"{tool}(ABC)": "deny", "*": "allow"}, tool, {argument: "abc"}) == "deny"
        assert judged({f"{tool}(*)": "allow"}, tool, {argument: 5}) == "ask"


# -- paths


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with `src`, `private`, and links from the one to the other and to the outside."""
    for name in ("cwd/src/deep", "cwd/private", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "cwd/src/link").symlink_to("../private")
    (tmp_path / "cwd/src/out").symlink_to(tmp_path / "outside")
    (tmp_path / "alias").symlink_to("cwd")
    return tmp_path / "cwd"


def on(tree: Path, rules: dict[str, Policy], path: Any, tool: str = "write", **more: Any) -> Policy:
    return judged(rules, tool, {"path": path, **more}, cwd=str(tree), parameters=PATH)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("src/**", "src/a.py", "allow"),
        ("src/**", "src/deep/er/a.py", "allow"),
        ("src/**", "./src//deep/../a.py", "allow"),
        ("src/**", "{cwd}/src/a.py", "allow"),
        ("src/*", "src/a.py", "allow"),
        ("src/*", "src/deep/a.py", "ask"),
        ("src/*.py", "src/a.pyc", "ask"),
        ("**/*.py", "a.py", "allow"),
        ("**/*.py", "src/deep/a.py", "allow"),
        ("**", "a/b/c", "allow"),
        ("*", "a/b", "ask"),
        ("{cwd}/src/**", "src/a", "allow"),
        ("src/**", "src/../../etc/passwd", "ask"),
        ("src/**", "src/../private/x", "ask"),
        ("src/**", "../cwd/src/../../outside/x", "ask"),
        ("src/**", "srcs/x", "ask"),
        ("src/**", "SRC/x", "ask"),
        ("src/**", "\uff53rc/x", "ask"),
        ("src/**", "src/link/x", "ask"),
        ("src/**", "src/link/../private/x", "ask"),
        ("src/**", "src/out/x", "ask"),
        ("private/**", "src/link/x", "ask"),
        ("*", "src/link/../x", "ask"),
        ("/**", "~/x", "ask"),
        ("**", "src/out/x", "ask"),
        ("**", "../x", "ask"),
        ("**", "/etc/passwd", "ask"),
        ("**", "~/x", "ask"),
        ("**", "", "ask"),
        ("**", "src/\0x", "ask"),
        ("**", "a/" * 3000, "ask"),
        ("src/**", "src\\..\\..\\x/../../private/y", "ask"),
        ("/**", "/etc/passwd", "allow"),
    ],
)
def test_a_path_is_what_it_leads_to(tree: Path, pattern: str, path: str, expected: str) -> None:
    rules: dict[str, Policy] = {f"write({pattern.format(cwd=tree)})": "allow"}
    assert on(tree, rules, path.format(cwd=tree)) == expected


@pytest.mark.parametrize(
    "path",
    [
        "private/x",
        "./private/x",
        "src/../private/x",
        "src/link/x",
        "{cwd}/private/x",
        "PRIVATE/x",
        "{cwd}/../alias/private/x",
        "../alias/private/x",
        "private",
        "\uff50rivate/x",
        "src/link/../private/x",
    ],
)
def test_a_path_that_is_denied_is_denied_by_every_name(tree: Path, path: str) -> None:
    assert on(tree, {"write(private/**)": "deny", "write": "allow"}, path.format(cwd=tree)) == "deny"
    assert on(tree, {"write(src/link/**)": "deny", "write": "allow"}, path.format(cwd=tree)) == "deny"
    assert on(tree / "../alias", {"write(private/**)": "deny", "*": "allow"}, path.format(cwd=tree)) == "deny"


def test_a_working_directory_behind_a_link_is_the_same(tree: Path) -> None:
    alias = tree.parent / "alias"
    assert on(alias, {"write(src/**)": "allow"}, "src/x") == "allow"
    assert on(alias, {"write(src/**)": "allow"}, "src/link/x") == "ask"
    home = os.path.expanduser("~")
    assert on(tree, {"write(~/secret/**)": "deny", "*": "allow"}, f"{home}/secret/x") == "deny"
    assert on(tree, {"write(~/secret/**)": "deny", "*": "allow"}, "~/secret/x") == "deny"


@pytest.mark.parametrize(
    ("tool", "arguments", "expected"),
    [
        ("read", {"path": "a"}, "allow"),
        ("read", {"path": "src/deep/../a"}, "allow"),
        ("read", {"path": "../a"}, "ask"),
        ("read", {"path": "/etc/passwd"}, "ask"),
        ("read", {"path": "src/out/a"}, "ask"),
        ("read", {"path": "~/.ssh/id"}, "ask"),
        ("read", {"path": ["a"]}, "ask"),
        ("read", {}, "ask"),
        ("glob", {"pattern": "**/*.py"}, "allow"),
        ("glob", {"pattern": "../*"}, "ask"),
        ("glob", {"pattern": "/etc/*"}, "ask"),
        ("glob", {"pattern": "{a,/etc}/*"}, "ask"),
        ("glob", {"pattern": "{..,a}/*"}, "ask"),
        ("glob", {"pattern": "{a,b}/*"}, "allow"),
        ("glob", {"pattern": "*", "path": "src"}, "allow"),
        ("glob", {"pattern": "*", "path": ".."}, "ask"),
        ("glob", {"pattern": ["*"]}, "ask"),
        ("grep", {"pattern": "a..b"}, "allow"),
        ("grep", {"pattern": "x", "path": "/"}, "ask"),
        ("grep", {"pattern": "x", "glob": "../*"}, "ask"),
        ("grep", {"pattern": "x", "glob": None}, "allow"),
        ("write", {"path": "a"}, "ask"),
        ("edit", {"path": "a"}, "ask"),
        ("fetch", {"url": "http://localhost/"}, "ask"),
        ("READ", {"path": "a"}, "ask"),
        ("unheard-of", {"path": "a"}, "ask"),
    ],
)
def test_without_a_rule_reading_in_the_working_directory_is_allowed_and_all_else_asked(
    tree: Path, tool: str, arguments: dict[str, Any], expected: str
) -> None:
    assert judged({}, tool, arguments, cwd=str(tree)) == expected
    assert judged({}, tool, arguments, cwd="") == "ask"
    assert judged({tool: "deny"}, tool, arguments, cwd=str(tree)) == "deny"
    assert judged({"*": "ask"}, tool, arguments, cwd=str(tree)) == "ask"


def test_a_search_that_could_reach_what_is_denied_is_asked(tree: Path) -> None:
    rules: dict[str, Policy] = {"grep(private/**)": "deny", "grep": "allow", "glob(private/**)": "deny"}
    assert on(tree, rules, "private", "grep") == "deny"
    assert on(tree, rules, "src/link", "grep") == "deny"
    assert on(tree, rules, ".", "grep") == "ask"
    assert judged(rules, "grep", {"pattern": "x"}, cwd=str(tree)) == "ask"
    assert on(tree, rules, "src/deep", "grep") == "allow"
    assert on(tree, rules, "src", "glob", pattern="../private/*") == "ask"
    assert on(tree, {"glob(src/**)": "allow", "glob": "deny"}, "src", "glob", pattern="../private/*") == "deny"


# -- addresses


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("https://a.org/*", "https://a.org/x?y=z&w#v", "allow"),
        ("https://a.org/*", "HTTPS://A.org/x", "allow"),
        ("https://a.org/docs/*", "https://a.org/docs/x", "allow"),
        ("https://*.a.org/*", "https://b.c.a.org/x", "allow"),
        ("https://*", "https://b.org/x", "allow"),
        ("*", "http://b.org/x", "allow"),
        ("http://localhost:*/*", "http://localhost:8000/x", "allow"),
        ("https://a.org", "https://a.org", "allow"),
        ("https://a.org", "https://a.org/x", "ask"),
        ("https://a.org/*", "http://a.org/x", "ask"),
        ("https://a.org/*", "https://a.org.evil.org/x", "ask"),
        ("https://a.org*", "https://a.org.evil.org/x", "ask"),
        ("https://a.org/*", "https://a.org@evil.org/x", "ask"),
        ("https://a.org/*", "https://a.org\\@evil.org/x", "ask"),
        ("https://a.org/*", "https://a.org:444/x", "ask"),
        ("https://*.a.org/*", "https://evil.org/x.a.org/y", "ask"),
        ("https://*.a.org/*", "https://evil.org?.a.org/y", "ask"),
        ("https://*.a.org/*", "https://.a.org/y", "ask"),
        ("https://*.a.org/*", "https://evila.org/y", "ask"),
        ("https://*.a.org/*", "https://a.org/y", "ask"),
        ("https://a.org/docs/*", "https://a.org/docs/../x", "ask"),
        ("https://a.org/docs/*", "https://a.org/docs/%2e%2e/x", "ask"),
        ("https://a.org/docs/*", "https://a.org/docs/%252e%252E/x", "ask"),
        ("https://a.org/docs/*", "https://a.org/docs/..%2fx", "ask"),
        ("https://a.org/*", "https://a.org/\nx", "ask"),
        ("https://a.org/*", " https://a.org/x", "ask"),
        ("https://a.org/*", "https://\u0430.org/x", "ask"),
        ("*a.org*", "https://a.org/x", "ask"),
        ("*", "http://user@b.org/x", "ask"),
    ],
)
def test_an_address_is_its_host_and_then_its_path(pattern: str, url: str, expected: str) -> None:
    assert judged({f"fetch({pattern})": "allow"}, "fetch", {"url": url}) == expected


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.org/x",
        "https://EVIL.org/x",
        "https://evil.org",
        "https://u:p@evil.org/x",
        "https://evil.org./x",
        "https://evil.org:443/x",
        "https://evil\uff0eorg/x",
        "https://evil.org/a/../x",
        "https://%65vil.org/x",
        " https://evil.org/",
    ],
)
def test_an_address_that_is_denied_is_denied_by_every_spelling(url: str) -> None:
    assert judged({"fetch(https://evil.org/*)": "deny", "fetch": "allow"}, "fetch", {"url": url}) == "deny"
    assert judged({"fetch(https://evil.org/*)": "deny", "*": "allow"}, "fetch", {"url": "https://a.org/"}) == "allow"
    assert (
        judged({"fetch(https://evil.org/*)": "deny", "*": "allow"}, "fetch", {"url": "https://\u0435vil.org/"}) == "ask"
    )


# -- time


def test_no_argument_takes_long_to_judge() -> None:
    """H25: whatever a model writes."""
    rules: dict[str, Policy] = {}
    for tool in ("shell", "read", "fetch", "own"):
        rules |= {
            f"{tool}(*a*a*a*a*a*b)": "deny",
            f"{tool}(**/*a*a*/**/a/**/b)": "ask",
            f"{tool}(a*a*a*a*a*a*c)": "allow",
        }
    texts = [
        "a" * 99_000,
        "a " * 49_000,
        "[" * 99_000,
        "[a" * 49_000,
        "/a" * 2000,
        "../" * 1300,
        "?" * 99_000,
        "a" * 5_000_000,
    ]
    schema = {"properties": {"text": {"type": "string"}}, "required": ["text"]}
    for tool, argument in (("shell", "command"), ("read", "path"), ("fetch", "url"), ("own", "text")):
        for text in texts:
            began = time.process_time()
            judged(rules, tool, {argument: text}, parameters=schema if tool == "own" else {}, cwd="/tmp")
            assert time.process_time() - began < 1.0, (tool, text[:10], len(text))
