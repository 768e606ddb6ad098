"""Random logs that keep every rule: sessions that are spoken to, stopped, forked and killed in any order."""

from __future__ import annotations

import random

from quell.events import (
    ApprovalAsked,
    ApprovalWithdrawn,
    Event,
    MessageUser,
    ModelAnswered,
    ModelFailed,
    ModelRequested,
    QueueDiscarded,
    StopRequested,
    ToolCall,
    ToolRequested,
)

from .script import Chat, Script

MOST = 3
"""Sessions in one log."""


class Walker:
    """One session, and what is open in it."""

    def __init__(self, chat: Chat, dice: random.Random) -> None:
        self.chat = chat
        self._dice = dice
        self._waiting: list[MessageUser] = []
        self._parked: list[MessageUser] = []
        self._running = False
        self._model: ModelRequested | None = None
        self._tools: list[ToolRequested] = []
        self._begun: set[int] = set()
        self._asked: dict[int, ApprovalAsked] = {}
        self._stop: StopRequested | None = None
        self._calls = 0

    def step(self) -> None:
        often = [self.begin, self.ask, self.answer, self.tool, self.tool, self.end]
        seldom = [self.say, self.stop, self.settle, self.release, self.discard]
        self._dice.choice([*often, *often, *often, *seldom])()

    def say(self) -> None:
        self._waiting.append(self.chat.say(f"message {self._dice.random()}"))

    def begin(self) -> None:
        if self._waiting and not self._running and not self._stop:
            self.chat.begin(self._waiting.pop(0))
            self._running = True
            if self._dice.random() < 0.2:
                self.chat.compact("so far", self.chat.script.events[-1].seq - 1)

    def ask(self) -> None:
        if self._running and not (self._stop or self._model or self._tools):
            if self._dice.random() < 0.1:
                self.chat.compact("so far, in the middle of a turn", self.chat.script.events[-1].seq)
            self._model = self.chat.ask()

    def answer(self) -> None:
        if self._model is None:
            return
        calls = [self._call() for _ in range(self._dice.choice([0, 1, 1, 3]))]
        request, self._model = self._model.seq, None
        answered = self.chat.inside(ModelAnswered, request=request, cause=request, text="I see", calls=calls)
        for call in calls[: self._dice.choice([len(calls), len(calls), 1])]:
            self._tools.append(self.chat.want(call, cause=answered.seq))

    def _call(self) -> ToolCall:
        self._calls += 1
        return ToolCall(f"c{self._calls}", "shell", {"command": "true"})

    def tool(self) -> None:
        """The next step of one of the calls."""
        if not self._tools:
            return
        tool = self._dice.choice(self._tools)
        if self._stop:
            self._close(tool)
        elif tool.seq in self._begun:
            self.chat.output(tool, "some")
            if self._dice.random() < 0.5:
                self._close(tool)
        elif tool.seq in self._asked:
            allow = self._dice.random() < 0.7
            self.chat.approve(self._asked.pop(tool.seq), allow)
            step = self._start if allow else self._close
            step(tool)
        elif self._dice.random() < 0.3:
            self._asked[tool.seq] = self.chat.ask_approval(tool)
        else:
            self._start(tool)

    def _start(self, tool: ToolRequested) -> None:
        self.chat.start(tool)
        self._begun.add(tool.seq)

    def _close(self, tool: ToolRequested) -> None:
        self._tools.remove(tool)
        if (asked := self._asked.pop(tool.seq, None)) is not None:
            self.chat.inside(ApprovalWithdrawn, request=asked.seq, reason="stopped")
        if tool.seq in self._begun:
            self.chat.finish(tool, error=self._dice.choice(["", "failed"]))
        else:
            self.chat.refuse(tool)

    def end(self) -> None:
        if self._running and not (self._model or self._tools or self._stop):
            self.chat.done("I see")
            self.chat.end()
            self._running = False

    def stop(self) -> None:
        if not self._stop:
            number = self.chat.number if self._running else 0
            self._stop = self.chat.stop(self._dice.choice(["turn", "session"]), turn=number)

    def settle(self) -> None:
        """A stop gets its end."""
        if self._stop:
            self.break_off("stopped")
            self.chat.receipt(self._stop)
            self._stop = None

    def break_off(self, end: str) -> None:
        """What is open ends, the innermost first; what waits is parked."""
        for tool in reversed(self._tools[:]):
            self._close(tool)
        if self._model:
            self.chat.inside(ModelFailed, request=self._model.seq, error=end)
        if self._running:
            self.chat.end(end)
        self._model, self._running = None, False
        if self._waiting:
            self.chat.park(*self._waiting)
            self._parked += self._waiting
            self._waiting = []

    def crash(self) -> None:
        """As the next start writes it."""
        if self._stop:
            self.chat.receipt(self._stop, confirmed=False)
            self._stop = None
        self.break_off("interrupted")

    def release(self) -> None:
        if self._parked:
            self.chat.release(*self._parked)
            self._waiting += self._parked
            self._parked = []

    def discard(self) -> None:
        if self._parked and self._dice.random() < 0.3:
            gone = self._parked.pop()
            self.chat.emit(QueueDiscarded, messages=[gone.seq])


def wander(seed: int, steps: int = 200) -> list[Event]:
    """A log that keeps every rule, the same for the same seed."""
    dice = random.Random(seed)
    script = Script()
    script.ready()
    walkers = [Walker(script.open("s0"), dice)]
    for _ in range(steps):
        chance = dice.random()
        if chance < 0.02 and len(walkers) < MOST:
            name = f"s{len(walkers)}"
            chat = script.fork(name, "s0", script.events[-1].seq) if chance < 0.01 else script.open(name)
            walkers.append(Walker(chat, dice))
        elif chance > 0.99:
            for walker in walkers:
                walker.crash()
            script.skip(dice.randrange(5))
            script.ready()
        else:
            dice.choice(walkers).step()
    for walker in walkers:
        walker.stop()
        walker.settle()
    script.halt()
    return script.events
