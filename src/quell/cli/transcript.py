"""Events as lines that a person reads: when, who, what was said; calls with their output, ends, receipts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from .receipts import verdict
from .screen import Line, exact

Event = dict[str, Any]

_WHO = 9  # characters, so that what is said begins below each other
_STYLES = {"user": "bold", "answer": "green", "tool": "cyan", "stop": "yellow", "approval": "yellow", "fault": "red"}


class Transcript:
    """`speech`: whether what the model says is among the lines; who streams it shows it otherwise."""

    def __init__(self, *, sessions: bool = False, speech: bool = True) -> None:
        self._sessions = sessions
        self._speech = speech
        self._output: dict[int, str] = {}  # what each call has shown; of that, the lines that are complete are told
        self._today = time.strftime("%x")

    def lines(self, event: Event) -> list[Line]:
        """None for what only programs want to know."""
        kind = str(event.get("kind"))
        if (tell := _TELL.get(kind)) is not None:
            return tell(self, event)
        if kind.startswith("x."):
            return self._said(event, kind.split(".")[1], f"{kind} {_json(event.get('data'))}")
        return []

    def _said(self, event: Event, who: str, text: str, style: str = "") -> list[Line]:
        moment = time.localtime(event.get("at", 0.0))
        today = time.strftime("%x", moment) == self._today
        when = time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S", moment)
        where = f"{event.get('session', ''):10} " if self._sessions else ""
        first, *more = text.rstrip("\n").split("\n")
        margin = " " * (len(when) + 1 + len(where) + _WHO + 1)
        paint = style or _STYLES.get(who, "")
        line: Line = [("dim", f"{when} "), ("dim", where), (paint, f"{who:{_WHO}} "), (style, first)]
        return [line, *([("", margin), (style, one)] for one in more)]

    # -- what each kind says

    def _user(self, event: Event) -> list[Line]:
        pictures = [f"[{one.get('media', 'a picture')}]" for one in event.get("images", [])]
        return self._said(event, "user", "\n".join([event.get("text", ""), *pictures]))

    def _answer(self, event: Event) -> list[Line]:
        return self._said(event, "answer", event.get("text", "")) if self._speech else []

    def _step(self, event: Event) -> list[Line]:
        """What it says before it calls tools: the last answer is told by `message.done`."""
        if self._speech and event.get("calls") and event.get("text", "").strip():
            return self._said(event, "answer", event["text"])
        return []

    def _call(self, event: Event) -> list[Line]:
        return self._said(event, "tool", f"{event.get('tool', '')} {_json(event.get('arguments', {}))}")

    def _showing(self, event: Event) -> list[Line]:
        if event.get("channel") == "notice":
            return self._said(event, "notice", event.get("text", ""), "dim")
        request, text = event.get("request", 0), event.get("text", "")
        before = self._output.get(request, "")
        self._output[request] = before + text
        *whole, _ = (before[before.rfind("\n") + 1 :] + text).split("\n")
        return [line for one in whole for line in self._said(event, "  output", one)]

    def _called(self, event: Event) -> list[Line]:
        """What was not shown while it came: a line without an end, what the result adds to the output, the error."""
        shown, result = self._output.pop(event.get("request", 0), ""), event.get("result", "")
        lines = self._said(event, "  output", left) if (left := shown[shown.rfind("\n") + 1 :]) else []
        if event.get("error"):
            return lines + self._said(event, "fault", event["error"], "red")
        added = result[len(shown) :].strip("\n") if result.startswith(shown) else ""
        return lines + (self._said(event, "  result", added) if added else [])

    def _ended(self, event: Event) -> list[Line]:
        self._output.clear()
        end, reason = event.get("end", ""), event.get("reason", "")
        words = f"turn {event.get('turn', 0)} {end}{f': {reason}' if reason else ''}"
        return self._said(event, "end", words, "" if end == "completed" else "yellow" if end == "stopped" else "red")

    def _asked(self, event: Event) -> list[Line]:
        question = f"{event.get('seq')} asks for leave to run {event.get('tool', '')} "
        return self._said(event, "approval", question + json.dumps(event.get("arguments", {}), indent=2))

    def _decided(self, event: Event) -> list[Line]:
        how = {"session": " in this session", "always": " always"}.get(event.get("extent", ""), "")
        return self._said(
            event, "approval", f"{event['request']} {f'allowed{how}' if event.get('allow') else 'denied'}{_why(event)}"
        )

    def _receipt(self, event: Event) -> list[Line]:
        confirmed = bool(event.get("confirmed"))
        words = f"receipt {event.get('seq')}: {verdict(event.get('receipt', {}), confirmed)}"
        return self._said(event, "stop", words, "green" if confirmed else "alarm")

    def _notice(self, event: Event) -> list[Line]:
        return self._said(event, "notice", event.get("text", ""), "dim") if event.get("channel") == "notice" else []


def _json(value: Any) -> str:
    return exact(json.dumps(value, ensure_ascii=False))


def _tells(who: str, words: Callable[[Event], str], style: str = "") -> Callable[[Transcript, Event], list[Line]]:
    return lambda transcript, event: transcript._said(event, who, words(event), style)


def _why(event: Event) -> str:
    return f": {event['reason']}" if event.get("reason") else ""


def _numbers(event: Event) -> str:
    return ", ".join(map(str, event.get("messages", []))) or "nothing"


_TELL: dict[str, Callable[[Transcript, Event], list[Line]]] = {
    "message.user": Transcript._user,
    "message.done": Transcript._answer,
    "model.answered": Transcript._step,
    "model.delta": Transcript._notice,
    "model.restarted": _tells("notice", lambda event: event.get("reason", ""), "dim"),
    "model.failed": _tells("fault", lambda event: event.get("error", ""), "red"),
    "tool.requested": Transcript._call,
    "tool.output": Transcript._showing,
    "tool.ended": Transcript._called,
    "tool.refused": _tells("fault", lambda event: f"refused{_why(event)}", "red"),
    "turn.ended": Transcript._ended,
    "approval.asked": Transcript._asked,
    "approval.answered": Transcript._decided,
    "approval.withdrawn": _tells("approval", lambda event: f"{event['request']} withdrawn{_why(event)}"),
    "stop.requested": _tells(
        "stop",
        lambda event: (
            f"{'stop by force' if event.get('force') else 'stop'} of the {event.get('reach', 'turn')}{_why(event)}"
        ),
    ),
    "stop.receipt": Transcript._receipt,
    "process.spawned": _tells("process", lambda event: f"{event.get('pid')} {' '.join(event.get('argv', []))}", "dim"),
    "process.ended": _tells("process", lambda event: f"{event.get('pid')} ended: {event.get('end', '')}", "dim"),
    "session.opened": _tells(
        "session",
        lambda event: (
            f"opened with {event.get('agent', '')} in {event.get('cwd', '')} {event.get('title', '')}".strip()
        ),
    ),
    "session.renamed": _tells("session", lambda event: f"is now called {event.get('title', '')}"),
    "session.configured": _tells(
        "session", lambda event: f"from here on {' with '.join(filter(None, (event.get('agent'), event.get('model'))))}"
    ),
    "session.forked": _tells("session", lambda event: f"forked from {event.get('origin')} at {event.get('upto')}"),
    "session.compacted": _tells("session", lambda event: f"compacted up to {event.get('upto')}", "dim"),
    "session.closed": _tells("session", lambda event: f"closed{_why(event)}"),
    "session.deleted": _tells("session", lambda event: f"deleted, with {event.get('events', 0)} events"),
    "queue.parked": _tells("queue", lambda event: f"parked {_numbers(event)}{_why(event)}", "yellow"),
    "queue.released": _tells("queue", lambda event: f"released {_numbers(event)}"),
    "queue.discarded": _tells("queue", lambda event: f"discarded {_numbers(event)}{_why(event)}"),
    "admission.closed": _tells("quell", lambda event: f"admission is closed{_why(event)}", "yellow"),
    "admission.reopened": _tells("quell", lambda event: "admission is open again"),
    "runtime.ready": _tells("quell", lambda event: f"{event.get('version', '')} is ready", "dim"),
    "runtime.stopping": _tells("quell", lambda event: f"stops{_why(event)}", "dim"),
    "runtime.stopped": _tells(
        "quell", lambda event: f"has stopped{'' if event.get('confirmed', True) else ', unconfirmed'}", "dim"
    ),
    "runtime.error": _tells("fault", lambda event: f"{event.get('where', '')}: {event.get('error', '')}", "red"),
    "subscriber.cut": _tells("quell", lambda event: f"cut {event.get('subscriber', '')} off{_why(event)}", "dim"),
    "config.changed": _tells("quell", lambda event: f"settings changed: {_json(event.get('changed', {}))}"),
    "plugin.error": _tells(
        "fault", lambda event: f"{event.get('plugin')}, {event.get('call')}: {event.get('error')}", "red"
    ),
    "plugin.removed": _tells("quell", lambda event: f"plugin {event.get('plugin', '')} removed{_why(event)}"),
    "harness.ended": _tells("quell", lambda event: f"the harness has ended{_why(event)}"),
    "memory.stored": _tells("memory", lambda event: event.get("text", ""), "dim"),
}
