"""The commands of an agent with `isolation = "bwrap"` write to the working directory only, and are ended like any."""

import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quell
from quell.errors import UsageError
from quell.events import ApprovalAsked, Extent, ProcessSpawned, SessionOpened, ToolEnded
from quell.kernel import isolation
from quell.kernel.footing import Ports
from quell.kernel.runtime import Runtime
from quell.ports import PluginContext, Text
from quell.runtime import installed
from quell.stores.sqlite import SqliteStore
from quell.supervise import contain
from quell.supervise.contain import why_not
from tests.cli.unprivileged import user
from tests.toolbox.callers import alive, running, until

from . import errands
from .cast import AT_ONCE, Stage, Troupe, call

RUNGS = [rung for rung in contain.RUNGS if why_not(rung) is None]
PROBE = """
import json, os, socket, sys
def can(what):
    try:
        return what() or True
    except OSError as error:
        return error.strerror or str(error)
places, port, outside = json.loads(sys.argv[1])
print(json.dumps({
    "write": {one: can(lambda: open(one + "/x", "w").close()) for one in places},
    "read": {one: can(lambda: os.listdir(one)) for one in places},
    "connect": can(lambda: socket.create_connection(("127.0.0.1", port), 2).close()),
    "kill": can(lambda: os.kill(outside, 0)),
    "chown": can(lambda: os.chown("x", 1, 1)),
    "cwd": os.getcwd(),
    "tmp": os.environ["TMPDIR"],
}))
"""

PYTHON = os.path.realpath(sys.executable)
"""Not that of an environment, which may be in a folder that is hidden."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the user, with secrets in it."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id").write_text("a key")
    (home / ".netrc").write_text("a password")
    (home / "plain").mkdir()
    monkeypatch.setenv("HOME", str(home))
    return home


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def boxed(stage: Stage, **wishes: Any) -> None:
    stage.agents = [stage.agent(isolation="bwrap", **wishes)]


def shell(command: str, **more: Any) -> list[Any]:
    return [call("shell", command=command, **more)]


async def result(session: quell.Session, stage: Stage, chunks: list[Any]) -> str:
    stage.model.will(chunks)
    events = [event async for event in session.send("go")]
    (ended,) = [one for one in events if isinstance(one, ToolEnded)]
    return ended.error or ended.result


def test_what_is_outside_is_read_only_and_what_is_ours_or_secret_is_hidden(
    stage: Stage, home: Path, listener: int
) -> None:
    """H16: asked from inside, for real, in a folder with a space in it that was named by a symlink."""
    work = stage.folder / "the work"
    (work / "sub").mkdir(parents=True)
    (stage.folder / "link").symlink_to(work)
    stage.state = work / "state"  # of ours, inside of what can be written
    stage.parts.append(lambda ctx: ctx.tool(errands.look))
    boxed(stage, network=False, tools=("shell", "look"))
    stage.agents.append(stage.agent("online", isolation="bwrap"))
    places = [
        str(one) for one in (work, work / "sub", stage.state, "/etc", "/tmp", "/run", home / "plain", home / ".ssh")
    ]
    probe = work / "probe.py"
    probe.write_text(PROBE)
    line = f"{PYTHON} -I probe.py '{json.dumps([places, listener, os.getpid()])}'; cat ~/.netrc; ls /proc | wc -l"

    async def main(rt: Runtime) -> None:
        session = await rt.open("actor", stage.folder / "link")
        said = await result(session, stage, shell(line))
        seen = json.loads(said.splitlines()[0])
        assert {one: can for one, can in seen["write"].items() if can is True} == dict.fromkeys(
            [str(work), str(work / "sub"), "/tmp", "/run"], True
        )
        assert seen["write"][str(stage.state)] == seen["write"]["/etc"] == "Read-only file system"
        assert (work / "x").exists()
        assert seen["read"][str(stage.state)] is True and seen["read"][str(home / ".ssh")] is True  # nothing is in it
        assert "Permission denied" in said and "a password" not in said
        assert seen["read"]["/etc"] and (seen["cwd"], seen["tmp"]) == (str(work), "/tmp")
        assert seen["connect"] == "Connection refused" and seen["kill"] == "No such process"
        assert seen["chown"] in ("Operation not permitted", "Invalid argument")
        looked = json.loads(await result(session, stage, [call("look", who="you")]))
        assert (looked["who"], looked["cwd"]) == ("you", str(work))
        assert "command not found" in await result(session, stage, shell("no-such-thing"))
        online = await rt.open("online", work)
        assert json.loads((await result(online, stage, shell(line))).splitlines()[0])["connect"] is True

    stage.play(main)
    spawned = stage.of(ProcessSpawned)
    assert {one.isolation for one in spawned} == {"bwrap"} and "bwrap" not in [one.argv[0] for one in spawned]


@pytest.mark.parametrize("rung", RUNGS)
def test_everything_inside_is_ended_on_every_rung(stage: Stage, rung: str) -> None:
    """H08, H26: escapees, who ignores SIGTERM, background jobs and functions; who ends politely has the time for it."""
    stubborn = f"60{os.getpid()}"
    escape, polite = f"(trap '' TERM; setsid sleep {stubborn}) &", "trap 'echo bye >polite; exit' TERM"
    line = f"{escape} {polite}; kill -0 {os.getpid()} && touch seen; echo up >{{}}; while :; do sleep 0.02; done"
    boxed(stage, tools=("shell", "blocks"))

    def setup(ctx: PluginContext) -> None:
        ctx.model("actor", lambda: stage.model)
        ctx.tool(errands.blocks)

    async def whole() -> None:
        rt = Runtime(
            Ports(store=SqliteStore, find=installed),
            state_dir=stage.state,
            agents=stage.agents,
            plugins=[Troupe(setup, "troupe")],
            settings=stage.settings,
            contain=rung,
        )
        async with rt:
            session = await stage.open(rt)
            stage.model.will([*shell(line.format("back"), background=True)])
            await session.send("go")
            stage.model.will([*shell(line.format("front")), call("blocks", stubborn=True)])
            sent = session.send("go")
            assert await until(lambda: stage.outside("back").exists() and stage.outside("front").exists())
            assert await until(lambda: len(session.processes()) == 3 and len(running(stubborn)) == 2)
            pids = [one.pid for one in session.processes()]
            begun = time.monotonic()
            receipt = await session.stop()
            assert receipt.confirmed and receipt.rung == rung and {one.pid for one in receipt.processes} >= set(pids)
            assert time.monotonic() - begun < AT_ONCE and not running(stubborn) and not any(map(alive, pids))
            assert (await sent).end == "stopped" and stage.outside("polite").read_text() == "bye\n"
            assert not stage.outside("seen").exists()

    stage.run(whole)


def test_where_bubblewrap_is_missing_or_does_not_work_that_is_said_and_nothing_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H16: never a silent fallback, and the next one to ask tries again."""
    folder = stage.folder / "bin"
    folder.mkdir()
    boxed(stage)
    stage.agents.append(stage.agent("free"))
    real = os.environ["PATH"]

    async def main(rt: Runtime) -> None:
        free = await rt.open("free", stage.cwd)
        monkeypatch.setenv("PATH", str(folder))
        with pytest.raises(UsageError, match=r'has isolation = "bwrap": bubblewrap is not installed: .*apt install'):
            await stage.open(rt)
        (folder / "bwrap").write_text("#!/bin/sh\necho bwrap: setting up uid map: Permission denied >&2; exit 1\n")
        (folder / "bwrap").chmod(0o755)
        with pytest.raises(
            UsageError, match=r"does not work here \(bwrap: setting up uid map: Permission denied\): user"
        ):
            await stage.open(rt)
        with pytest.raises(UsageError, match="does not work here"):
            await free.use("actor")
        stage.model.will([call("agent", agent="actor", text="go")], shell("touch ran"))
        await free.send("go")
        assert "uid map" in stage.of(ToolEnded)[0].error and not stage.outside("ran").exists()
        monkeypatch.setenv("PATH", real)
        session = await stage.open(rt)
        monkeypatch.setenv("PATH", str(folder))  # it has gone since
        assert "uid map" in await result(session, stage, shell("touch ran")) and not stage.outside("ran").exists()

    stage.play(main)


def test_a_folder_that_no_sandbox_can_let_write_is_refused(stage: Stage, home: Path) -> None:
    boxed(stage)

    class Guest:
        async def start(self, scope: quell.Scope, cwd: str) -> Any: ...

    stage.parts.append(lambda ctx: ctx.harness("guest", Guest()))
    stage.agents.append(stage.agent("guest", harness="guest", isolation="bwrap"))
    stage.agents.append(stage.agent("offline", network=False))

    async def main(rt: Runtime) -> None:
        refused = dict.fromkeys(("/", "/tmp", "/dev/shm"), "the system's")
        refused |= {str(home): "a home", str(home.parent): "a home", str(stage.state): "own"}
        for folder, why in refused.items():
            with pytest.raises(UsageError, match=f"cannot be written in a sandbox: it is .*{why}"):
                await rt.open("actor", folder)
        with pytest.raises(UsageError, match="there is no isolation for those yet"):
            await rt.open("guest", stage.cwd)
        with pytest.raises(UsageError, match=r'the agent offline has network = false, which needs isolation = "bwrap"'):
            await rt.open("offline", stage.cwd)
        await rt.open("actor", home / "plain")

    stage.play(main)


def test_a_sub_agent_is_in_the_sandbox_of_whoever_asks_for_it(stage: Stage) -> None:
    """H16: else a sandbox would be left by asking another agent."""
    boxed(stage, network=False)
    stage.agents.append(stage.agent("free"))
    outside = stage.folder / "outside"
    stage.model.will(
        [call("agent", agent="free", text="go")],
        shell(f"touch {outside}; cat /sys/class/net/lo/operstate; touch inside"),
    )

    async def main(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")

    stage.play(main)
    assert stage.outside("inside").exists() and not outside.exists()
    (spawned,), (_, below) = stage.of(ProcessSpawned), stage.of(SessionOpened)
    assert (spawned.isolation, spawned.session, below.agent) == ("bwrap", below.session, "free")


def test_no_socket_of_a_daemon_and_no_link_leads_out(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """H16: a file system that is read-only keeps nobody from connecting, and a link may be turned round."""
    boxed(stage)
    monkeypatch.setattr(isolation, "PRIVATE", ("/run",))  # what is outside is in /tmp here
    outside, inside, stage.cwd = stage.folder / "outside", stage.cwd / "own.sock", stage.cwd / "sub"
    outside.mkdir()
    stage.cwd.mkdir()
    names = [str(outside / "a daemon.sock"), str(inside)]
    ask = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

    async def main(rt: Runtime) -> None:
        session = await rt.open("actor", stage.cwd.parent)
        said = [await result(session, stage, shell(f"{PYTHON} -c '{ask}' '{one}'")) for one in names]
        assert "ConnectionRefusedError" in said[0] and said[1] == "[no output]"
        below = await stage.open(rt)
        stage.cwd.rmdir()
        stage.cwd.symlink_to(outside)
        assert "a link leads elsewhere" in await result(below, stage, shell("touch x"))

    with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
        for each, name in zip((one, other), names, strict=True):
            each.bind(name)
            each.listen()
        stage.play(main)
    assert [each.name for each in outside.iterdir()] == ["a daemon.sock"]


def test_what_is_allowed_in_a_sandbox_is_asked_outside_of_it(stage: Stage) -> None:
    """H16: a person who says yes to a command in a sandbox has said yes to nothing else."""
    line = shell("touch here")

    async def asked(session: quell.Session, extent: Extent) -> bool:
        stage.model.will(line)
        found = False
        async for event in session.send("go"):
            if isinstance(event, ApprovalAsked):
                found = True
                session.approve(event.seq, True, extent=extent)
        return found

    async def first(rt: Runtime) -> None:
        session = await stage.open(rt)
        names.append(session.id)
        assert await asked(session, "session") and await asked(await stage.open(rt), "always")
        assert not await asked(session, "once") and not await asked(await stage.open(rt), "once")

    async def later(rt: Runtime) -> None:
        assert await asked(await rt.resume(names[0]), "once") and await asked(await stage.open(rt), "once")

    names: list[str] = []
    for wishes in ({"network": False}, {}, {"isolation": "none"}):
        stage.agents = [stage.agent(approval={}, **({"isolation": "bwrap"} | wishes))]
        stage.play(later if names else first)


def test_a_sub_agent_that_is_resumed_is_still_in_the_sandbox_of_whoever_asked_for_it(stage: Stage) -> None:
    """H16: and so is a fork of it, until a person chooses who answers."""
    boxed(stage)
    stage.agents.append(stage.agent("free"))
    outside = stage.folder / "outside"
    stage.model.will([call("agent", agent="free", text="go")], [Text("here")])

    async def first(rt: Runtime) -> None:
        await (await stage.open(rt)).send("go")
        (below,) = [one.id for one in await rt.sessions() if one.parent]
        names.extend([below, (await (await rt.resume(below)).fork()).id])

    async def second(rt: Runtime) -> None:
        for name in names:
            await result(await rt.resume(name), stage, shell(f"touch {outside}"))
            assert not outside.exists()
        session = await rt.resume(names[0])
        await session.use("free")
        await session.close()
        await result(await rt.resume(names[0]), stage, shell(f"touch {outside}"))
        assert outside.exists()

    names: list[str] = []
    stage.play(first)
    stage.play(second)


@pytest.mark.parametrize("how", ["resumed with another model", "used with another model", "forked", "parent changed"])
def test_only_who_names_an_agent_takes_it_out_of_the_sandbox_of_whoever_asked_for_it(stage: Stage, how: str) -> None:
    """H16: another model is no other agent, nor is a fork, and what became of the asker later is no matter."""
    boxed(stage)
    stage.agents.append(stage.agent("free", model="" if how == "forked" else "actor"))
    outside = stage.folder / "outside"
    stage.model.will([call("agent", agent="free", text="go")], [Text("here")])

    async def first(rt: Runtime) -> None:
        above = await stage.open(rt)
        await above.send("go")
        (below,) = [one.id for one in await rt.sessions() if one.parent]
        if how == "parent changed":
            await above.use("free")
        elif how == "forked":
            below = (await (await rt.resume(below)).fork()).id
        elif how == "used with another model":
            await (await rt.resume(below)).use(model="actor:other")
        names.append(below)

    async def second(rt: Runtime) -> None:
        model = "actor:other" if how == "resumed with another model" else ""
        await result(await rt.resume(names[0], model=model), stage, shell(f"touch {outside}"))
        assert not outside.exists()

    names: list[str] = []
    stage.play(first)
    stage.play(second)


def test_the_more_specific_place_wins_by_whatever_name(tmp_path: Path, home: Path) -> None:
    """H16: what must be seen shows nothing that is hidden in it."""
    code, ours, work = tmp_path / "code", tmp_path / "code" / "ours", tmp_path / "code" / "ours" / "work"
    (ours / "plugins").mkdir(parents=True)
    work.mkdir()
    for file in (code / "a", ours / "secret", ours / "plugins" / "b", work / "c", work / "secret"):
        file.write_text("it is there\n")
    link = tmp_path / "link"
    link.symlink_to(code)
    shown = [str(one) for one in (link, code, code / "a", link / "a", ours, ours / "plugins", work, home, "/usr")]
    hidden = [str(one) for one in (ours, work / "secret", work / "not-yet")]
    words = ["--ro-bind", "/", "/", "--dev", "/dev", *isolation.mounts(str(work), shown, hidden)]
    assert "/usr" not in words and str(home / ".ssh") in words and str(home / ".netrc") in words

    def inside(line: str) -> list[str]:
        done = subprocess.run(["bwrap", *words, "sh", "-c", line], cwd="/", capture_output=True, text=True, check=False)
        return sorted(done.stdout.splitlines())

    for name in (code, link):
        assert inside(f"cat $(find {name}/)") == ["it is there"] * 3  # a, b and c
        written = inside(f"for one in $(find {name}/ -type d); do touch $one/new && echo $one; done")
        assert [one.replace("//", "/") for one in written] == [str(name / "ours" / "work")]
    assert inside(f"ls -A {home}") == [".netrc", ".ssh", "plain"]
    assert inside(f"ls -A {home}/.ssh; cat {home}/.netrc; touch {home}/.ssh/new && echo written") == []


UNPRIVILEGED = """
    import asyncio, sys
    import quell
    from quell.models.scripted import Scripted

    def here(who: str) -> str:
        '''Say who.'''
        return f"{who} in {__name__}"

    class Mine:
        name = "mine"

        def setup(self, ctx):
            ctx.tool(here, where="process")
            ctx.model("said", lambda: Scripted([[{"call": "here", "arguments": {"who": "me"}}], [{"say": "done"}]]))

    async def main():
        wishes = {"approval": {"*": "allow"}, "isolation": "bwrap"}
        boxed = quell.Agent(name="boxed", tools=("shell",), **wishes)
        mine = quell.Agent(name="mine", model="said", tools=("here",), **wishes)
        async with quell.Runtime(state_dir=sys.argv[1] + "/state", agents=[boxed, mine], plugins=[Mine()]) as runtime:
            for name, line in (("boxed", "$ touch here; touch ../there; (setsid sleep 600 &)"), ("mine", "go")):
                session = await runtime.open(name, sys.argv[1] + "/work")
                async for event in session.send(line):
                    if event.kind == "tool.ended":
                        print(event.error or event.result)
                receipt = await session.stop()
                print(receipt.verdict)

    if __name__ == "__main__":
        asyncio.run(main())
"""


def test_a_user_without_any_privilege_has_the_same_sandbox() -> None:
    """H16: by a user namespace, and for a function of a script in a folder that is hidden otherwise."""
    with user() as stranger:
        script = stranger.home / "script.py"
        script.write_text(textwrap.dedent(UNPRIVILEGED))
        (stranger.home / "work").mkdir()
        shutil.chown(stranger.home / "work", stranger.home.stat().st_uid, stranger.home.stat().st_gid)
        done = stranger.run(sys.executable, script, str(stranger.home))
        said = done.stdout.decode()
        assert done.returncode == 0, done
        assert said.count("confirmed") == 2 and "me in __mp_main__" in said
        assert (stranger.home / "work" / "here").exists() and not (stranger.home / "there").exists()
