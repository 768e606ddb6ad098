"""The terminal of a conversation, as a keyboard: each key is ours as it is pressed, but Ctrl+C stays a signal.

So it is heard even when the event loop is blocked. The terminal can be given back at any moment, from any thread.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
from contextlib import AbstractContextManager

from prompt_toolkit.input.vt100 import Vt100Input, raw_mode


class Keyboard(Vt100Input):
    """The terminal that we have. `give_back` makes it at once what it was when this was made."""

    def __init__(self) -> None:
        super().__init__(sys.stdin)
        self._found = termios.tcgetattr(self.fileno())

    def raw_mode(self) -> AbstractContextManager[None]:
        return _keys_but_ctrl_c(self.fileno())

    def give_back(self) -> None:
        """From any thread. What was asked of the terminal itself, such as to mark what is pasted, is taken back too."""
        try:
            os.write(1, b"\x1b[?2004l\x1b[0m\x1b[?25h\r\n\x1b[J")
            termios.tcsetattr(self.fileno(), termios.TCSANOW, self._found)
            termios.tcflush(self.fileno(), termios.TCIFLUSH)  # what the terminal answered us is not for the shell
        except (OSError, termios.error):
            return  # hung up

    def suspend(self) -> None:
        """As Ctrl+Z does it: the shell gets the terminal as it was. A signal may not be handled meanwhile."""
        termios.tcsetattr(self.fileno(), termios.TCSANOW, self._found)
        os.kill(0, signal.SIGTSTP)

    def take_again(self) -> None:
        """After a shell had it."""
        _keys_but_ctrl_c(self.fileno()).__enter__()


class _keys_but_ctrl_c(raw_mode):
    """Each key is ours as it is pressed, but for the one that interrupts."""

    def __enter__(self) -> None:
        super().__enter__()
        try:
            modes = termios.tcgetattr(self.fileno)
            modes[3] |= termios.ISIG | termios.NOFLSH  # what was typed ahead stays
            for key in (termios.VSUSP, termios.VQUIT):
                modes[6][key] = bytes([os.fpathconf(self.fileno, "PC_VDISABLE")])
            termios.tcsetattr(self.fileno, termios.TCSANOW, modes)
        except (OSError, termios.error):
            return  # hung up: that is seen when it is read
