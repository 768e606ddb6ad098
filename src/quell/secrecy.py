"""Which variables of an environment hold secrets: told by their names, as nobody lists them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

LEAST = 8
"""Characters of a secret. A shorter one would be found in other words."""

_SECRET = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY|(^|_)PASS($|_)|_PWD$|_PAT$"
)
_NOT_ITSELF = re.compile(r"_(FILE|PATH|DIR|SOCK|SOCKET|URL|URI|ENDPOINT|HOST|PORT|NAME|USER|TYPE|CMD|COMMAND)$")
_NO_SECRETS = frozenset("changeme disabled localhost password passw0rd postgres required scripted undefined".split())


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret, by its name: `GITHUB_TOKEN` does, `SSH_AUTH_SOCK` and `GPG_KEY` do not.

    Nor does one that says where a secret is (`…_FILE`, `…_URL`, a path that is there), a short one, a number of
    tokens, or a word that is everybody's: masking `postgres` would protect nothing and spoil every text with it.
    """
    upper, value = name.upper(), value.strip()
    if _SECRET.search(upper) is None or _NOT_ITSELF.search(upper) is not None:
        return False
    if "TOKENS" in upper and value.isdigit():
        return False
    return can_be_secret(value) and not (value.startswith("/") and os.path.exists(value))


def can_be_secret(value: str) -> bool:
    """Not a short one, nor a word that is everybody's."""
    return len(value.strip()) >= LEAST and value.strip().lower() not in _NO_SECRETS


def secrets_in(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets of an environment."""
    return tuple(value.strip() for name, value in environ.items() if is_secret(name, value))
