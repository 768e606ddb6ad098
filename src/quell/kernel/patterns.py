"""Patterns for the arguments of tools. `fits` is sure of it: what could be anything else does not fit, so it may allow.

`may_fit` is the other way round, for what denies or asks: it looks past quotes, case, links and compound commands, and
says None of what cannot be told. Both take time in proportion to the text, whatever a model puts into it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import unquote, urlsplit

from ..config import STAR

Kind = Literal["text", "command", "path", "url"]
LONGEST: dict[Kind, int] = {"text": 1_000_000, "command": 100_000, "path": 4096, "url": 10_000}
"""Characters: what is longer is for a person to look at."""
GLOBS = 100
"""Words that the shell would replace by names of files, and characters of one, that are looked at."""

_PLAIN = re.compile(r"[\w ./:=,+@%^~*?\[\]'\"-]*")
"""What can neither begin another command, nor redirect, nor be expanded into either. No comment, no backslash."""
_ASSIGNMENTS = re.compile(r"(?:\w+\+?=\S* +)*")
_SIGNS = re.compile(r"[\s;&|<>()`$\{},'\"\\=!]+")
_WORDS = re.compile(r"[\s;&|<>()`{},'\"/]+")
_EXPANDS = re.compile(r"[$`\\]")


def kind_of(argument: str) -> Kind:
    """How the patterns of an argument are read, by its name."""
    match argument:
        case "command" | "cmd" | "script":
            return "command"
        case "path" | "file" | "file_path" | "filename" | "folder" | "directory":
            return "path"
        case "url" | "uri":
            return "url"
    return "text"


def fits(kind: Kind, pattern: str, text: str, cwd: str) -> bool:
    """Whether it is certain."""
    if len(text) > LONGEST[kind] or STAR in text:
        return False
    match kind:
        case "command":
            return _is_command(pattern, text)
        case "path":
            return _is_path(pattern, text, cwd)
        case "url":
            return _is_url(pattern, text)
    return like(pattern, text)


def may_fit(kind: Kind, pattern: str, text: str, cwd: str) -> bool | None:
    """Whether it is possible; None: nobody can tell."""
    if len(text) > LONGEST[kind] or STAR in text:
        return None
    match kind:
        case "command":
            return _may_run(pattern, text)
        case "path":
            return any(_is_at(one, spot) for one in _places(pattern, cwd) for spot in _spots(text, cwd))
        case "url":
            return any(like(_folded(pattern), one) for one in _addresses(text)) or (False if text.isascii() else None)
    return like(_folded(pattern).strip(), _folded(text).strip())


def like(pattern: str, text: str) -> bool:
    """All of it; a wildcard is any text. Each piece is looked for once, behind the one before it."""
    first, *rest = pattern.split(STAR)
    if not rest:
        return text == first
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


# -- commands


def _is_command(pattern: str, command: str) -> bool:
    """A wildcard stands for words of one plain command, and never for a part of that command's name."""
    first, star, rest = pattern.partition(STAR)
    if not star:
        return command == pattern
    if _PLAIN.fullmatch(command) is None or not like(pattern, command):
        return False
    if rest.strip(STAR) and ("'" in command or '"' in command):
        return False  # what follows the wildcard could be a word that only looks like what is meant
    named = first[_end_of_assignments(first) :]
    if not named or " " in named:
        return True
    return command[len(first) :][:1] in ("", " ")


def _end_of_assignments(command: str) -> int:
    found = _ASSIGNMENTS.match(command)
    return found.end() if found is not None else 0


def _may_run(pattern: str, command: str) -> bool | None:
    """In any part of it, behind any other word, also under quotes; None where the shell makes words of its own."""
    wanted, plain = _squeezed(pattern), re.sub(r"['\"\\]", "", command)
    for text in (command, plain, plain.replace("${IFS}", " ").replace("$IFS", " "), _SIGNS.sub(" ", command)):
        if _is_in(wanted, _squeezed(text) + " "):
            return True
    program = wanted.partition(STAR)[0].partition(" ")[0].rpartition("/")[2]
    globs = [one for one in _WORDS.split(_folded(command)) if any(sign in one for sign in "*?[")]
    unclear = len(globs) > GLOBS or any(len(one) > GLOBS or fnmatchcase(program, one) for one in globs)
    return None if unclear or _EXPANDS.search(command) is not None else False


def _is_in(pattern: str, text: str) -> bool:
    """Somewhere in it, from the beginning of a word to the end of one."""
    first, *rest = pattern.split(STAR)
    if not rest:
        return any(_is_edge(text, at + len(first)) for at in _at_words(first, text))
    at = next(_at_words(first, text), -1) if first else 0
    if at < 0:
        return False
    at += len(first)
    *middle, last = rest
    for piece in middle:
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return not last or any(_is_edge(text, one + len(last)) for one in _all_of(last, text, at))


def _at_words(piece: str, text: str) -> Iterator[int]:
    return (at for at in _all_of(piece, text, 0) if at == 0 or _is_edge(text, at - 1))


def _all_of(piece: str, text: str, at: int) -> Iterator[int]:
    while (at := text.find(piece, at)) >= 0:
        yield at
        at += 1


def _is_edge(text: str, at: int) -> bool:
    return at >= len(text) or not (text[at].isalnum() or text[at] in "_-.")


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _squeezed(text: str) -> str:
    return " ".join(_folded(text).split())


# -- paths


def _is_path(pattern: str, path: str, cwd: str) -> bool:
    """As it is written, and as the disk has it: a link that leads elsewhere does not fit."""
    if path.startswith("~") or not path.strip() or not os.path.isabs(cwd):
        return False
    real = os.path.realpath(cwd)
    there = os.path.realpath(os.path.join(cwd, path))
    return _is_at(_steps(pattern, cwd), _steps(path, cwd)) and _is_at(_steps(pattern, real), _steps(there, real))


def is_inside(path: str, cwd: str) -> bool:
    """In the working directory, or that itself; as it is written, and as the disk has it."""
    return fits("path", STAR * 2, path, cwd)


def may_hold(pattern: str, folder: str, cwd: str) -> bool:
    """Whether something that fits could be below a folder."""
    if len(folder) > LONGEST["path"] or STAR in folder:
        return True
    return any(_leads_to(one, spot) for one in _places(pattern, cwd) for spot in _spots(folder, cwd))


def _leads_to(pattern: tuple[str, ...], folder: tuple[str, ...]) -> bool:
    for wanted, step in zip(pattern, folder, strict=False):
        if wanted == STAR * 2:
            return True
        if not like(wanted, step):
            return False
    return len(pattern) >= len(folder)


def _steps(path: str, cwd: str) -> tuple[str, ...]:
    """From the root, without dots. A wildcard is a step like any other."""
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser("~") + path[1:]
    found: list[str] = []
    for step in os.path.join(cwd, path).split("/"):
        if step == "..":
            del found[-1:]
        elif step not in ("", "."):
            found.append(step)
    return tuple(found)


def _is_at(pattern: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Step by step; `**` is any number of them. After a failure only the last `**` takes one more."""
    here = there = 0
    deep, taken = -1, 0
    while there < len(path):
        if here < len(pattern) and pattern[here] == STAR * 2:
            deep, taken = here, there
            here += 1
        elif here < len(pattern) and like(pattern[here], path[there]):
            here, there = here + 1, there + 1
        elif deep >= 0:
            taken += 1
            here, there = deep + 1, taken
        else:
            return False
    return all(step == STAR * 2 for step in pattern[here:])


def _places(pattern: str, cwd: str) -> set[tuple[str, ...]]:
    """Where a pattern may point to: as it is written, and with the links in its beginning followed."""
    found = {_steps(_folded(pattern), _folded(one)) for one in (cwd, os.path.realpath(cwd))}
    steps = _steps(pattern, cwd)
    fixed = next((at for at, step in enumerate(steps) if STAR in step), len(steps))
    start = os.path.realpath("/" + "/".join(steps[:fixed]))
    return {*found, (*_steps(_folded(start), "/"), *(_folded(step) for step in steps[fixed:]))}


def _spots(path: str, cwd: str) -> set[tuple[str, ...]]:
    full = os.path.join(cwd, path)
    names = {full, os.path.realpath(full), os.path.join(cwd, os.path.expanduser(path))}
    return {_steps(_folded(one), "/") for one in names}


# -- addresses


def _is_url(pattern: str, url: str) -> bool:
    """Without a user, a backslash or a step back; a wildcard in the host stands for whole labels of it."""
    if re.search(r"[\s\\\x00-\x20\x7f]", url) or not url.isascii():
        return False
    ours, slash, rest = _split(pattern)
    origin, _, path = _split(url)
    if "@" in origin or any(unquote(unquote(one)) in (".", "..") for one in re.split(r"[/?#]|%2[fF]|%5[cC]", path)):
        return False
    if pattern == STAR or STAR not in pattern:
        return pattern == STAR or url == pattern
    if not _is_origin(ours.lower(), origin.lower()):
        return False
    return like(rest, path) if slash else ours.endswith(f"://{STAR}") or path == ""


def _split(url: str) -> tuple[str, str, str]:
    """What is before the path; the slash, if there is one; the rest."""
    found = re.match(r"([A-Za-z\0][A-Za-z0-9+.\0-]*://[^/?#]*)(/?)(.*)", url, re.DOTALL)
    return (found[1], found[2], found[3]) if found is not None else (url, "", "")


def _is_origin(pattern: str, origin: str) -> bool:
    """Scheme, host and port, each for itself."""
    (ours, host, port), (theirs, name, number) = _origin(pattern), _origin(origin)
    if "://" not in pattern or not like(ours, theirs) or not like(port, number):
        return False
    if host == STAR or STAR not in host:
        return host in (STAR, name)
    return host.startswith(f"{STAR}.") and STAR not in host[1:] and name.endswith(host[1:]) and len(name) >= len(host)


def _origin(origin: str) -> tuple[str, str, str]:
    scheme, _, place = origin.partition("://")
    host, colon, port = place.rpartition(":")
    if not colon or "]" in port:
        host, port = place, ""
    return scheme, host, port


def _addresses(url: str) -> set[str]:
    """As it is, and as a client that is lenient would read it; folded."""
    url = re.sub("[\u3002\uff0e\uff61]", ".", url)
    found = {url, unquote(url)}
    try:
        parts = urlsplit(url.strip().replace("\\", "/"))
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError:
        return {_folded(one) for one in found}
    usual = {"http": 80, "https": 443}.get(parts.scheme.lower())
    place = host if port in (None, usual) else f"{host}:{port}"
    path = "/" + "/".join(_steps(unquote(parts.path), "/")) + ("/" if parts.path.endswith("/") else "")
    query = f"?{parts.query}" if parts.query else ""
    found |= {f"{parts.scheme}://{place}{one}{query}" for one in (path.replace("//", "/"), parts.path or "/")}
    return {_folded(one) for one in found}
