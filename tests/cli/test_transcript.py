"""What a person reads of a session's events: pictures are named, and so is who answers from where on."""

from typing import Any

from quell.cli.transcript import Transcript


def lines(**event: Any) -> list[str]:
    found = Transcript().lines({"at": 0.0, **event})
    return ["".join(text for _, text in line).split(" ", 2)[-1].strip() for line in found]


def test_pictures_are_named_below_the_message() -> None:
    images = [{"media": "image/png", "data": "AAAA"}, {"media": "image/gif", "data": "BBBB"}]
    assert lines(kind="message.user", text="look", images=images) == ["user      look", "[image/png]", "[image/gif]"]


def test_who_answers_from_here_on_is_told() -> None:
    assert lines(kind="session.configured", agent="coder", model="openai:gpt-5") == [
        "session   from here on coder with openai:gpt-5"
    ]
    assert lines(kind="session.configured", agent="parrot") == ["session   from here on parrot"]


def test_what_the_model_reports_while_it_is_asked_is_told() -> None:
    said = "the conversation is too long for the model: summarising it"
    assert lines(kind="model.delta", channel="notice", text=said) == [f"notice    {said}"]
    assert lines(kind="model.delta", channel="reasoning", text="hm") == []
