"""A shell command shows what it does, ends with its call and in its time, and sees none of our secrets."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from quell.errors import ScopeStoppedError, ToolError
from quell.supervise.environment import BASIC
from quell.toolbox import shell as module
from quell.toolbox.jobs import Jobs, JobsTool
from quell.toolbox.shell import COMMAND_LIMIT, ENVIRONMENT, MAX_TIMEOUT, Shell
from quell.toolbox.tape import HEAD, LIVE_LIMIT, TAIL, seam

from .callers import Caller, Session, alive, in_session, parent, running, until

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as _first:  # libuv opens a pipe for good with its first loop
    _first.run(asyncio.sleep(0))

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.mark.parametrize("loop", LOOPS)
def test_output_is_shown_while_the_command_runs(tmp_path: Path, loop: str) -> None:
    async def body(session: Session) -> None:
        go = tmp_path / "go"
        wait = f"echo one; while [ ! -e {go} ]; do sleep 0.01; done; echo two >&2"
        call = session.turn.task(session.call(Shell(), {"command": wait}))
        assert await until(lambda: session.shown == ["one\n"])
        assert not call.done()
        go.touch()
        assert await call == "one\ntwo\n"
        assert "".join(session.shown) == "one\ntwo\n"

    in_session(tmp_path, body, LOOPS[loop])


def test_the_working_directory_is_the_callers_and_input_is_empty(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert await session.call(Shell(), {"command": "pwd; cat; echo $0"}) == f"{tmp_path}\n/bin/bash\n"

    in_session(tmp_path, body)


def test_sh_is_used_where_there_is_no_bash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHELLS", ("/nowhere/bash", "/bin/sh"))

    async def body(session: Session) -> None:
        assert await session.call(Shell(), {"command": "echo $0"}) == "/bin/sh\n"

    in_session(tmp_path, body)


def test_a_character_that_comes_in_two_parts_is_one_character(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        go = tmp_path / "go"
        command = rf"printf 'x\xc3'; while [ ! -e {go} ]; do sleep 0.01; done; printf '\xa4\xff'"
        call = session.turn.task(session.call(Shell(), {"command": command}))
        assert await until(lambda: session.shown == ["x"])
        go.touch()
        assert await call == "xä\ufffd"
        assert "".join(session.shown) == "xä\ufffd"

    in_session(tmp_path, body)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("true", "[no output]"),
        ("false", "[exit 1]"),
        ("echo no; exit 3", "no\n[exit 3]"),
        ("printf no; exit 3", "no\n[exit 3]"),
        ("kill -9 $$", "[ended by SIGKILL]"),
        ("nosuchcommand 2>/dev/null", "[exit 127]"),
    ],
)
def test_the_exit_is_said_unless_it_is_0(tmp_path: Path, command: str, text: str) -> None:
    async def body(session: Session) -> None:
        assert await session.call(Shell(), {"command": command}) == text

    in_session(tmp_path, body)


def test_of_long_output_the_beginning_and_the_end_are_kept_and_the_command_is_not_held_up(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        text = await session.call(Shell(), {"command": "seq 1 400000; echo end; exit 2"})
        assert text.startswith("1\n2\n3\n")
        assert text.endswith("400000\nend\n\n[exit 2]".replace("\n\n", "\n"))
        assert "characters left out …]" in text
        assert HEAD + TAIL < len(text) < HEAD + TAIL + 200
        live = "".join(session.shown)
        assert LIVE_LIMIT < len(live) < LIVE_LIMIT + 200
        assert live.endswith("[quell: what follows is not shown live]\n")

    in_session(tmp_path, body)


def masked(text: str) -> str:
    return text.replace("sesame-open", "***")


def test_a_cut_goes_through_no_secret_wherever_it_falls(tmp_path: Path) -> None:
    """Half of one would not be known as one, and be shown."""
    secret, shift = "sesame-open", "x" * 7
    text = (shift + secret) * 10
    for near in range(len(text)):
        at = seam(text, near, masked)
        assert masked(text[:at]) + masked(text[at:]) == masked(text) and near <= at < near + len(secret)
    assert seam(text, len(text) + 5, masked) == len(text)

    async def body(session: Session) -> None:
        session.redact = masked
        jobs, total = Jobs(), len(secret) * 48_000
        secrets = f"yes {secret} | tr -d '\\n' | head -c {total}"
        output = await session.call(Shell(jobs), {"command": secrets})
        assert "characters left out" in output
        live = "".join(session.shown)
        assert LIVE_LIMIT <= len(live) < LIVE_LIMIT + 200 and live.endswith("not shown live]\n")
        await session.call(Shell(jobs), {"command": secrets, "background": True})
        await session.jobs[0].over.wait()
        parts = [output, live]
        for after in (1, 5, HEAD - 3, HEAD + 3, total - TAIL - 2, total - 20):
            said = await session.call(JobsTool(jobs), {"action": "read", "job": "job-1", "after": after})
            parts.append(said.partition("]\n")[2])
        for part in parts:
            assert set(re.sub(r"\[[^]]*\]", "", masked(part)).split("***")) <= {"", "\n", "\n\n"}, part[:100]

    in_session(tmp_path, body)


def test_many_small_writes_are_shown_in_few_pieces(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        began = time.monotonic()
        await session.call(Shell(), {"command": "for i in {1..3000}; do echo $i; done"})
        seconds = time.monotonic() - began
        assert "".join(session.shown).split() == [str(n) for n in range(1, 3001)]
        assert len(session.shown) <= seconds / 0.05 + 2

    in_session(tmp_path, body)


def test_a_timeout_ends_the_whole_tree_and_says_so(tmp_path: Path) -> None:
    """H10, H11: a child that took itself out of the group is ended with the rest."""

    async def body(session: Session) -> None:
        command = "echo begun; trap '' TERM; (setsid sleep 600.0422 &); sleep 600.0423; sleep 600.0423"
        call = session.turn.task(session.call(Shell(), {"command": command, "timeout": 0.5}))
        assert await until(lambda: len(running("600.0422") + running("600.0423")) == 2)
        text = await call
        assert text.startswith("begun\n[not done after 0.5 s, and ended: ") and text.endswith("]")
        assert "left running" not in text  # the timeout has ended them, not the end of the call
        assert running("600.0422") + running("600.0423") == []
        assert not alive(session.spawned[0].pid)

    in_session(tmp_path, body)


def test_what_holds_the_pipe_does_not_hold_the_call_and_ends_with_it(tmp_path: Path) -> None:
    """H08, H10: no call waits for a pipe that a descendant keeps."""

    async def body(session: Session) -> None:
        began = time.monotonic()
        text = await session.call(Shell(), {"command": "sleep 600.0421 & echo done"})
        assert time.monotonic() - began < 5
        assert text == (
            "done\n[left running (sleep 600.0421), and ended with this call; to keep it, use background=true]"
        )
        assert running("600.0421") == []

    in_session(tmp_path, body)


def test_output_that_is_still_in_the_pipe_at_the_end_is_not_lost(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        for _ in range(10):
            text = await session.call(Shell(), {"command": "head -c 60000 /dev/zero | tr '\\0' x; sleep 600 & exit 0"})
            assert text.count("x") >= HEAD + TAIL
            assert f"[… {60000 - HEAD - TAIL} characters" in text

    in_session(tmp_path, body)


def test_a_cancelled_call_shows_nothing_any_more_and_leaves_nothing(tmp_path: Path) -> None:
    """H01, H08: the call's scope ends what the cancelled call had started."""

    async def body(session: Session) -> None:
        command = "trap '' TERM; while :; do echo tick; sleep 0.01; done"
        call = session.turn.task(session.call(Shell(), {"command": command}))
        assert await until(lambda: bool(session.shown))
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        shown = len(session.shown)
        (process,) = session.spawned
        assert not alive(process.pid)
        await asyncio.sleep(0.06)  # longer than the pace: what was on its way would be shown now
        assert len(session.shown) == shown

    in_session(tmp_path, body)


def test_a_command_sees_the_least_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("CANARY_API_KEY", "CANARY_TOKEN", "SSH_AUTH_SOCK", "BASH_ENV", "PYTHONPATH", "AWS_PROFILE")
    for name in secrets:
        monkeypatch.setenv(name, "canary-of-secrets")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")

    async def body(session: Session) -> None:
        said = await session.call(Shell(), {"command": "env | tee env-of-call"})
        await session.call(Shell(), {"command": "env > part; mv part env-of-job", "background": True})
        assert await until((tmp_path / "env-of-job").exists)
        for seen in (said, (tmp_path / "env-of-job").read_text()):
            names = {line.partition("=")[0] for line in seen.splitlines()}
            assert "canary" not in seen
            assert {"PATH", "HOME", "LC_TIME"} <= names
            assert names <= {*BASIC, *ENVIRONMENT, "PWD", "OLDPWD", "SHLVL", "_"}

    in_session(tmp_path, body)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({}, "shell: Object missing required field `command` (its arguments: command, background, timeout)"),
        ({"command": ""}, "shell: Expected `str` of length >= 1 - at `$.command`"),
        ({"command": ["ls"]}, "shell: Expected `str`, got `array` - at `$.command`"),
        ({"cmd": "ls"}, "shell: Object contains unknown field `cmd`"),
        ({"command": "ls", "background": "yes"}, "shell: Expected `bool`, got `str`"),
        ({"command": "ls", "timeout": 0}, "shell: Expected `float` > 0.0"),
        ({"command": "ls", "timeout": True}, "shell: Expected `float`, got `bool`"),
        ({"command": "ls", "timeout": float("nan")}, "shell: Expected `float` > 0.0"),
        ({"command": "ls", "timeout": MAX_TIMEOUT + 1}, "shell: Expected `float` <= 3600.0"),
        ({"command": "ls", "timeout": 1, "background": True}, "shell: a command in the background has no timeout"),
        ({"command": "echo \0"}, "shell: a command cannot contain a NUL character"),
        ({"command": "echo \ud800"}, "shell: the command is not text that can be encoded as UTF-8"),
        ({"command": "x" * (COMMAND_LIMIT + 1)}, "shell: a command of 100001 bytes is too long; write it to a file"),
    ],
    ids=lambda each: str(each)[:40] if isinstance(each, dict) else "",
)
def test_bad_arguments_are_refused_with_a_sentence(tmp_path: Path, arguments: dict[str, object], sentence: str) -> None:
    async def body(session: Session) -> None:
        with pytest.raises(ToolError) as refusal:
            await session.call(Shell(), arguments)
        assert str(refusal.value).startswith(sentence)
        assert session.spawned == []

    in_session(tmp_path, body)


def test_the_longest_command_that_is_taken_runs(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        command = "echo " + "x" * (COMMAND_LIMIT - 12) + " | wc -c"
        command = command.replace("x", "", len(command) - COMMAND_LIMIT)
        assert len(command) == COMMAND_LIMIT
        assert int(await session.call(Shell(), {"command": command})) == COMMAND_LIMIT - 12

    in_session(tmp_path, body)


def test_a_command_that_cannot_start_is_told_to_the_model(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        session.cwd = str(tmp_path / "nowhere")
        for background in (False, True):
            with pytest.raises(ToolError, match="nowhere"):
                await session.call(Shell(), {"command": "ls", "background": background})

    in_session(tmp_path, body)


def test_a_refusal_behind_the_fence_is_handed_on_as_it_is(tmp_path: Path) -> None:
    """H18: what must not start any more is not the tool's failure."""

    async def body(session: Session) -> None:
        scope = session.turn.scope("call")
        caller = Caller(session, scope)
        await scope.stop()
        with pytest.raises(ScopeStoppedError):
            await Shell().call({"command": "touch started"}, caller)
        assert not (tmp_path / "started").exists()

    in_session(tmp_path, body)


def test_a_command_whose_box_is_lost_is_told_to_the_model(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        call = session.turn.task(Shell().call({"command": "echo on; sleep 600"}, Caller(session, session.turn)))
        assert await until(lambda: session.shown == ["on\n"])
        os.kill(parent(session.spawned[0].pid), signal.SIGKILL)
        with pytest.raises(ToolError, match="shell: the box of /bin/bash"):
            await call

    in_session(tmp_path, body)


def test_the_schema_tells_a_model_all_arguments() -> None:
    parameters = Shell().spec.parameters
    assert parameters["required"] == ["command"]
    assert set(parameters["properties"]) == {"command", "background", "timeout"}
    assert all(each["description"] for each in parameters["properties"].values())
    assert parameters["additionalProperties"] is False


def test_the_plugin_brings_both_tools() -> None:
    tools: list[str] = []

    class Context:
        def tool(self, tool: Shell) -> None:
            tools.append(tool.spec.name)

    setup: Callable[[Context], None] = module.plugin.setup  # type: ignore[assignment]  # as much of one as it uses
    setup(Context())
    assert (module.plugin.name, tools) == ("shell", ["shell", "jobs"])
