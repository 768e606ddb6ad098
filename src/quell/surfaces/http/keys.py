"""What lets somebody in: the token, the cookie that stands for it in a browser, and codes that buy the cookie once.

Whatever is handed in is compared in constant time, and a code is good for one use, from whichever thread.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Callable

from ...errors import UsageError

CODE_LIFE = 600.0
"""Seconds in which a launch code can be used: time to walk to the browser, not to find it in a log tomorrow."""
OPEN_CODES = 20
"""Codes that wait to be used. One more drops the oldest, so that asking for them costs no memory."""
_TOKEN = re.compile(r"[0-9a-f]{64}")
_LONGEST = 1024  # characters of a token file that are looked at


class Keys:
    """`cookie` is made from the token: it outlives a restart, and tells nothing of what it was made from."""

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.token = token
        self.cookie = _made_from(token, "cookie")
        # Cookies know no ports: servers beside each other would overwrite each other's.
        self.cookie_name = f"quell-{_made_from(token, 'name')[:8]}"
        self._clock = clock
        self._codes: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, state_dir: str) -> Keys:
        """Those of a state directory. The token is made if there is none, and refused if others may read it."""
        path = os.path.join(state_dir, "token")
        try:
            os.makedirs(state_dir, mode=0o700, exist_ok=True)
            if not os.path.lexists(path):
                _make(path)
            return cls(_read(path))
        except OSError as error:
            raise UsageError(f"the token file {path} cannot be used: {error.strerror}") from None

    def __repr__(self) -> str:
        return f"<Keys {self.cookie_name}>"

    def accepts(self, bearer: str) -> bool:
        return _same(bearer, self.token)

    def accepts_cookie(self, value: str) -> bool:
        return _same(value, self.cookie)

    def new_code(self) -> str:
        code = secrets.token_urlsafe(32)
        with self._lock:
            self._codes = [*self._open(), (self._clock() + CODE_LIFE, code)][-OPEN_CODES:]
        return code

    def use_code(self, code: str) -> bool:
        """Whether it was good. From now on it is not."""
        with self._lock:
            opened = self._open()
            alike = [_same(code, each) for _, each in opened]  # all of them: the time tells nothing
            self._codes = [each for each, used in zip(opened, alike, strict=True) if not used]
        return any(alike)

    def _open(self) -> list[tuple[float, str]]:
        now = self._clock()
        return [(until, code) for until, code in self._codes if now < until]


def _made_from(token: str, what: str) -> str:
    return hmac.new(token.encode(), f"quell {what}".encode(), hashlib.sha256).hexdigest()


def _same(given: str, kept: str) -> bool:
    # As bytes: compare_digest raises on a str that is not ASCII, and anybody can send one.
    return hmac.compare_digest(given.encode(errors="surrogatepass"), kept.encode())


def _make(path: str) -> None:
    """All of it or nothing, also after a crash; and if somebody else was first, theirs stays."""
    fresh = f"{path}.{os.getpid()}-{secrets.token_hex(6)}"
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            os.fchmod(fd, 0o600)  # whatever the umask took
            os.write(fd, f"{secrets.token_hex(32)}\n".encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.link(fresh, path)
    except FileExistsError:
        return
    finally:
        os.unlink(fresh)


def _read(path: str) -> str:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise UsageError(f"the token file {path} is no plain file; delete it, and a new one is made")
        if found.st_uid != os.geteuid():
            raise UsageError(f"the token file {path} belongs to another user (uid {found.st_uid}); delete it")
        if found.st_mode & 0o077:
            said = f"others may read the token file {path} (mode {stat.S_IMODE(found.st_mode):04o})"
            raise UsageError(f"{said}: delete it, and a new one is made; who has read it may stop and start everything")
        text = os.read(fd, _LONGEST).decode("ascii", "replace").strip()
    finally:
        os.close(fd)
    if _TOKEN.fullmatch(text) is None:
        raise UsageError(f"the token file {path} holds no token of 64 hex digits; delete it, and a new one is made")
    return text
