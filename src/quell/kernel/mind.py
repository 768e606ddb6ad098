"""What a strategy has to decide with: the history, the tools, and the model, which is asked behind the fence.

Whatever a model does, its request gets its end, and what it says is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from ..errors import ContextFullError, FencedError, ModelError, QuellError, StoreError
from ..events import (
    MessageDelta,
    ModelAnswered,
    ModelDelta,
    ModelFailed,
    ModelRequested,
    ModelRestarted,
    ToolCall,
    Usage,
    plain,
)
from ..ports import Anew, Answer, Ask, Keep, Message, Model, Notice, Reasoning, Text, ToolSpec
from .chunks import Pace, closing
from .history import size_of
from .registry import provider
from .remembering import recall
from .silence import Silence
from .subscription import said

if TYPE_CHECKING:
    from .turn import Turn

MOST = 10_000_000
"""Characters of an answer, with the arguments of its calls: a model that never ends must not fill the memory."""
CALLS = 256
"""Calls of one answer, which begin all at once."""
RECALLED = 5
"""Memories that a turn begins with, at most."""


class LimitReached(QuellError):
    """A limit of the turn: it ends, and says which."""


class ModelFault(QuellError):
    """The model failed: the turn fails with its words."""


class ContextFault(ModelFault):
    """It was asked more than it can read. `size` is how much that was, in characters."""

    def __init__(self, sentence: str, size: int) -> None:
        super().__init__(sentence)
        self.size = size


def check_limits(turn: Turn) -> None:
    """Each with its own end; that of time is a timer of the turn. A sub-agent uses up those of who asked for it."""
    steps = turn.session.agent.limits.steps
    if steps and turn.steps >= steps:
        raise LimitReached(f"steps: {steps}")
    for one in turn.line():
        limits, used = one.session.agent.limits, one.spent.input + one.spent.output
        whose = "" if one is turn else f", which {one.session.agent.name} has with its sub-agents"
        if limits.tokens and used >= limits.tokens:
            raise LimitReached(f"tokens: {used} of {limits.tokens}{whose}")
        if limits.cost and one.spent.cost >= limits.cost:
            raise LimitReached(f"cost: ${one.spent.cost:.4f} of ${limits.cost:.4f}{whose}")


class Mind:
    """Implements `ports.Thinker`."""

    def __init__(self, turn: Turn, model: Model, system: str, tools: list[ToolSpec]) -> None:
        self.tools = tools
        self.answered = turn.started.seq
        """The event that the calls of this step come from."""
        self._turn = turn
        self._model = model
        self._system = system
        self._told = False

    @classmethod
    async def prepare(cls, turn: Turn) -> Mind:
        registry, agent = turn.session.host.registry, turn.session.agent
        model = await registry.model(agent.model)
        system = agent.system
        if agent.memory:
            found = await recall(turn, turn.message.text, RECALLED, turn.started.seq)
            system = "\n".join([system, "You remember:", *found]).strip() if found else system
        return cls(turn, model, system, [registry.tool(name).spec for name in agent.tools])

    @property
    def messages(self) -> list[Message]:
        return self._turn.session.history.messages(self._system)

    async def ask(self, messages: list[Message], tools: list[ToolSpec], *, speak: bool) -> Answer:
        """Ask the model. With `speak` its text is shown as the answer while it comes."""
        return await self._ask(messages, tools, speak, "answer")

    async def summarise(self, text: str, notice: str) -> Answer:
        """Ask for a summary of a conversation, which is given as text; `notice` tells who waits why."""
        asked = [Message("system", self._system)] if self._system else []
        return await self._ask([*asked, Message("user", text)], [], False, "compact", notice)

    def _wording(self, messages: list[Message], tools: list[ToolSpec]) -> Ask:
        agent = self._turn.session.agent
        return Ask(
            messages,
            tools,
            model=agent.model.partition(":")[2],
            effort=agent.effort,
            longest=agent.limits.answer,
            session=self._turn.session.id,
        )

    async def _ask(
        self,
        messages: list[Message],
        tools: list[ToolSpec],
        speak: bool,
        purpose: Literal["answer", "compact"],
        notice: str = "",
    ) -> Answer:
        turn, host = self._turn, self._turn.session.host
        turn.pass_fence()
        name = turn.session.agent.model
        request = turn.emit(ModelRequested, cause=self.answered, model=name, messages=len(messages), purpose=purpose)
        heard, pace = Heard(turn, request, speak), Pace()
        if notice:
            heard.notice(notice)
        try:
            await host.journal.committed(request)
            turn.pass_fence()  # and in this very step it begins
            with Silence(host.loop, host.settings.silent, heard.notice, "the model") as silence:
                async with closing(self._model.answer(self._wording(messages, tools))) as chunks:
                    async for chunk in chunks:
                        silence.broken()
                        heard.take(chunk)
                        await pace.step()
            self._tell_of_cost(heard)
        except (FencedError, StoreError):
            raise
        except (Exception, SystemExit) as error:  # a boundary: whatever a model raises, its request gets an end
            ours = isinstance(error, QuellError) and bool(str(error))
            words = str(error) if ours else said(error)
            if not isinstance(error, QuellError):
                host.plugins.failed(host.registry.owner("model", provider(name)), f"model {name}", error)
            turn.emit(ModelFailed, request=request.seq, cause=request.seq, error=words)
            if isinstance(error, ContextFullError):
                raise ContextFault(words, size_of(messages, tools)) from error
            raise ModelFault(words if ours else f"the model failed: {words}") from error
        finally:
            turn.used(heard.usage)  # also what an answer has cost that never came
        host.plugins.succeeded(host.registry.owner("model", provider(name)))
        answer = Answer("".join(heard.text), heard.calls, heard.usage)
        self.answered = turn.emit(
            ModelAnswered,
            request=request.seq,
            cause=request.seq,
            source="model",
            text=answer.text,
            calls=answer.calls,
            usage=answer.usage,
            kept=heard.kept,
        ).seq
        return answer

    def _tell_of_cost(self, heard: Heard) -> None:
        """A limit that cannot act is told of, once a turn; also one of whoever asked for this sub-agent."""
        used = heard.usage
        if self._told or not used.input + used.output or used.cost or self._turn.usage.cost:
            return
        limited = next((one for one in self._turn.line() if one.session.agent.limits.cost), None)
        if limited is not None:
            self._told = True
            agent = limited.session.agent
            here = "" if limited is self._turn else f" of {agent.name} here"
            limit = f"the limit of ${agent.limits.cost:g}{here} has no effect"
            heard.notice(f"what this model costs is not known: {limit}")


class Heard:
    """What a model has said so far, shown as it comes."""

    def __init__(self, turn: Turn, request: ModelRequested, speak: bool) -> None:
        self.text: list[str] = []
        self.calls: list[ToolCall] = []
        self.usage = Usage()
        self.kept: dict[str, Any] = {}
        self._size = 0
        self._turn = turn
        self._request = request.seq
        self._speak = speak

    def take(self, chunk: object) -> None:
        match chunk:
            case Text():
                self.text.append(str(chunk.text))
                self._count(len(self.text[-1]))
                if self._speak:
                    answer = self._turn.started.seq
                    self._turn.emit(MessageDelta, request=answer, cause=self._request, source="model", text=chunk.text)
                else:
                    self._show(chunk.text, "text")
            case Reasoning():
                self._show(chunk.text, "reasoning")
            case Notice():
                self.notice(chunk.text)
            case Anew():
                self.text.clear()
                self.calls.clear()
                self.kept.clear()
                self._size = 0
                self._turn.emit(ModelRestarted, request=self._request, cause=self._request, reason=chunk.text)
            case Keep():
                self.kept[chunk.kind] = plain(chunk.data)
            case ToolCall():
                self.calls.append(tidy(chunk))
                self._count(len(msgspec.json.encode(plain(self.calls[-1].arguments))))
            case Usage():
                self.usage += chunk

    def _count(self, more: int) -> None:
        self._size += more
        if self._size > MOST or len(self.calls) > CALLS:
            most = f"{MOST} characters" if self._size > MOST else f"{CALLS} calls"
            raise ModelError(f"the answer has more than {most}: it is not read to its end")

    def notice(self, words: str) -> None:
        self._show(words, "notice")

    def _show(self, text: str, channel: str) -> None:
        self._turn.emit(ModelDelta, request=self._request, cause=self._request, channel=channel, text=text)


def tidy(call: Any) -> ToolCall:
    """As it should be: models write arguments that are no object, and forget the id."""
    arguments = call.arguments if isinstance(call.arguments, dict) else {"input": plain(call.arguments)}
    return ToolCall(str(call.id), str(call.tool), arguments)
