"""The line of `quell chat`: one for all of a conversation, with the keys that people know.

Between two messages the terminal is not given back, so nothing that is typed is lost or shown twice.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.application import Application, run_in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.formatted_text import AnyFormattedText
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.styles import Style

from .keyboard import Keyboard


class Line:
    """`over` is what stands over it, `toolbar` what is below. `interrupted` is for Ctrl+C, where that is a key."""

    def __init__(
        self,
        *,
        over: Callable[[], AnyFormattedText],
        toolbar: Callable[[], str],
        interrupted: Callable[[], None],
        history: History,
        offer: Callable[[str], list[str]],
        colour: bool,
    ) -> None:
        self.keyboard = Keyboard()
        self.entered: asyncio.Queue[tuple[str, float]] = asyncio.Queue()
        """What was sent off, and when it was begun."""
        self.leaving = False
        self._begun = 0.0
        self._suspended = False  # by ourselves: then what draws the line again is under way
        self._prompt: PromptSession[str] = PromptSession(
            over,
            multiline=True,
            prompt_continuation=lambda width, number, wraps: " " * width,
            completer=Offered(offer),
            complete_while_typing=False,
            history=history,
            bottom_toolbar=toolbar,
            key_bindings=self._bindings(interrupted),
            erase_when_done=True,  # what was typed is shown above, once
            style=Style.from_dict({"bottom-toolbar": "noreverse ansibrightblack" if colour else "noreverse"}),
            input=self.keyboard,
        )
        self._prompt.default_buffer.on_text_changed += lambda buffer: self._typing(buffer.text)

    @property
    def app(self) -> Application[str]:
        return self._prompt.app

    @property
    def there(self) -> bool:
        return self.app.is_running and not self.app.is_done

    async def read(self) -> None:
        """Until it is left: Ctrl+D, `leave`, or a terminal that is gone."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        loop.add_signal_handler(signal.SIGCONT, self._continued)
        try:
            if not self.leaving:
                await self._prompt.prompt_async(set_exception_handler=False, handle_sigint=False)
        except EOFError:
            return
        finally:
            self.leaving = True
            loop.remove_signal_handler(signal.SIGTSTP)
            loop.remove_signal_handler(signal.SIGCONT)

    def leave(self) -> None:
        """May be asked at any time, and twice."""
        self.leaving = True
        if self.there:
            self.app.exit(exception=EOFError())

    def clear(self) -> bool:
        """Whether there was a search to end, or else anything to take off the line."""
        layout, buffer = self.app.layout, self._prompt.default_buffer
        if layout.is_searching:
            layout.search_links.clear()
            layout.focus(DEFAULT_BUFFER)
        elif buffer.text:
            buffer.reset()
        else:
            return False
        self.app.invalidate()
        return True

    # -- keys

    def _bindings(self, interrupted: Callable[[], None]) -> KeyBindings:
        """Enter sends, Alt+Enter begins a new line, Ctrl+Z suspends; the rest is as in any shell."""
        keys = KeyBindings()
        here = has_focus(DEFAULT_BUFFER)

        @keys.add("enter", filter=here)
        @keys.add("c-j", filter=here)  # what Enter is where it was typed before there was a line
        def _(event: KeyPressEvent) -> None:
            self._enter()

        @keys.add("escape", "enter", filter=here)
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")  # where the terminal was told that another key interrupts
        def _(event: KeyPressEvent) -> None:
            interrupted()

        @keys.add("c-z")
        def _(event: KeyPressEvent) -> None:
            self._suspend()

        return keys

    def _enter(self) -> None:
        buffer, begun = self._prompt.default_buffer, self._begun
        buffer.text = text = buffer.text.encode(errors="replace").decode()  # a paste may hold bytes that are no text
        if text.strip():
            buffer.append_to_history()
            self.entered.put_nowait((text, begun))
        buffer.reset()
        self._begun = 0.0

    def _typing(self, text: str) -> None:
        if not text:
            self._begun = 0.0
        elif not self._begun:
            self._begun = time.monotonic()

    # -- suspend and resume

    def _suspend(self) -> None:
        """Ctrl+Z, or the signal itself."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            loop.remove_signal_handler(signal.SIGTSTP)
            self._suspended = True
            self.keyboard.suspend()
            loop.add_signal_handler(signal.SIGTSTP, self._suspend)

        run_in_terminal(stop)

    def _continued(self) -> None:
        """Whoever stopped us, a shell may have changed the terminal since."""
        suspended, self._suspended = self._suspended, False
        if self.there:
            self.keyboard.take_again()
        if self.there and not suspended:
            self.app.renderer.reset()
            self.app.renderer.request_absolute_cursor_position()
            self.app.invalidate()


class Offered(Completer):
    """Completion of the last word before the cursor."""

    def __init__(self, offer: Callable[[str], list[str]]) -> None:
        self._offer = offer

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        before = document.text_before_cursor
        last = len(before.rpartition(" ")[2])
        return [Completion(one, start_position=-last) for one in self._offer(before)]
