"""The loop of an agent: a strategy decides the next step, the model is asked, tools are called, until it answers.

Log first: the intent of an effect is on disk before it begins, and the fence is passed in the very step it begins in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..errors import FencedError, QuellError, StoreError, ToolError
from ..events import (
    MemoryRecalled,
    MessageDelta,
    MessageDone,
    ModelAnswered,
    ModelDelta,
    ModelFailed,
    ModelRequested,
    SessionCompacted,
    ToolCall,
    ToolEnded,
    ToolOutput,
    ToolRefused,
    ToolRequested,
    ToolStarted,
    Usage,
    plain,
)
from ..ports import Answer, Ask, Message, Model, Notice, Reasoning, Step, Text, Tool, ToolSpec
from .approval import permission
from .caller import Call
from .chunks import closing
from .history import CHARACTERS_PER_TOKEN
from .hosting import converse
from .silence import Silence
from .subscription import said

if TYPE_CHECKING:
    from .turn import Turn

SUMMARISE = "Summarise this conversation so that you can go on with it: facts, decisions, open work. Text only."
RECALLED = 5
"""Memories that a turn begins with, at most."""


class LimitReached(QuellError):
    """A limit of the turn: it ends, and says which."""


class ModelFault(QuellError):
    """The model failed: the turn fails with its words."""


async def run(turn: Turn) -> None:
    """A whole turn. What it raises is how the turn ends."""
    try:
        await _run_turn(turn)
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error  # else a plugin could end the runtime


async def _run_turn(turn: Turn) -> None:
    if turn.session.agent.harness:
        return await converse(turn)
    mind = await Mind.prepare(turn)
    strategy = turn.session.host.registry.strategy(turn.session.agent.strategy)
    await mind.compact()
    while True:
        mind.check_limits()
        turn.steps += 1
        step = checked(await strategy.next(mind))
        if not step.calls:
            turn.emit(MessageDone, request=turn.started.seq, cause=turn.started.seq, source="model", text=step.text)
            return None
        await call_all(turn, step.calls, mind.answered)


class Mind:
    """What a strategy has to decide with (`ports.Thinker`)."""

    def __init__(self, turn: Turn, model: Model, system: str, tools: list[ToolSpec]) -> None:
        self.tools = tools
        self.answered = turn.started.seq
        """The event that the calls of this step come from."""
        self._turn = turn
        self._model = model
        self._system = system

    @classmethod
    async def prepare(cls, turn: Turn) -> Mind:
        registry, agent = turn.session.host.registry, turn.session.agent
        model = await registry.model(agent.model)
        system = agent.system
        if agent.memory:
            memory = registry.memory(agent.memory)
            found = await memory.recall(turn.session.id, turn.message.text, RECALLED)
            turn.emit(MemoryRecalled, cause=turn.started.seq, query=turn.message.text, found=found)
            system = "\n".join([system, "You remember:", *found]).strip() if found else system
        return cls(turn, model, system, [registry.tool(name).spec for name in agent.tools])

    @property
    def messages(self) -> list[Message]:
        return self._turn.session.history.messages(self._system)

    def check_limits(self) -> None:
        turn, limits = self._turn, self._turn.session.agent.limits
        used = turn.usage.input + turn.usage.output
        if limits.steps and turn.steps >= limits.steps:
            raise LimitReached(f"steps: {limits.steps}")
        if limits.tokens and used >= limits.tokens:
            raise LimitReached(f"tokens: {used} of {limits.tokens}")
        if limits.cost and turn.usage.cost >= limits.cost:
            raise LimitReached(f"cost: ${turn.usage.cost:.4f} of ${limits.cost:.4f}")

    async def ask(self, messages: list[Message], tools: list[ToolSpec], *, speak: bool) -> Answer:
        """Ask the model. With `speak` its text is shown as the answer while it comes."""
        return await self._ask(messages, tools, speak, "answer")

    async def compact(self) -> None:
        """A long history gets a summary that stands for it. Nothing is rewritten."""
        turn, history = self._turn, self._turn.session.history
        limit = turn.session.agent.limits.history
        before = history.size - len(turn.message.text) // CHARACTERS_PER_TOKEN
        if not limit or before <= limit:
            return
        upto = turn.started.seq - 1
        asked = [*history.messages(self._system), Message("user", SUMMARISE)]
        answer = await self._ask(asked, [], False, "compact")
        turn.emit(SessionCompacted, cause=self.answered, summary=answer.text, upto=upto)

    async def _ask(self, messages: list[Message], tools: list[ToolSpec], speak: bool, purpose: str) -> Answer:
        turn = self._turn
        turn.pass_fence()
        request = turn.emit(
            ModelRequested, cause=self.answered, model=turn.session.agent.model, messages=len(messages), purpose=purpose
        )
        text: list[str] = []
        calls: list[ToolCall] = []
        usage = Usage()
        loop, settings = turn.session.host.loop, turn.session.host.settings

        def notice(words: str) -> None:
            turn.emit(ModelDelta, request=request.seq, cause=request.seq, channel="notice", text=words)

        try:
            await turn.session.host.journal.committed(request)
            turn.pass_fence()
            with Silence(loop, settings.silent, notice, "the model") as silence:
                async with closing(self._model.answer(Ask(messages, tools))) as chunks:
                    async for chunk in chunks:
                        silence.broken()
                        match chunk:
                            case Text() if speak:
                                text.append(chunk.text)
                                origin = turn.started.seq
                                turn.emit(
                                    MessageDelta, request=origin, cause=request.seq, source="model", text=chunk.text
                                )
                            case Text():
                                text.append(chunk.text)
                                turn.emit(ModelDelta, request=request.seq, cause=request.seq, text=chunk.text)
                            case Reasoning():
                                turn.emit(
                                    ModelDelta,
                                    request=request.seq,
                                    cause=request.seq,
                                    channel="reasoning",
                                    text=chunk.text,
                                )
                            case Notice():
                                notice(chunk.text)
                            case ToolCall():
                                calls.append(tidy(chunk))
                            case Usage():
                                usage += chunk
        except (FencedError, StoreError):
            raise
        except Exception as error:
            words = str(error) if isinstance(error, QuellError) else said(error)
            turn.emit(ModelFailed, request=request.seq, cause=request.seq, error=words)
            raise ModelFault(f"the model failed: {words}") from error
        turn.usage += usage
        spoken = "".join(text)
        answered = turn.emit(
            ModelAnswered, request=request.seq, cause=request.seq, source="model", text=spoken, calls=calls, usage=usage
        )
        self.answered = answered.seq
        return Answer(spoken, calls, usage)


def tidy(call: Any) -> ToolCall:
    """As it should be: models write arguments that are no object, and forget the id."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {"input": plain(call.arguments)}
    return ToolCall(str(call.id), str(call.tool), arguments)


def checked(step: Any) -> Step:
    """A strategy is a stranger too."""
    text, calls = getattr(step, "text", None), getattr(step, "calls", None)
    if not isinstance(text, str) or not isinstance(calls, list) or not all(isinstance(one, ToolCall) for one in calls):
        raise TypeError(f"a strategy decides a Step with text and a list of ToolCall, not {step!r:.200}")
    return Step(text, [tidy(one) for one in calls])


async def call_all(turn: Turn, calls: list[ToolCall], cause: int) -> None:
    """All calls of one step, in parallel; each gets its end."""
    assert turn.scope is not None
    tasks = [turn.scope.task(call_tool(turn, one, cause), name=f"tool {one.tool}") for one in calls]
    for task in tasks:
        task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # read, whoever waits for it
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


async def call_tool(turn: Turn, call: ToolCall, cause: int) -> None:
    """One call, from the wish to its end. A late one is refused, with an event that says so."""
    request = turn.emit(
        ToolRequested, cause=cause, source="model", tool=call.tool, call=call.id, arguments=call.arguments
    )
    plugins, owner = turn.session.host.plugins, ""

    def refuse(reason: str) -> None:
        turn.emit(ToolRefused, request=request.seq, cause=request.seq, reason=reason)

    try:
        turn.pass_fence()
        if call.tool not in turn.session.agent.tools:
            return refuse(
                f"this agent has no tool {call.tool!r}; it has {', '.join(turn.session.agent.tools) or 'none'}"
            )
        tool, owner = turn.session.host.registry.tool(call.tool), turn.session.host.registry.owner("tool", call.tool)
        if (reason := await permission(turn, request)) is not None:
            return refuse(reason)
        turn.pass_fence()
        intent = turn.emit(ToolStarted, request=request.seq, cause=request.seq)
        await turn.session.host.journal.committed(intent)
        turn.pass_fence()  # and in this very step it begins
        result = await _run(turn, tool, call, request)
    except (FencedError, StoreError) as error:
        return refuse(str(error))
    except QuellError as error:  # said in a sentence: ToolError, or a tool that went with its plugin
        result, words = "", str(error)
    except Exception as error:  # noqa: BLE001  a boundary: whatever a tool raises, its request gets an end (H35)
        result, words = "", said(error)
        plugins.failed(owner, f"tool {call.tool}", error)
    else:
        words = ""
        plugins.succeeded(owner)
    turn.emit(ToolEnded, request=request.seq, cause=request.seq, source=f"tool:{call.tool}", result=result, error=words)
    return None


async def _run(turn: Turn, tool: Tool, call: ToolCall, request: ToolRequested) -> str:
    """The tool itself, in a scope of its own, of which nothing is left when it has ended."""
    assert turn.scope is not None
    host = turn.session.host
    scope = turn.scope.scope(f"tool-{request.seq}")
    caller = Call(turn, request, scope)

    def notice(words: str) -> None:
        turn.emit(ToolOutput, request=request.seq, cause=request.seq, channel="notice", text=words)

    with Silence(host.loop, host.settings.silent, notice, call.tool) as silence:
        caller.heard = silence.broken
        task = scope.task(_tool(tool, call, caller), name=f"tool {call.tool}")
        try:
            await asyncio.wait([task])
        finally:
            receipt = await scope.stop(reason="end of tool call")
    if task.cancelled():
        raise ToolError("it was cancelled from inside")
    result = task.result()
    if not receipt.confirmed:
        raise ToolError(f"{result}\n{receipt.sentence()}".strip())
    return result


async def _tool(tool: Tool, call: ToolCall, caller: Call) -> str:
    try:
        result: object = await tool.call(call.arguments, caller)
        return result if isinstance(result, str) else "" if result is None else str(plain(result))
    except SystemExit as error:
        raise RuntimeError(f"SystemExit: {error}") from error  # else it would end the runtime
