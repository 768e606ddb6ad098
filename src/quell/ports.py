"""What plugins provide and what the kernel stands on, as protocols: every extension point is in this file.

A plugin is one object with a name and a `setup(ctx)` that registers what it brings. It is trusted code.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from .config import Effort
from .events import Event, Image, ToolCall, Usage

if TYPE_CHECKING:
    from .supervise import Process, Scope

Handler = Callable[[Event], Awaitable[object]]


# -- models


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a model is told of a call that it wanted."""

    call: str
    tool: str
    text: str
    failed: bool = False


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the history that a model is given."""

    role: Literal["system", "user", "assistant", "tool"]
    text: str = ""
    calls: list[ToolCall] = []
    results: list[ToolResult] = []
    images: list[Image] = []
    kept: dict[str, Any] = {}
    """What a model asked to have back with this answer of its own (`Keep`)."""


class ToolSpec(msgspec.Struct, frozen=True):
    """What a model is told of a tool: `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class Ask(msgspec.Struct, frozen=True):
    """What a model is asked."""

    messages: list[Message]
    tools: list[ToolSpec] = []
    model: str = ""
    """What follows the colon where an agent names its model: `gpt-5` of `openai:gpt-5`."""
    effort: Effort = ""
    """How much it is to think; empty is its own default."""
    longest: int = 0
    """Tokens of the answer; 0 is its own default."""
    session: str = ""


class Text(msgspec.Struct, frozen=True):
    text: str


class Reasoning(msgspec.Struct, frozen=True):
    text: str


class Notice(msgspec.Struct, frozen=True):
    """For the person who waits: a retry, say."""

    text: str


class Anew(msgspec.Struct, frozen=True):
    """The answer begins again, and what was said of it so far is void; `text` tells the person why."""

    text: str


class Keep(msgspec.Struct, frozen=True):
    """Comes back in `Message.kept[kind]` with this answer. `kind` is who can read it."""

    kind: str
    data: Any


Chunk = Text | Reasoning | Notice | Anew | Keep | ToolCall | Usage


class Model(Protocol):
    def answer(self, ask: Ask) -> AsyncIterator[Chunk]:
        """Stream the answer. Closing the iterator must end it at once; what it raises fails the request.

        ModelError is told to the person as it is; ContextFullError has the history made shorter first.
        """
        ...


# -- tools


class Caller(Protocol):
    """What a running tool may do. Everything that it starts belongs to the call, and ends with it."""

    session: str
    turn: int
    cwd: str
    env: Mapping[str, str]
    """What the agent's commands have in their environment, besides what a tool gives them."""
    scope: Scope
    """Of this call: ended with it."""
    network: bool
    """Whether the agent may use one. Its commands are kept from it; a tool that needs one refuses."""
    off_limits: Sequence[str]
    """Folders and files that no tool reads or writes: Quell's own configuration, plugins and state."""

    def output(self, text: str) -> None:
        """Show what it does while it does it."""
        ...

    def redact(self, text: str) -> str:
        """The same, with known secrets masked. For what is cut: half a secret would not be known as one."""
        ...

    async def spawn(
        self, argv: Sequence[str], *, background: bool = False, shown: Sequence[str] = (), **wishes: Any
    ) -> Process:
        """Start a command in the session's box; refused behind the fence. In the background it outlives the turn.

        It runs in the agent's sandbox, if that has one; `shown` are folders that this must not hide. `wishes` are those
        of `Scope.spawn`. Without an `env` it has the basic variables of ours (`quell.allow`), and those of the agent.
        """
        ...

    def jobs(self) -> Sequence[Process]:
        """The background commands of this session that still run."""
        ...

    async def remember(self, text: str) -> None:
        """Keep it in the agent's memory. ToolError if that has none."""
        ...

    async def recall(self, query: str, limit: int = 5) -> list[str]:
        """What the agent's memory has on it."""
        ...

    async def delegate(self, agent: str, text: str) -> str:
        """Have a sub-agent do something, in a session of its own below this one, and give its answer."""
        ...


Where = Literal["process", "thread", "loop"]
"""Where a function runs that is a tool."""


class Tool(Protocol):
    spec: ToolSpec

    async def call(self, arguments: Mapping[str, Any], caller: Caller) -> str:
        """Do it, and say what came of it. ToolError is told to the model; anything else counts against the plugin."""
        ...


# -- the choice of the next step


class Step(msgspec.Struct, frozen=True):
    """What a strategy decides: calls to make, or, without any, the answer."""

    text: str = ""
    calls: list[ToolCall] = []


class Answer(msgspec.Struct, frozen=True):
    """All that a model said to one request."""

    text: str
    calls: list[ToolCall]
    usage: Usage


class Thinker(Protocol):
    """What a strategy has to decide with."""

    tools: list[ToolSpec]

    @property
    def messages(self) -> list[Message]:
        """The history, as models that know tools want it; the system prompt first."""
        ...

    async def ask(self, messages: list[Message], tools: list[ToolSpec], *, speak: bool) -> Answer:
        """Ask the model. With `speak` its text is shown as the answer while it comes."""
        ...


class Strategy(Protocol):
    async def next(self, thinker: Thinker) -> Step: ...


# -- memory, harnesses, surfaces


class Whose(msgspec.Struct, frozen=True):
    """Who remembers."""

    agent: str
    session: str
    cwd: str


class Memory(Protocol):
    async def store(self, whose: Whose, text: str) -> None: ...

    async def recall(self, whose: Whose, query: str, limit: int) -> list[str]: ...


class Hosted(Protocol):
    """A foreign agent that runs."""

    def send(self, text: str) -> AsyncIterator[Chunk]:
        """One turn of it. Closing the iterator must end the turn at once, and nothing else."""
        ...


class Harness(Protocol):
    """Starts foreign agents, each for one session, as processes of the scope that it is given."""

    async def start(self, scope: Scope, cwd: str) -> Hosted: ...


class Surface(Protocol):
    """A way in for people or programs. It is run by `Runtime.serve`."""

    async def serve(self, scope: Scope) -> None:
        """What it starts belongs to the scope, which ends with the plugin, and at once if this raises."""
        ...


# -- plugins


class Plugin(Protocol):
    name: str

    def setup(self, ctx: PluginContext) -> Awaitable[None] | None:
        """Register what it brings. May be a coroutine function. Has a deadline."""
        ...


class PluginContext(Protocol):
    """What a plugin gets. Whatever it registers or starts goes with it when it is unloaded."""

    name: str
    scope: Scope
    """The plugin's own: for its tasks, processes and connections."""
    home: str
    """The folder for what outlives a runtime and is shared with others of this user; empty where there is none."""

    def model(self, name: str, make: Callable[[], Model]) -> None:
        """`make` is called when the model is first used, in a thread: imports may be slow."""
        ...

    def tool(self, tool: Tool | Callable[..., Any], *, where: Where | None = None) -> None:
        """A Tool, or a typed function with a docstring, which becomes one.

        Where a function runs, if nothing is said: a coroutine function in the loop; any other in a process of the call,
        or in a thread where no other process could find it by its name, or it takes the caller.
        """
        ...

    def strategy(self, name: str, strategy: Strategy) -> None: ...

    def memory(self, name: str, memory: Memory) -> None: ...

    def harness(self, name: str, harness: Harness) -> None: ...

    def surface(self, name: str, surface: Surface) -> None: ...

    def on(self, kinds: str | Sequence[str], handler: Handler, *, deadline: float | None = None) -> None:
        """Call the handler with every event of these kinds: `tool.ended`, all of `tool.`, or `` for everything."""
        ...

    def emit(self, name: str, data: Any = None, *, session: str = "") -> None:
        """An event of the plugin's own kind, `x.<plugin>.<name>`."""
        ...


# -- what the kernel stands on: real ones by default, simulated ones in tests


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since 1970."""
        ...


class Row(msgspec.Struct, frozen=True):
    """One event, as a store keeps it: encoded once."""

    seq: int
    at: float
    kind: str
    session: str
    body: bytes


class Store(Protocol):
    """Append-only, with one writer."""

    async def open(self, told: Callable[[int | Exception], None]) -> int:
        """The highest `seq` that may have been given away before: the next is above it. StoreError refuses.

        `told` is called in the loop: with the last `seq` that is on disk, or with what failed, once and for all.
        """
        ...

    def append(self, row: Row, durable: bool) -> None:
        """Take it, in the order of the calls; never blocks. What is durable is committed soon, with all before it."""
        ...

    async def read(
        self,
        *,
        after: int = 0,
        upto: int | None = None,
        session: str | None = None,
        kinds: Sequence[str] = (),
        limit: int = 1000,
    ) -> list[Row]:
        """In order of `seq`; what was appended before the call is among it. `kinds` ending in a dot are prefixes."""
        ...

    async def sessions(self) -> list[str]:
        """Every session that has an event."""
        ...

    async def forget(self, session: str, keep: Sequence[int] = ()) -> int:
        """Remove the events of a session, but for those with the `seq` in `keep`; how many."""
        ...

    async def close(self) -> None:
        """Commit what there is, and let go of the file. Idempotent."""
        ...


Spawner = Callable[..., Awaitable["Process"]]
"""`spawn(scope, argv, **wishes)`: as `Scope.spawn`."""
