"""`signal` and `socket` without the enums that their Python halves build: 6 ms at every start, 1 MB in every keeper."""

TYPE_CHECKING = False  # typing costs 5 ms at every start; checkers know this name
if TYPE_CHECKING:
    import signal as signal
    import socket as socket
else:
    import _signal as signal
    import _socket as socket

__all__ = ["signal", "socket"]
