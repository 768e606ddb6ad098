"""What a model has said since it was asked. Parts are joined once: a long answer comes in very many of them."""

from __future__ import annotations


class Said:
    """`rest` gives what was not given yet."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._given = 0

    def begin(self) -> None:
        self._parts.clear()
        self._given = 0

    def add(self, text: str) -> None:
        self._parts.append(text)

    def rest(self) -> str:
        text = "".join(self._parts[self._given :])
        self._given = len(self._parts)
        return text

    def ends_with(self, text: str) -> bool:
        return "".join(self._parts).endswith(text)
