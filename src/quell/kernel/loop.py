"""The loop of an agent: a strategy decides the next step, tools are called, until there is an answer.

Log first: the intent of an effect is on disk before it begins, and the fence is passed in the very step it begins in.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec

from ..errors import FencedError, QuellError, StoreError, ToolError
from ..events import MessageDone, ToolCall, ToolEnded, ToolOutput, ToolRefused, ToolRequested, ToolStarted, plain
from ..ports import Step, Strategy, Tool
from .approval import permission
from .caller import Call
from .compaction import compact, make_room, still_full
from .hosting import converse
from .mind import ContextFault, Mind, check_limits, tidy
from .registry import civil
from .silence import Silence
from .subscription import said

if TYPE_CHECKING:
    from .turn import Turn

MOST = 1_000_000
"""Characters of a tool's result that are kept: more helps no model, and would stall the log."""


async def run(turn: Turn) -> None:
    """A whole turn. What it raises is how the turn ends."""
    await civil(converse(turn) if turn.session.agent.harness else decide(turn))


async def decide(turn: Turn) -> None:
    """Step by step, until one of them is the answer."""
    mind = await Mind.prepare(turn)
    strategy = turn.session.host.registry.strategy(turn.session.agent.strategy)
    await compact(turn, mind)
    while True:
        check_limits(turn)
        turn.steps += 1
        try:
            step = await decision(turn, strategy, mind)
        except ContextFault as full:
            await make_room(turn, mind, full)
            step = await again(turn, strategy, mind)
        if not step.calls:
            turn.emit(MessageDone, request=turn.started.seq, cause=turn.started.seq, source="model", text=step.text)
            return
        await call_all(turn, step.calls, mind.answered)


async def again(turn: Turn, strategy: Strategy, mind: Mind) -> Step:
    """After a summary, once: what is too long even then will not get shorter."""
    try:
        return await decision(turn, strategy, mind)
    except ContextFault as full:
        raise still_full(full) from full


async def decision(turn: Turn, strategy: Strategy, mind: Mind) -> Step:
    """What the strategy wants. What it raises of its own counts against its plugin, and fails the turn."""
    host, name = turn.session.host, turn.session.agent.strategy
    owner = host.registry.owner("strategy", name)
    try:
        step = checked(await strategy.next(mind))
    except QuellError:
        raise  # of a model, a limit, the fence
    except (Exception, SystemExit) as error:
        host.plugins.failed(owner, f"strategy {name}", error)
        raise
    host.plugins.succeeded(owner)
    return step


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
        task.add_done_callback(read)
    await asyncio.wait(tasks)
    for task in tasks:
        task.result()


async def call_tool(turn: Turn, call: ToolCall, cause: int) -> None:
    """One call, from the wish to its end. A late one is refused, with an event that says so."""
    request = turn.emit(
        ToolRequested, cause=cause, source="model", tool=call.tool, call=call.id, arguments=call.arguments
    )
    plugins, owner, begun = turn.session.host.plugins, "", False

    def refuse(reason: str) -> None:
        turn.emit(ToolRefused, request=request.seq, cause=request.seq, reason=reason)

    try:
        # As it is in the log, and nobody else's: what was shown and approved cannot be changed any more.
        own = msgspec.json.decode(msgspec.json.encode(request.arguments))
        turn.pass_fence()
        if call.tool not in turn.session.agent.tools:
            return refuse(
                f"this agent has no tool {call.tool!r}; it has {', '.join(turn.session.agent.tools) or 'none'}"
            )
        tool, owner = turn.session.host.registry.tool(call.tool), turn.session.host.registry.owner("tool", call.tool)
        if (reason := await permission(turn, request, own, tool.spec)) is not None:
            return refuse(reason)
        turn.pass_fence()
        intent = turn.emit(ToolStarted, request=request.seq, cause=request.seq)
        await turn.session.host.journal.committed(intent)
        turn.pass_fence()  # and in this very step it begins
        begun = True
        result = await _run(turn, tool, ToolCall(call.id, call.tool, own), request)
    except (FencedError, StoreError) as error:
        if not begun:
            return refuse(str(error))
        result, words = "", str(error)  # its own, from inside: what it did before that has happened
    except QuellError as error:  # said in a sentence: ToolError, or a tool that went with its plugin
        result, words = "", str(error) or said(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001  a boundary: whatever raises, the call gets its end (H35)
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
        task.add_done_callback(read)
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


def read(task: asyncio.Task[Any]) -> None:
    """Whoever waits for it may have been cancelled: its error is not lost on asyncio's log."""
    if not task.cancelled():
        task.exception()


def within(text: str) -> str:
    """The beginning and the end of what is too long."""
    if len(text) <= MOST:
        return text
    return f"{text[: MOST // 2]}\n[… {len(text) - MOST} characters left out …]\n{text[-MOST // 2 :]}"


async def _tool(tool: Tool, call: ToolCall, caller: Call) -> str:
    result: object = await civil(tool.call(call.arguments, caller))
    text = result if isinstance(result, str) else "" if result is None else str(plain(result))
    return within(caller.redact(text))  # before it is cut: half a secret is not known as one
