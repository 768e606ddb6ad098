"""Pictures that go with a message: each is known by its first bytes and small enough to be sent, or refused.

session.send("What is wrong here?", images=[quell.images.load("screen.png")])
"""

from __future__ import annotations

import base64
import binascii
import os
import stat

from .errors import UsageError
from .events import Image

LARGEST = 5_000_000
"""Bytes of one picture: what the large providers take."""
TOGETHER = 10_000_000
"""Bytes of all pictures of one message: they are in the log, and sent with every request of the session."""
MEDIA = ("image/png", "image/jpeg", "image/gif", "image/webp")
_NAMES = "PNG, JPEG, GIF or WebP"


def load(path: str | os.PathLike[str]) -> Image:
    """The picture in a file. UsageError says what is wrong with it."""
    name = os.fspath(path)
    try:
        with open(path, "rb", opener=_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{name} is not a file that holds a picture")
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise UsageError(f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST:
        raise UsageError(f"{name} is too large: a picture has {LARGEST // 1_000_000} MB at most")
    media = media_of(data)
    if not media:
        raise UsageError(f"{name} is no picture that models can see: it is {_NAMES}")
    return Image(media, base64.b64encode(data).decode())


def media_of(data: bytes) -> str:
    """By its first bytes; empty for what is none of those that models take."""
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if data.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return ""


def checked(images: object) -> list[Image]:
    """The same, if a model can be given them. UsageError says which cannot."""
    if not isinstance(images, list | tuple) or not all(isinstance(one, Image) for one in images):
        raise UsageError("images is a list of Image: quell.images.load(path) makes one of a file")
    found: list[Image] = list(images)
    sizes = [_size(place, one) for place, one in enumerate(found, 1)]
    if sum(sizes) > TOGETHER:
        raise UsageError(f"the images are too large: those of one message have {TOGETHER // 1_000_000} MB at most")
    return found


def size_of(image: Image) -> int:
    """In bytes, by the length of what it is written in."""
    return len(image.data) * 3 // 4 - image.data[-2:].count("=")


def _size(place: int, image: Image) -> int:
    text: object = image.data  # as a program has built it
    if not isinstance(text, str):
        raise UsageError(f"image {place} has its data as text in base64, not as {type(text).__name__}")
    if len(text) > (LARGEST + 2) // 3 * 4:
        raise UsageError(f"image {place} is too large: a picture has {LARGEST // 1_000_000} MB at most")
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise UsageError(f"image {place} is not base64: {error}") from None
    media = media_of(data)
    if not media or media != image.media:
        raise UsageError(f"image {place} is {media or f'not {_NAMES}'}, and says that it is {image.media!r:.60}")
    return len(data)


def _at_once(path: str, flags: int) -> int:
    """A pipe that nobody writes to would hold up whoever opens it."""
    return os.open(path, flags | os.O_NONBLOCK)
