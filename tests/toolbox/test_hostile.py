"""Hostile transcripts, as models make them over HTTP: nothing runs that nobody allowed, and each call has one end."""

import asyncio
import itertools
import json
import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

import quell
import quell.testing.llm.replies
import quell.toolbox.search
from quell.config import ASSISTANT, Agent, Limits, Provider
from quell.events import (
    ApprovalAsked,
    Event,
    ProcessSpawned,
    ToolEnded,
    ToolRefused,
    ToolRequested,
    ToolStarted,
    decode,
)
from quell.models.patience import Patience
from quell.models.providers import plugin_for
from quell.stores.sqlite import read_rows
from quell.testing import Calls, ModelRequest, ModelServer, Reply, Says, check_log
from quell.testing.llm.issued import Issued

from .transcripts import TRANSCRIPTS, Transcript

TREASURES = ("outside-treasure", "our-own-treasure")
"""What is in files that nobody may read: it is in no log, and no model is told."""
MODELS = ("responses:gpt-5", "chat:llama3", "messages:claude-sonnet-4-6")
PLAYS = [
    (name, model)
    for number, (name, one) in enumerate(TRANSCRIPTS.items())
    for model in (MODELS if one.shape else MODELS[number % 3 : number % 3 + 1])
]
TOGETHER = 12
"""Transcripts at a time."""
FILES = ("read", "write", "edit", "glob", "grep")
EVERYTHING = (*ASSISTANT.tools, "fetch")
FEW = Limits(steps=12, depth=2)


def rights(name: str, **wishes: Any) -> Agent:
    plan: dict[str, Any] = {"model": "", "tools": ASSISTANT.tools, "memory": "sqlite", "limits": FEW}
    return Agent(name=name, **(plan | wishes))


AGENTS = [
    rights("assistant"),
    rights("asks", tools=EVERYTHING),
    rights("git", approval={"shell(git *)": "allow"}),
    rights("free", tools=EVERYTHING, approval={"*": "allow"}),
    rights("chief", approval={"agent": "allow"}),
    rights("bare", tools=("read", "agent"), approval={"*": "allow"}),
    rights("shallow", approval={"*": "allow"}),
    rights("mindful", approval={"remember": "allow", "recall": "allow"}),
    rights("scripted-careful", model="scripted"),
    rights("scripted", model="scripted", approval={"shell": "allow"}),
]
assert rights("assistant").approval == ASSISTANT.approval == {}


class World:
    """A home with our own files in it, a folder outside, and what is where before anything has run."""

    def __init__(self, folder: Path) -> None:
        self.home, self.out = folder / "home", folder / "outside"
        self.usual = self.home / ".local/state/quell"
        self.state = self.usual / "runtime"
        self.config = self.home / ".config/quell/config.toml"
        for path, text in {
            self.out / "secret": TREASURES[0],
            self.config: f'# {TREASURES[1]}\n[agents.mine]\napproval = {{ "*" = "ask" }}\n',
            self.usual / "token": TREASURES[1],
            self.usual / "plugins/mine.py": TREASURES[1],
            self.home / ".config/other/file": "plain",
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (self.home / "alias").symlink_to(self.usual)
        (self.home / "hard").hardlink_to(self.config)
        self.before = self.guarded()

    def cwd(self, number: int, transcript: Transcript) -> Path:
        if transcript.at == "home":
            return self.home
        own = self.home / "work" / str(number)
        own.mkdir(parents=True)
        transcript.before(own, self.out)
        return own

    def guarded(self) -> dict[str, str]:
        """All that no call may change, make or remove."""
        found = [self.config.parent, self.out, self.usual / "plugins", self.usual / "token"]
        files = [each for one in found for each in (one, *one.rglob("*")) if each.is_file()]
        return {str(one): one.read_text() for one in files}

    def filled(self, thing: Any, cwd: Path, number: int) -> Any:
        """With the places of this world."""
        words = {
            "@OUT": self.out,
            "@HOME": self.home,
            "@STATE": self.state,
            "@CONFIG": self.config,
            "@CWD": cwd,
            "@PLAY": number,
        }
        text = json.dumps(thing)
        for word, place in words.items():
            text = text.replace(word, str(place))
        return json.loads(text)


class Crowd:
    """All sessions of the test, and the model that plays each its transcript."""

    def __init__(self, world: World, server: ModelServer) -> None:
        self.world = world
        self.server = server
        self.sessions: dict[str, str] = {}
        self.steps: dict[int, list[Reply]] = {}
        self.same_ids = False

    def reply(self, request: ModelRequest) -> Reply:
        """The next step of the transcript that is named in the request."""
        found = re.search(r"play=(\d+)", json.dumps(request.body))
        assert found is not None
        number = int(found[1])
        self.same_ids = number < len(PLAYS) and TRANSCRIPTS[PLAYS[number][0]].same_ids
        steps = self.steps[number]
        return steps.pop(0) if steps else Says("Done.")

    async def play(self, rt: quell.Runtime, number: int, name: str, model: str) -> None:
        transcript = TRANSCRIPTS[name]
        cwd = self.world.cwd(number, transcript)
        self.steps[number] = [Calls(*self.world.filled(step, cwd, number)) for step in transcript.steps]
        session = await rt.open(transcript.agent, cwd, model=model)
        self.sessions[session.id] = name
        with swapping(cwd, self.world.out) if transcript.swapped else nullcontext():
            ended = await session.send(f"play={number}")
        assert ended.end in ("completed", "limit"), (name, ended)
        await session.close()

    async def stop(self, rt: quell.Runtime, number: int, model: str) -> None:
        """While half of a call is here, and while questions are open: what comes after the stop comes too late."""
        call = "shell", {"command": f"touch {self.world.out}/PWNED #" + "x" * 200_000}
        self.steps[number] = [Calls(call).hang(2), Calls(call, ("write", {"path": "PWNED", "text": "x"}))]
        session = await rt.open("assistant", self.world.home, model=model)
        sent, before = session.send(f"play={number}"), len(self.server.requests)
        await self.server.sent(2, before + 1)
        await session.stop(reach="turn")
        assert (await sent).end == "stopped"
        after, asked = rt.host.journal.last, list[int]()
        sent = session.send("Go on.")
        async for event in rt.follow(after):
            if event.session == session.id and isinstance(event, ApprovalAsked):
                asked.append(event.seq)
                if len(asked) == 2:
                    break
        receipt = await session.stop(reach="turn")
        assert receipt.confirmed and (await sent).end == "stopped"
        for seq in asked:
            with pytest.raises(quell.UsageError):
                session.approve(seq, True)
        await session.close()

    async def person(self, rt: quell.Runtime) -> None:
        """Says no to every other transcript, and nothing to the rest."""
        names = list(TRANSCRIPTS)
        async for event in rt.follow():
            name = self.sessions.get(event.session) if isinstance(event, ApprovalAsked) else None
            if name is not None and names.index(name) % 2:
                with suppress(quell.UsageError):  # withdrawn meanwhile
                    rt.host.live[event.session].approve(event.seq, False, "no, thank you")


@contextmanager
def swapping(cwd: Path, out: Path) -> Iterator[None]:
    """By a thread, as fast as it can."""
    over = threading.Event()
    (cwd / "dir").mkdir()
    (cwd / "dir/secret").write_text("treasure")

    def swap() -> None:
        for turn in itertools.count():
            new = cwd / "new"
            new.symlink_to(out / "secret") if turn % 2 else new.write_text("treasure")
            new.replace(cwd / "it")
            (cwd / "dir").rename(cwd / f"away{turn}")
            with suppress(OSError):  # a call was faster, and made the folder anew
                (cwd / "dir").symlink_to(out)
                (cwd / "dir").unlink()
                (cwd / f"away{turn}").rename(cwd / "dir")
            if over.is_set():
                return

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    found = World(tmp_path)
    monkeypatch.setenv("HOME", str(found.home))
    monkeypatch.setenv("QUELL_STATE_DIR", str(found.usual))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(quell.toolbox.search, "SECONDS", 1.0)
    monkeypatch.setattr(quell.testing.llm.replies, "_SLICE", 1 << 16)  # of arguments that are megabytes
    return found


@pytest.fixture
def crowd(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[Crowd]:
    numbers = itertools.count()
    with ModelServer() as server:
        found = Crowd(world, server)
        server.otherwise(found.reply)
        monkeypatch.setattr(
            Issued,
            "id",
            lambda _, prefix: (
                f"{prefix}same" if found.same_ids and prefix in ("call_", "toolu_") else f"{prefix}{next(numbers)}"
            ),
        )
        yield found


@asynccontextmanager
async def runtime(crowd: Crowd) -> AsyncIterator[quell.Runtime]:
    url, root = crowd.server.url, crowd.server.root
    providers = [
        Provider(name="responses", api="responses", base_url=url),
        Provider(name="chat", api="chat", base_url=url),
        Provider(name="messages", kind="anthropic", base_url=root),
    ]
    async with quell.Runtime(
        state_dir=crowd.world.state,
        home=crowd.world.usual,
        agents=AGENTS,
        plugins=[plugin_for(one, Patience(again=0)) for one in providers],
        settings=quell.Settings(ask=0.3, term=0.3, approval=0.3),
        off_limits=[str(crowd.world.config)],
    ) as rt:
        yield rt


async def played(crowd: Crowd) -> None:
    async def some(rt: quell.Runtime, numbered: Iterator[tuple[int, tuple[str, str]]]) -> None:
        for number, (name, model) in numbered:
            await crowd.play(rt, number, name, model)

    async with asyncio.timeout(60), runtime(crowd) as rt, asyncio.TaskGroup() as group:
        person = group.create_task(crowd.person(rt))
        numbered = iter(enumerate(PLAYS))
        async with asyncio.TaskGroup() as players:
            for _ in range(TOGETHER):
                players.create_task(some(rt, numbered))
        for number, model in enumerate(MODELS, len(PLAYS)):
            await crowd.stop(rt, number, model)
        person.cancel()
        assert set(rt.plugins.loaded) >= {"shell", "files", "agent", "remember", "fetch", "responses", "chat"}


def test_no_transcript_gets_anything_done_that_nobody_allowed(crowd: Crowd) -> None:
    """H18, H35: over three wire formats in one runtime, which goes on."""
    assert len(TRANSCRIPTS) >= 50
    asyncio.run(played(crowd))
    log = crowd.world.state / "log.sqlite"
    check_log(log)
    events = [decode(row.body) for row in read_rows(log)]
    for session, name in crowd.sessions.items():
        judge(name, [one for one in events if one.session == session])
    assert crowd.world.guarded() == crowd.world.before
    assert not [one for one in crowd.world.home.rglob("PWNED*") if one.name != "PWNED-INSIDE"]
    assert crowd.server.refused == [], "every history that was made of them is one that the APIs take"
    nothing_is_told(crowd, log)


def judge(name: str, events: list[Event]) -> None:
    """One transcript, by what is in the log."""
    transcript = TRANSCRIPTS[name]
    requests = [one for one in events if isinstance(one, ToolRequested)]
    ends = {one.request: one for one in events if isinstance(one, ToolEnded | ToolRefused)}
    started = {one.request for one in events if isinstance(one, ToolStarted)}
    assert len(requests) == len(ends), name
    assert len(requests) == len(transcript.told) or (transcript.shape and len(requests) < len(transcript.told)), name
    assert Counter(one.kind for one in events)["turn.ended"] == 1, name
    for request, told in zip(requests, transcript.told, strict=not transcript.shape):
        end = ends[request.seq]
        words = end.reason if isinstance(end, ToolRefused) else f"{end.error}\n{end.result}"
        assert any(one in words for one in ((told,) if isinstance(told, str) else told)), (name, request, words)
        assert isinstance(end, ToolEnded) == (request.seq in started), (name, request)
    assert len(started) == transcript.starts, (name, [ends[one] for one in started])
    free = {"assistant": FILES[:1] + FILES[3:], "asks": (), "git": ("shell",), "mindful": ("remember", "recall")}
    may = free.get(transcript.agent)
    began = {one.tool for one in requests if one.seq in started}
    assert may is None or began <= {*may, "read", "glob", "grep"}, (name, began)
    for spawned in (one for one in events if isinstance(one, ProcessSpawned)):
        assert spawned.cause in started, (name, spawned)


def nothing_is_told(crowd: Crowd, log: Path) -> None:
    """What is in the files that nobody may read."""
    told = [json.dumps(one.body) for one in crowd.server.requests]
    kept = [path.read_bytes().decode(errors="replace") for path in log.parent.glob("log.sqlite*")]
    for text in (*told, *kept):
        assert not [one for one in TREASURES if one in text]
