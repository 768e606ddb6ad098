"""The sandbox of an agent's commands (`isolation = "bwrap"`): they can write to the working directory and nowhere else.

What is Quell's own and what is known to hold secrets is hidden from them. Where bubblewrap is missing or does not work,
that is said, and nothing runs without it (H16).
"""

from __future__ import annotations

import asyncio
import os
import pwd
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import SpawnError, UsageError
from ..supervise import NULL, PIPE
from ..supervise.keeper.launch import candidates
from ..supervise.tree import failure

if TYPE_CHECKING:
    from ..config import Agent
    from ..ports import Spawner
    from ..supervise import Scope
    from ..supervise.errand import Fact

PRIVATE = ("/tmp", "/run")
"""An empty one of each. In them are the sockets of daemons, which would do outside what is asked for inside."""
SECRETS = tuple(
    ".ssh .gnupg .aws .azure .kube .docker .netrc .pgpass .npmrc .pypirc .git-credentials .vault-token .password-store"
    " .config/gcloud .config/gh .config/git/credentials .cargo/credentials.toml .local/share/keyrings .Xauthority"
    " .claude .codex .gemini .mozilla .config/google-chrome .config/chromium".split()
)
"""Of a home, which is otherwise to be read."""
SYSTEM = frozenset("/ /bin /boot /dev /etc /lib /lib64 /proc /run /run/user /sbin /sys /tmp /usr /var".split())
"""What nobody works in: a sandbox in which it can be written would be none."""
WITHIN = ("/proc", "/sys", "/dev")
LISTENERS = "/proc/net/unix"
"""Sockets that have a name. A file system that is read-only keeps nobody from connecting to them."""

ALWAYS = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL")
# Not --die-with-parent: bubblewrap would pass SIGTERM on as SIGKILL. Who is left belongs to the box, and ends with it.
USERS = (("--unshare-user", "--disable-userns"), ("--unshare-user-try",))
"""The first that works here: an older bubblewrap knows only the second."""
PROBE_LIMIT = 10.0  # seconds for `true` to run in it

INSTALL = "install the package bubblewrap (apt install bubblewrap, dnf install bubblewrap, pacman -S bubblewrap)"
ALLOW = (
    "user namespaces must be allowed (sysctl user.max_user_namespaces and kernel.unprivileged_userns_clone; on Ubuntu"
    " kernel.apparmor_restrict_unprivileged_userns=0; in a container, CAP_SYS_ADMIN)"
)


class Sandbox:
    """Of all agents of one host that want one. Whether it works is tried once, in a box as commands have it."""

    def __init__(
        self,
        spawn: Spawner,
        ground: Callable[[], Scope],
        see_to: Callable[..., Fact[tuple[str, ...]]],
        off_limits: Sequence[str],
    ) -> None:
        self._spawn = spawn
        self._ground = ground
        self._see_to = see_to
        self._off_limits = off_limits
        self._tried: dict[bool, Fact[tuple[str, ...]]] = {}  # by whether there is a network

    async def check(self, agent: Agent, cwd: str) -> None:
        """Before a session is opened: UsageError says what is in the way of its sandbox."""
        if agent.isolation == "none":
            return
        self._is_folder_for(cwd)
        try:
            await self._works(agent.network, cwd)
        except SpawnError as error:
            raise UsageError(f'the agent {agent.name} has isolation = "bwrap": {error}') from None

    async def wrap(
        self, agent: Agent, argv: Sequence[str], cwd: str, shown: Sequence[str], wishes: Mapping[str, Any]
    ) -> list[str]:
        """The command, in the sandbox. SpawnError where there is none, or no such command. `cwd` is a real path."""
        if isinstance(argv, str | bytes) or not argv:
            raise UsageError(f"a command is a list of words, such as ['ls', '-l'], not {argv!r}")
        if os.path.realpath(cwd) != cwd:  # noqa: ASYNC240  a few looks, and a thread would leave time to turn it again
            raise SpawnError(f"{cwd} is not the folder any more that it was: a link leads elsewhere", 126)
        users = await self._works(agent.network, cwd)
        return self._line(users, agent, [os.fsdecode(word) for word in argv], cwd, shown, wishes)

    def _line(
        self,
        users: Sequence[str],
        agent: Agent,
        words: list[str],
        cwd: str,
        shown: Sequence[str],
        wishes: Mapping[str, Any],
    ) -> list[str]:
        start = os.path.realpath(wishes.get("cwd") or cwd)
        _find(words[0], start, wishes.get("env") or os.environ)
        own = () if "TMPDIR" in agent.env else ("--setenv", "TMPDIR", PRIVATE[0])
        return [*self._prefix(users, agent.network, cwd, shown), *own, "--chdir", start, "--", *words]

    def _prefix(self, users: Sequence[str], network: bool, cwd: str, shown: Sequence[str]) -> list[str]:
        base = [_program(), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        net = () if network else ("--unshare-net",)
        return [*base, *mounts(os.path.realpath(cwd), shown, self._off_limits), *ALWAYS, *users, *net]

    def _is_folder_for(self, cwd: str) -> None:
        real = os.path.realpath(cwd)
        why = ""
        if real in SYSTEM or os.path.dirname(real) == "/run/user" or any(_inside(real, one) for one in WITHIN):
            why = "is the system's"
        elif any(_inside(home, real) for home in homes()):
            why = "is a home, or has one in it: choose a folder inside it"
        elif own := next((one for one in self._off_limits if _inside(real, one)), None):
            why = f"is Quell's own ({own})"
        if why:
            raise UsageError(f"{cwd} cannot be written in a sandbox: it {why}")

    # -- whether it works

    async def _works(self, network: bool, cwd: str) -> tuple[str, ...]:
        """The options for users that it takes here. SpawnError says what to do; the next one to ask tries again."""
        if (tried := self._tried.get(network)) is None:
            tried = self._tried[network] = self._see_to(lambda: self._try(network, cwd))
            tried.then(lambda: self._forget(network))
        return await tried.wait()

    def _forget(self, network: bool) -> None:
        try:
            self._tried[network].get()
        except Exception:  # noqa: BLE001  a boundary: told to whoever waits
            del self._tried[network]

    async def _try(self, network: bool, cwd: str) -> tuple[str, ...]:
        scope, words = self._ground().scope("sandbox", box=True), ""
        try:
            for users in USERS:
                words = await self._run([*self._prefix(users, network, cwd, ()), "--", "/bin/sh", "-c", ":"], scope)
                if not words:
                    return users
        finally:
            await scope.begin_stop("it was only tried").wait()
        raise SpawnError(f"bubblewrap does not work here ({words}): {ALLOW}", 126)

    async def _run(self, argv: list[str], scope: Scope) -> str:
        """What it says when it fails. Nobody's task, so without one."""
        process = await self._spawn(scope, argv, cwd="/", env={}, stdin=NULL, stdout=NULL, stderr=PIPE)
        clock = asyncio.get_running_loop().call_later(PROBE_LIMIT, process.begin_stop, "out of time", 0)
        _, said = await process.communicate()
        clock.cancel()
        words = " ".join(said.decode("utf-8", "replace").split())[:300]
        return "" if process.returncode == 0 else words or f"exit {process.returncode}"


def makes_sense(agent: Agent) -> None:
    """H53: UsageError where what it asks for would be silently inert."""
    if agent.isolation == "none":
        if not agent.network:
            raise UsageError(f'the agent {agent.name} has network = false, which needs isolation = "bwrap"')
    elif agent.harness:
        raise UsageError(f"the agent {agent.name} is a harness, and there is no isolation for those yet")


def around(agent: Agent) -> str:
    """The sandbox in a word, or none: what is allowed in one is not allowed outside of it, nor with a network."""
    return agent.isolation + ("" if agent.network else ", no network") if agent.isolation != "none" else ""


def confined(agent: Agent, by: Agent) -> Agent:
    """A sub-agent is in its sandbox, and in the one of whoever asks for it. UsageError where it cannot be."""
    if by.isolation == "none":
        return agent
    if agent.harness:
        raise UsageError(f"the agent {agent.name} is a harness, and an agent in a sandbox cannot ask for one")
    return msgspec.structs.replace(agent, isolation=by.isolation, network=agent.network and by.network)


def _program() -> str:
    for path in candidates("bwrap", os.environb):
        if os.access(path, os.X_OK):
            return path
    raise SpawnError(f"bubblewrap is not installed: {INSTALL}", 127)


def _find(name: str, cwd: str, env: Mapping[str, str]) -> None:
    """What is not there is said as it is without a sandbox."""
    known = {os.fsencode(key): os.fsencode(value) for key, value in env.items()}
    for path in candidates(name, known):
        if os.access(os.path.join(cwd, path), os.F_OK):
            return
    raise failure(name, 2, "")


# -- what it shows


def homes() -> list[str]:
    """Of this user: by the environment, and by the system."""
    found = [os.path.expanduser("~")]
    try:
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:  # a user without an account
        pass
    return [one for one in dict.fromkeys(map(os.path.realpath, found)) if one != "/"]


def listeners() -> set[str]:
    """The sockets of daemons that somebody could connect to: those would do outside what is asked for inside."""
    try:
        with open(LISTENERS, encoding="utf-8", errors="surrogateescape") as lines:
            named = {words[7].rstrip("\n") for one in lines if len(words := one.split(None, 7)) == 8}
    except OSError:
        return set()
    return {os.path.realpath(one) for one in named if one.startswith("/") and os.path.exists(one)}


def mounts(cwd: str, shown: Sequence[str], off_limits: Sequence[str]) -> Iterator[str]:
    """The more specific place wins: each is mounted after all that it lies in. `cwd` is a real path."""
    places: dict[str, str] = {os.path.realpath(one): "private" for one in PRIVATE if os.path.isdir(one)}
    secrets = [os.path.realpath(os.path.join(home, one)) for home in homes() for one in SECRETS]
    places |= {one: "hidden" for one in secrets if os.path.exists(one)}
    places[cwd] = "written"
    emptied = [*places]  # and those of the folder are for whoever works there
    places |= {one: "hidden" for one in listeners() if not _within(one, emptied)}
    places |= {one: "hidden" for one in off_limits if os.path.exists(one) or _inside(one, cwd)}
    found = dict(_read_again(shown, places))
    read = {path: real for path, real in found.items() if path == real or not _within(path, found)}
    closed = []
    for path in sorted({*places, *read}, key=lambda one: (one.count("/"), one)):
        kind = places.get(path, "read")
        if kind == "read" and path != read[path]:
            yield from ("--symlink", read[path], path)  # a second mount of it would show what is hidden in the first
        elif kind == "read":
            yield from ("--ro-bind", path, path)
        elif kind == "written":
            yield from ("--bind", path, path)
        elif kind == "hidden" and os.path.exists(path) and not os.path.isdir(path):
            yield from ("--ro-bind", os.devnull, path)
        else:
            yield from ("--tmpfs", path)
            closed += [path] if kind == "hidden" else []
    for path in closed:
        yield from ("--remount-ro", path)


def _read_again(shown: Sequence[str], places: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Of what must be seen, that which lies in a place that is emptied; and where it is in truth."""
    names = "/run/current-system", os.path.realpath("/etc/resolv.conf")
    for name in (*names, *shown):
        real = os.path.realpath(name)
        for path in {os.path.abspath(name), real}:
            above = max((one for one in places if _inside(path, one)), key=len, default="")
            if places.get(above, "written") != "written" and path != above and os.path.exists(real):
                yield path, real


def _within(path: str, folders: Iterable[str]) -> bool:
    """Whether it lies in another of them: then it is seen there."""
    return any(_inside(path, one) for one in folders if one != path)


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
