"""Addresses, keys and prices: what is missing is named with what to do, and a key goes only where it belongs."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from quell.config import Provider
from quell.errors import ModelError
from quell.models import providers
from quell.models.endpoint import Endpoint, endpoint_of, is_local
from quell.models.faults import of_status
from quell.models.patience import Patience
from quell.models.prices import price_of
from quell.models.sse import read
from quell.ports import Model

from .serving import answer, asking, model, run

KEYS = {"OPENAI_API_KEY": "sk-openai-1234", "ANTHROPIC_API_KEY": "sk-ant-1234", "MINE": "sk-mine-1234"}


def openai(**wishes: str) -> Provider:
    return Provider(**({"name": "it"} | wishes))  # type: ignore[arg-type]  # the test gives what fits


@pytest.mark.parametrize(
    ("provider", "environ", "words"),
    [
        (openai(), {}, "OpenAI needs a key: set OPENAI_API_KEY to yours"),
        (Provider(name="it", kind="anthropic"), {"OPENAI_API_KEY": "sk-1234"}, "set ANTHROPIC_API_KEY"),
        (openai(key_env="MINE"), {"OPENAI_API_KEY": "sk-1234"}, "MINE is not set"),
        (openai(base_url="https://openrouter.ai/api/v1"), KEYS, "key_env of the provider it"),
        (openai(base_url="http://localhost:1/v1", key_env="MINE"), {}, "MINE is not set"),
        (openai(), {"OPENAI_API_KEY": "sk-a\nb"}, "no key: there are characters"),
        (openai(), {"OPENAI_API_KEY": "sk-ключ"}, "no key: there are characters"),
        (openai(), {"OPENAI_BASE_URL": "localhost:11434"}, "OPENAI_BASE_URL is no address of a web server"),
    ],
)
def test_what_is_missing_is_named(provider: Provider, environ: dict[str, str], words: str) -> None:
    with pytest.raises(ModelError) as told:
        endpoint_of(provider, environ)
    assert words in str(told.value)


@pytest.mark.parametrize(
    ("provider", "environ", "key"),
    [
        (openai(), {}, "sk-openai-1234"),
        (Provider(name="it", kind="anthropic"), {}, "sk-ant-1234"),
        (openai(key_env="MINE"), {}, "sk-mine-1234"),
        (openai(base_url="http://localhost:11434/v1"), {}, ""),
        (openai(base_url="https://example.com/v1?key=its-own"), {}, ""),
        (openai(base_url="https://eu.api.openai.com/v1"), {}, "sk-openai-1234"),
        (openai(base_url="http://192.168.0.7:8000/v1"), {}, ""),
        (openai(base_url="http://[::1]:8000/v1", key_env="MINE"), {}, "sk-mine-1234"),
        (openai(), {"OPENAI_BASE_URL": "http://localhost:8000/v1"}, "sk-openai-1234"),
    ],
)
def test_a_key_goes_only_where_it_belongs(provider: Provider, environ: dict[str, str], key: str) -> None:
    """Who is not OpenAI is not sent the key for it, here or anywhere."""
    assert endpoint_of(provider, KEYS | environ).key == key


def test_a_password_in_an_address_becomes_a_header_and_is_never_shown() -> None:
    found = endpoint_of(openai(base_url="https://me:pa%20ss@example.com/v1/"), {})
    assert (found.url, found.host, found.basic) == ("https://example.com/v1", "example.com", "Basic bWU6cGEgc3M=")
    assert "bWU6" not in repr(found) and found.masked("you sent bWU6cGEgc3M=") == "you sent ***"
    found = endpoint_of(openai(base_url="https://example.com/v1?key=hidden-1234"), KEYS)
    assert (found.url, found.query) == ("https://example.com/v1", {"key": "hidden-1234"})
    assert found.masked("for hidden-1234") == "for ***"
    assert endpoint_of(openai(), {"OPENAI_BASE_URL": "https://eu.api.openai.com/v1", **KEYS}).own
    assert not endpoint_of(openai(base_url="https://api.openai.com.evil.example/v1", key_env="MINE"), KEYS).own


def test_what_is_local_is_known_by_its_name() -> None:
    near = ["localhost", "127.0.0.1", "::1", "10.1.2.3", "ollama", "mac.local", "host.docker.internal", "0.0.0.0"]
    assert [host for host in near if not is_local(host)] == []
    assert [host for host in ("api.openai.com", "8.8.8.8", "localhost.evil.example") if is_local(host)] == []


def test_a_model_is_priced_by_its_own_name_with_or_without_a_date() -> None:
    def priced(model: str) -> float:
        return price_of(Provider(name="it"), Endpoint("https://api.openai.com/v1", True), model).input

    assert priced("gpt-5") == priced("gpt-5-2025-08-07") == 1.25
    assert (priced("gpt-5-mini"), priced("claude-haiku-4-5-20251001")) == (0.25, 1.0)
    assert (priced("gpt-5-ultra"), priced("llama3")) == (0.0, 0.0), "what is not known costs nothing, rather than wrong"


def test_http_where_tls_is_wanted_is_a_sentence() -> None:
    def plain(port: int) -> Model:
        return model("chat", patience=Patience(again=0), base_url=f"https://127.0.0.1:{port}/v1")

    plain(0)  # it is imported before the loop runs

    async def main() -> None:
        def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(talk, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ModelError, match="does not speak TLS"):
                await answer(plain(port), asking("chat"))

    run(main())


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"], ids=["lf", "crlf", "cr"])
def test_events_are_read_wherever_the_bytes_are_cut(end: bytes) -> None:
    lines = [b": hello", b"event: a", b'data: {"a": "\xc3\xa9"}', b"id: 1", b"", b"data: one", b"data:two", b"", b""]
    whole = end.join([*lines, b'data: {"last": 1}'])

    async def parts(cuts: list[int]) -> AsyncIterator[bytes]:
        for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            yield whole[start:stop]

    async def main() -> None:
        for seed in range(100):
            cuts = sorted(random.Random(seed).sample(range(len(whole)), seed % 12))
            found = [data async for data in read(parts(cuts))]
            assert found == ['{"a": "é"}', "one\ntwo", '{"last": 1}'], cuts

    run(main())


def test_the_sdks_are_not_loaded_before_a_model_is_made() -> None:
    """H25: they take seconds. The plugins are loaded whenever Quell starts."""
    brought: list[str] = []

    class Context:
        scope = None

        def model(self, name: str, make: object) -> None:
            brought.append(name)

    for each in (providers.openai, providers.anthropic, providers.plugin_for(openai(name="mine"))):
        each.setup(Context())  # type: ignore[arg-type]  # all that they ask of it
    assert brought == ["openai", "anthropic", "mine"]
    heavy = {"openai", "anthropic", "httpx2", "anyio", "quell.models.served", "quell.models.openai"}
    probe = f"import sys, quell.models.providers; print({heavy} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_a_missing_key_is_told_before_the_sdk_is_loaded() -> None:
    """It takes a second or two, and nobody has to wait for that to hear what to do."""
    probe = """
import sys
from quell.errors import ModelError
from quell.models import providers

class Context:
    scope = None
    def model(self, name, make):
        try:
            make()
        except ModelError as error:
            print(error)

for plugin in (providers.openai, providers.anthropic):
    plugin.setup(Context())
print({"openai", "anthropic", "httpx2"} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", probe], check=True, capture_output=True, text=True, env={})
    told = [
        f"{name} needs a key: set {name.upper()}_API_KEY to yours, and start again" for name in ("OpenAI", "Anthropic")
    ]
    assert done.stdout.splitlines() == [*told, "set()"]


def test_an_endpoint_without_a_key_hides_nothing_by_mistake() -> None:
    assert Endpoint("http://localhost", False).masked("a plain text") == "a plain text"


@pytest.mark.parametrize("status", [0, 400, 403, 404, 418, 422, 429, 500])
@pytest.mark.parametrize("field", ["message", "code", "type", "detail"])
def test_a_key_that_a_server_repeats_is_in_no_sentence(status: int, field: str) -> None:
    endpoint = Endpoint("http://localhost", False, key="sk-secret-1234")
    fault = of_status(endpoint, "m", status, {"error": {field: "no: sk-secret-1234"}}, {})
    assert "secret" not in f"{fault} {fault!r} {vars(fault)}"
    assert status in (429, 500) or "no: ***" in str(fault)
