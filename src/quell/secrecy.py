"""Which variables of an environment hold secrets: told by their names, as nobody lists them, and addresses by parts."""

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
_OF_QUERIES = re.compile(r"(^|_)(KEY|SIG|SIGNATURE|AUTH|CODE)$")
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
    """The secrets of an environment, and those in its addresses: `DATABASE_URL` has a password, say."""
    found = [value.strip() for name, value in environ.items() if is_secret(name, value)]
    return (*found, *(one for value in environ.values() if "://" in value for one in secrets_of(value)))


def secrets_of(url: str) -> tuple[str, ...]:
    """What is secret in an address: its password, also as a header has it, and what its query names a key or token."""
    from base64 import b64encode
    from urllib.parse import parse_qsl, unquote, urlsplit

    try:
        parts = urlsplit(url.strip())
        name, password = unquote(parts.username or ""), unquote(parts.password or "")
    except ValueError:
        return ()
    found = [value for key, value in parse_qsl(parts.query) if _is_key(key)]
    if can_be_secret(password):
        found += [password, parts.password or "", b64encode(f"{name}:{password}".encode()).decode()]
    return tuple(dict.fromkeys(one for one in found if can_be_secret(one)))


def _is_key(name: str) -> bool:
    """Of a query: `key`, `api-token`, `X-Amz-Signature`; not `api-version`."""
    upper = name.upper().replace("-", "_")
    return _SECRET.search(upper) is not None or _OF_QUERIES.search(upper) is not None
