"""What developers use works inside: for root on its default rung, for others on theirs; what does not is a list."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli import oracle, unprivileged
from tests.cli.command import BOUND, QUELL, RUNGS

# What works without quell and not with it: the rung, what is lost, and the script that shows the loss.
LIMITS = [
    ("pidns", "processes outside cannot be seen or signalled", "kill -0 $OUTSIDE"),
    ("userns", "processes outside cannot be seen or signalled", "kill -0 $OUTSIDE"),
    ("userns", "setuid programs do not gain their owner's rights", "./setuid-id -u | grep -x 0"),
    ("userns", "ssh refuses configuration that root owns (it sees the owner as nobody)", "ssh -G -F root-owned host"),
]


@dataclass
class Place:
    """Who runs commands, and on which rung they land without being asked."""

    rung: str
    home: Path
    run: Callable[..., subprocess.CompletedProcess[bytes]]


def as_root(home: Path) -> Place:
    def run(*words: str | Path) -> subprocess.CompletedProcess[bytes]:
        env = {**os.environ, "PATH": f"{QUELL.parent}:{os.environ['PATH']}", "HOME": str(home)}
        return subprocess.run(
            list(map(str, words)), cwd=home, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=BOUND
        )

    return Place("pidns", home, run)


@pytest.fixture(params=["root", "stranger", "stranger with a cgroup"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if os.geteuid():
        pytest.skip("needs root to be both root and another user")
    if request.param == "root":
        yield as_root(tmp_path)
        return
    delegated = request.param != "stranger"
    with ExitStack() as stack:
        stranger = stack.enter_context(unprivileged.user(delegated=delegated, known=True))
        yield Place("cgroup" if delegated else "subreaper", stranger.home, stranger.run)


def works(place: Place, script: str, *tools: str) -> str:
    """Run a script on the default rung; it must end as without quell, with the same output."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    bare = place.run("sh", "-ec", script)
    assert bare.returncode == 0, f"without quell: {bare.stderr.decode()}"
    inside = place.run(QUELL, "exec", "--receipt", "receipt.json", "--", "sh", "-ec", script)
    assert inside.returncode == 0, inside.stderr.decode()
    assert json.loads((place.home / "receipt.json").read_text())["rung"] == place.rung
    assert inside.stdout == bare.stdout
    return inside.stdout.decode()


def test_ps_sees_the_commands_own_processes(place: Place) -> None:
    script = "sleep 3001 & ps -e -o args= | grep -c '^sleep 3001'; ps -o args= -p $!; kill $!; wait $! || true"
    assert works(place, script, "ps") == "1\nsleep 3001\n"


def test_pgrep_and_pkill_find_and_end_a_background_job(place: Place) -> None:
    script = "sleep 3002 & sleep 0.1; test $(pgrep -f '^sleep 3002') = $!; pkill -f '^sleep 3002'; wait $! || echo $?"
    assert works(place, script, "pgrep", "pkill") == "143\n"


def test_git_makes_a_repository_and_a_commit(place: Place) -> None:
    script = """rm -rf repository; git init -q repository; cd repository; echo text >file; git add file
    git -c user.name=n -c user.email=e@example.org commit -q -m first; git log --format=%s; git gc -q; git fsck"""
    assert works(place, script, "git").splitlines()[0] == "first"


def test_node_runs_and_starts_processes(place: Place) -> None:
    script = """node -e 'console.log(require("child_process").execSync("echo from a child").toString())'"""
    assert "from a child" in works(place, script, "node")


def test_npm_runs_a_script_offline(place: Place) -> None:
    (place.home / "package.json").write_text('{"name": "x", "version": "1.0.0", "scripts": {"hello": "echo from npm"}}')
    script = "npm_config_update_notifier=false npm --offline --silent run hello"
    assert works(place, script, "npm") == "from npm\n"


def test_ssh_reads_a_configuration_with_includes(place: Place) -> None:
    (place.home / "main.conf").write_text(f"Include {place.home}/more/*.conf\n")
    (place.home / "more").mkdir()
    (place.home / "more" / "one.conf").write_text("Host there\n  HostName 192.0.2.1\n  Port 2222\n")
    script = "ssh -G -F main.conf there | grep -E '^(hostname|port) '; ssh -G there | grep -E '^port '"
    assert works(place, script, "ssh") == "hostname 192.0.2.1\nport 2222\nport 22\n"


def test_strace_follows_a_child(place: Place) -> None:
    script = "strace -f -o trace sh -c 'true & wait'; grep -c 'exited with 0' trace"
    assert works(place, script, "strace") == "2\n"


def test_bwrap_nests(place: Place) -> None:
    script = (
        "bwrap --ro-bind / / --dev /dev --proc /proc --unshare-pid --die-with-parent sh -c 'echo $$; ls /proc/1/comm'"
    )
    works(place, script, "bwrap")


def test_quell_nests(place: Place) -> None:
    script = (
        "quell exec -- quell exec -- sh -c 'echo inner; exit 3' || echo $?; quell exec --contain subreaper -- echo two"
    )
    assert works(place, script) == "inner\n3\ntwo\n"


def test_a_nested_quell_cleans_up_its_own(place: Place) -> None:
    script = "quell exec -- sh -c 'sleep 3003 >/dev/null & exit 0' 2>&1; ps -e -o args= | grep -c '^sleep 3003' || true"
    assert works(place, script, "ps") == "quell: ended 1 process that sh left behind\n0\n"


def test_a_setuid_program_gains_its_owners_rights(place: Place) -> None:
    plant_setuid(place.home)
    assert works(place, "./setuid-id -u") == "0\n"


def test_su_behaves_as_without_quell(place: Place) -> None:
    """Root becomes another user; others are asked for a password, and without one refused."""
    script = "su -s /bin/sh -c 'id -un' nobody </dev/null 2>&1 || echo refused $?"
    assert works(place, script, "su").splitlines()[-1] in ("nobody", "refused 1")


@pytest.mark.parametrize(
    ("script", "tools"),
    [
        (
            "python3 -I -c 'import multiprocessing as m; p = m.Pool(2); print(p.map(abs, [-1, 2])); p.terminate()'",
            "python3",
        ),
        ("seq 20 | xargs -P 4 -n 1 echo | sort -n | tail -1", "xargs"),
        ("timeout 0.2 sleep 100 || echo $?", "timeout"),
        ("script -qec 'tty >/dev/null && echo a terminal' /dev/null", "script"),
        ("(flock 9; echo locked) 9>lock", "flock"),
        ("printf 'all: a b\\na b:\\n\\t@echo made\\n' >Makefile; make -s -j2", "make"),
        ("nohup sleep 0.1 >/dev/null 2>&1 & wait $!; echo $?", "nohup"),
        ("setsid -w sh -c 'exit 4' || echo $?", "setsid"),
        (
            "tmux -S t -f /dev/null new-session -d 'sleep 100'; tmux -S t ls | cut -d: -f1; tmux -S t kill-server",
            "tmux",
        ),
        ("echo text >$$.tmp; ls -l /proc/self/exe >/dev/null; cat /proc/$$/comm; cat $$.tmp; rm $$.tmp", "cat"),
        (
            "df . >/dev/null; mount >/dev/null; uptime >/dev/null; free >/dev/null; top -b -n 1 >/dev/null; echo fine",
            "top",
        ),
    ],
    ids=lambda value: value if " " not in value else "",
)
def test_other_everyday_tools_behave_as_without_quell(place: Place, script: str, tools: str) -> None:
    assert works(place, script, tools)


# -- what does not work --------------------------------------------------------------------------------------


def plant_setuid(home: Path) -> None:
    """A copy of `id` that runs as its owner, root; skip where this file system does not honour that."""
    tool = home / "setuid-id"
    shutil.copy(str(shutil.which("id")), tool)
    os.chown(tool, 0, 0)
    tool.chmod(0o4755)
    if os.statvfs(tool).f_flag & os.ST_NOSUID:
        pytest.skip(f"{home} is mounted nosuid")


@pytest.mark.skipif(bool(os.geteuid()), reason="needs root to become another user")
@pytest.mark.parametrize(("rung", "loss", "script"), LIMITS, ids=[f"{rung}: {loss}" for rung, loss, _ in LIMITS])
def test_what_is_listed_as_a_loss_is_one(rung: str, loss: str, script: str, tmp_path: Path) -> None:
    """A loss that has gone is taken off the list: it is written for people to rely on."""
    with unprivileged.user(known=True) as stranger:
        place = as_root(tmp_path) if rung == "pidns" else Place(rung, stranger.home, stranger.run)
        plant_setuid(place.home)
        (place.home / "root-owned").write_text("Include /etc/ssh/ssh_config\n")
        with subprocess.Popen([*(stranger.command() if rung == "userns" else []), "sleep", "3004"]) as outside:
            try:
                oracle.wait_for(lambda: oracle.argv(outside.pid) == ["sleep", "3004"], "the process outside")
                script = script.replace("$OUTSIDE", str(outside.pid))
                bare = place.run("sh", "-c", script)
                assert bare.returncode == 0, bare.stderr.decode()
                assert place.run(QUELL, "exec", "--contain", rung, "--", "sh", "-c", script).returncode != 0
            finally:
                outside.terminate()


def test_every_listed_loss_is_in_the_readme() -> None:
    readme = Path(__file__).parents[2].joinpath("README.md").read_text()
    for rung, _, _ in LIMITS:
        assert re.search(rf"^\| `{rung}` \|", readme, re.MULTILINE), rung
    assert {rung for rung, _, _ in LIMITS} <= set(RUNGS)
