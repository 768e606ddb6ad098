"""Where a provider is and with what key: checked before anything is sent, and never shown with a secret in it."""

from __future__ import annotations

import base64
import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit, urlunsplit

import msgspec

from ..config import Provider
from ..errors import ModelError

UNUSED = "no-key-needed"
"""What is sent where no key is wanted: the SDKs insist on one."""


class Kind(msgspec.Struct, frozen=True):
    """What the environment calls things, for one kind of provider."""

    name: str
    url: str
    url_variable: str
    key_variable: str
    token_variable: str = ""
    """An alternative to the key."""


OPENAI = Kind("OpenAI", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY")
ANTHROPIC = Kind(
    "Anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"
)
KINDS = {"openai": OPENAI, "anthropic": ANTHROPIC}


class Endpoint(msgspec.Struct, frozen=True):
    url: str
    """Without a password and a query."""
    own: bool
    """Whether it is the maker's own address, and not a compatible server."""
    key: str = ""
    token: str = ""
    query: dict[str, str] = {}
    """What the URL had behind a question mark, which may be a secret too."""
    basic: str = ""
    """A header, where the URL had a name and a password in it."""
    variable: str = ""
    """What the key is from."""

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def masked(self, text: str) -> str:
        """A text of the server's, which may repeat what it was sent."""
        for secret in (self.key, self.token, self.basic.removeprefix("Basic "), *self.query.values()):
            if len(secret) >= 4:  # a shorter one would be found in other words
                text = text.replace(secret, "***")
        return text


def endpoint_of(provider: Provider, environ: Mapping[str, str] = os.environ) -> Endpoint:
    """ModelError says what is missing or makes no sense, and what to do."""
    kind = KINDS[provider.kind]
    given, source = provider.base_url, f"base_url of the provider {provider.name}"
    if not given:
        given, source = environ.get(kind.url_variable, "").strip(), kind.url_variable
    parts = _checked(given or kind.url, source)
    own = _is_of(parts.hostname or "", urlsplit(kind.url).hostname or "")
    local = is_local(parts.hostname or "")
    basic = ""
    if parts.username is not None:
        name = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        basic = f"Basic {base64.b64encode(name.encode()).decode()}"
    key = token = ""
    variable = provider.key_env or kind.key_variable
    if provider.key_env or own or not provider.base_url:  # a key of the kind is nothing for somebody else's server
        key = environ.get(variable, "").strip()
        if not key and not provider.key_env and kind.token_variable:
            token = environ.get(kind.token_variable, "").strip()
    if not key and not token and not basic and (provider.key_env or not (local or parts.query)):
        raise ModelError(_missing(kind, provider, variable, own, parts.hostname or ""))
    for secret in (key, token):
        if not (secret.isascii() and secret.isprintable()) or " " in secret:
            raise ModelError(f"what {variable} holds is no key: there are characters in it that no key has")
    url = urlunsplit((parts.scheme, _place(parts), parts.path.rstrip("/"), "", ""))
    variable = variable if key else kind.token_variable if token else ""
    return Endpoint(url, own, key, token, dict(parse_qsl(parts.query)), basic, variable)


def is_local(host: str) -> bool:
    """Whether it is this machine, or one of this house."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".localhost", ".local", ".internal"))
    return address.is_private or address.is_loopback or address.is_link_local or address.is_unspecified


def bare(url: str) -> str:
    """Fit to be shown: without a name, a password and a query."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, _place(parts), parts.path, "", ""))
    except ValueError:
        return "***" if "@" in url else url


def _checked(url: str, source: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  it is looked at here, where what is wrong with it can be said
    except ValueError as error:
        raise ModelError(f"{source} is no address: {bare(url)} ({error})") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or any(one.isspace() for one in url):
        raise ModelError(f"{source} is no address of a web server: {bare(url)!r}; it begins with http:// or https://")
    return parts


def _place(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _is_of(host: str, own: str) -> bool:
    """Regions have names of their own: `eu.api.openai.com`."""
    return host == own or host.endswith(f".{own}")


def _missing(kind: Kind, provider: Provider, variable: str, own: bool, host: str) -> str:
    if own and not provider.key_env:
        return f"{kind.name} needs a key: set {variable} to yours, and start again"
    if provider.base_url and not provider.key_env:
        return f"{host} needs a key: name the variable that holds it as key_env of the provider {provider.name}"
    return f"{kind.name if own else host} needs a key, and {variable} is not set: set it and start again"
