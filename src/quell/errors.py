"""Every exception that Quell raises on purpose.

QuellError
├── UsageError          what was asked for makes no sense; the sentence says what to do
├── ContainmentError    this machine does not give the rung that was asked for
├── SpawnError          the command could not be started; `code` is the exit code that a shell would give
├── BoxLostError        the zygote or keeper behind a box is gone; `receipt` says what became of its processes
├── ScopeStoppedError   the scope is stopping or stopped: nothing starts in it any more
├── OwnershipError      tasks of this event loop can no longer be owned, because something replaced what does it
├── StateInUseError     another supervisor owns the state directory
├── NoSupervisorError   no supervisor listens where a stop was asked for
├── AdmissionClosedError  nothing new starts until admission is reopened
├── BusClosedError      the bus is closed: nobody would hear it
├── FencedError         the turn was stopped: none of its effects may start any more
├── NoSessionError      there is no such session, or it is closed
├── NotAnsweredError    the message was parked by a stop, or discarded
├── PluginRefusedError  the plugin cannot be loaded, removed or named so
├── StoreError          the log cannot be opened or written; the sentence says why, and the file is left as it is
│   └── LogUnreadableError  the log is damaged, another program's, or of a newer quell
├── ModelError          raised by models: what went wrong, told to the person
│   └── ContextFullError  the conversation is longer than the model can read
└── ToolError           raised by tools: what went wrong, told to the model
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .supervise.receipt import Receipt


class QuellError(Exception):
    """The root: catching it catches all of ours and nothing else."""


class UsageError(QuellError):
    """Raised before anything is started."""


class ContainmentError(QuellError):
    """Raised when a box cannot be made; nothing was started."""


class SpawnError(QuellError):
    """Raised when a command does not start, or not in time. Nothing of it is left."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class BoxLostError(QuellError):
    """Raised by calls on a box whose keeper is gone."""

    def __init__(self, sentence: str, receipt: Receipt | None = None) -> None:
        super().__init__(sentence)
        self.receipt = receipt


class ScopeStoppedError(QuellError):
    """Raised by whatever would start something in a scope that is stopping or stopped."""


class OwnershipError(QuellError):
    """Raised when the event loop does not hand its tasks to the scope that they are made in."""


class StateInUseError(QuellError):
    """Raised by the second supervisor on one state directory."""


class NoSupervisorError(QuellError):
    """Raised when a stop is asked for and nobody is there to hear it."""


class AdmissionClosedError(QuellError):
    """Raised by whatever would open a session or start a turn while admission is closed."""


class BusClosedError(QuellError):
    """Raised by `publish` and `subscribe` once the bus is closed."""


class FencedError(QuellError):
    """Raised where an effect of a stopped turn would start. Nothing was started."""


class NoSessionError(QuellError):
    """Raised by calls that name a session which is not there, or on one that is closed."""


class NotAnsweredError(QuellError):
    """Raised by `await session.send(…)` when there will be no answer now. A parked message can be released."""


class PluginRefusedError(QuellError):
    """Raised when a plugin cannot be loaded, or must not be removed."""


class StoreError(QuellError):
    """Raised when events cannot be kept. What was acknowledged before is on disk."""


class LogUnreadableError(StoreError):
    """Raised when a log is there and cannot be understood. The same folder will not do until it is moved away."""


class ModelError(QuellError):
    """Raised by a model to say what went wrong. It does not count against the plugin."""


class ContextFullError(ModelError):
    """Raised by a model that was asked more than it can read. The history is made shorter, and it is asked again."""


class ToolError(QuellError):
    """Raised by a tool to tell the model what went wrong. It does not count against the plugin."""
