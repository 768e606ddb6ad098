"""What a running tool may do (`ports.Caller`): everything that it starts is fenced, owned by its call, and recorded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import FencedError, ToolError
from ..events import ProcessEnded, ProcessSpawned, ToolOutput, ToolRequested
from ..supervise import Process, Scope, allow
from .own import closed
from .remembering import recall, remember

if TYPE_CHECKING:
    from .turn import Turn


class Call:
    """One call of one tool."""

    def __init__(self, turn: Turn, request: ToolRequested, scope: Scope) -> None:
        self.session = turn.session.id
        self.turn = turn.number
        self.cwd = turn.session.cwd
        self.env: Mapping[str, str] = turn.session.agent.env
        self.scope = scope
        self.network = turn.session.agent.network
        self.off_limits: Sequence[str] = turn.session.host.off_limits
        self.heard: Callable[[], None] = lambda: None
        self._turn = turn
        self._request = request

    def output(self, text: str) -> None:
        """Show what it does while it does it."""
        self.heard()
        request, tool = self._request.seq, self._request.tool
        self._turn.emit(ToolOutput, request=request, cause=request, source=f"tool:{tool}", text=text)

    def redact(self, text: str) -> str:
        """As it goes into the log."""
        return self._turn.session.host.journal.redaction.text(text)

    async def spawn(
        self, argv: Sequence[str], *, background: bool = False, shown: Sequence[str] = (), **wishes: Any
    ) -> Process:
        """Start a command in the session's box and the agent's sandbox; FencedError once the turn is stopped (H18)."""
        turn, session, agent = self._turn, self._turn.session, self._turn.session.agent
        wishes.setdefault("cwd", self.cwd)
        if wishes.get("env") is None:
            wishes["env"] = {**allow(), **self.env}  # no key of ours is for a command
        whole = argv
        if agent.isolation == "none":
            wishes["sealed"] = closed(self.off_limits, self.cwd)
        else:
            self._pass_fence()
            whole = await session.host.sandbox.wrap(agent, argv, self.cwd, shown, wishes)
        self._pass_fence()
        scope = session.jobs_scope() if background else self.scope
        process: Process = await session.host.spawn(scope, whole, **wishes)
        try:
            self._pass_fence()
        except FencedError:
            process.begin_stop("the turn was stopped", 0)  # it was on its way when the stop came
            raise
        spawned = turn.emit(
            ProcessSpawned,
            cause=self._request.seq,
            pid=process.pid,
            argv=[os.fsdecode(word) for word in argv],
            background=background,
            isolation="" if agent.isolation == "none" else agent.isolation,
        )
        session.commands.add(process, spawned)
        process.over.then(lambda: _ended(turn, process, spawned))
        return process

    def _pass_fence(self) -> None:
        self._turn.pass_fence()
        if self.scope.stopping is not None:
            raise FencedError("the call has ended: nothing of it starts any more")

    def jobs(self) -> Sequence[Process]:
        """The background commands of this session that still run."""
        return self._turn.session.jobs()

    async def remember(self, text: str) -> None:
        """Keep it in the agent's memory. ToolError if that has none."""
        self._pass_fence()
        await remember(self._turn, text, self._request.seq)

    async def recall(self, query: str, limit: int = 5) -> list[str]:
        """What the agent's memory has on it."""
        self._pass_fence()
        return await recall(self._turn, query, limit, self._request.seq)

    async def delegate(self, agent: str, text: str) -> str:
        """Have a sub-agent do something, in a session of its own below this one, and give its answer."""
        turn = self._turn
        self._pass_fence()
        child = turn.session.host.open_child(turn.session, agent, self.scope, self._request.seq)
        try:
            sent = child.send(text)
            ended = await sent
        finally:
            child.begin_close("its work is done")
        if ended.end != "completed":
            raise ToolError(f"the sub-agent {agent} did not finish: {ended.end} {ended.reason}".strip())
        return sent.text


def _ended(turn: Turn, process: Process, spawned: ProcessSpawned) -> None:
    """Whenever that is: a job in the background outlives its turn."""
    session = turn.session
    if session.gone:
        return
    code = process.returncode
    end = "gone" if code is None else f"exit {code}" if code >= 0 else f"signal {-code}"
    session.emit(
        ProcessEnded(
            session=session.id, turn=turn.number, epoch=session.epoch, cause=spawned.seq, pid=spawned.pid, end=end
        )
    )
