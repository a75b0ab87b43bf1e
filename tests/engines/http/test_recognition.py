"""Which kind of server answers, by what real ones answered."""

import json
from contextlib import closing

import pytest

from ggbench.engines.http.client import Client
from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import OfferedModel
from ggbench.engines.http.server import Server
from ggbench.errors import ServerFailed, UsageError
from tests.engines.http.conftest import Serve, plain_completions
from tests.fakes.endpoint_voices import RECORDINGS, AnyLength, Recording


@pytest.mark.parametrize("name", ["llama_server", "vllm", "ollama"])
def test_a_server_is_recognized_by_its_documents(name: str, serve: Serve) -> None:
    kept = json.loads((RECORDINGS / f"{name}.json").read_text())
    with Server(Address.parse(serve(Recording(name)).url)) as server:
        assert (server.info.title, server.info.version) == (kept["title"], kept["version"])
        assert server.info.models


def test_llama_server_says_what_it_runs(serve: Serve) -> None:
    with Server(Address.parse(serve(Recording("llama_server")).url)) as server:
        assert server.info.models == (
            OfferedModel(
                name="SmolLM2-135M-Instruct.Q4_1.gguf", quant="Q4_1", n_ctx=1024, n_ctx_train=8192, n_params=134515008,
                tensor_bytes=96576768, is_loaded=True,
            ),
        )  # fmt: skip
        assert (server.info.clock, server.info.n_parallel) == ("server", 2)


def test_ollama_says_what_it_has(serve: Serve) -> None:
    with Server(Address.parse(serve(Recording("ollama")).url)) as server:
        (model,) = server.info.models
        assert (model.name, model.quant, model.architecture) == ("llama3.2:latest", "Q4_K_M", "llama")
        assert model.file_bytes == 3826793677
        assert model.is_loaded is False


def test_any_other_server_with_a_list_of_models_is_openai_compatible(serve: Serve) -> None:
    with Server(Address.parse(serve(plain_completions()).url)) as server:
        assert server.info.title == "OpenAI-compatible server"
        assert [each.name for each in server.info.models] == ["m1", "m2"]


def test_a_web_server_is_no_model_server(serve: Serve) -> None:
    voice = Recording("vllm")
    voice.documents.clear()
    with pytest.raises(ServerFailed, match="does not answer as a model server") as raised:
        Server(Address.parse(serve(voice).url))
    assert "llama-server" in raised.value.hint


def test_names_of_a_hostile_server_are_one_plain_line(serve: Serve) -> None:
    voice = AnyLength("vllm")
    models = [
        {"id": "a\x1b[2J\nb" + "c" * 10_000, "owned_by": "vllm", "max_model_len": -5},
        {"id": "\u202eevil", "owned_by": "vllm", "max_model_len": 0},
    ]
    voice.documents[("GET", "/v1/models")] = (200, json.dumps({"data": models}).encode())
    voice.documents[("GET", "/version")] = (200, b'{"version":"1\\u001b]0;owned\\u0007"}')
    with Server(Address.parse(serve(voice).url)) as server:
        assert all(each.name.isprintable() and len(each.name) <= 200 for each in server.info.models)
        assert [each.n_ctx for each in server.info.models] == [None, None]
        assert server.info.version is not None
        assert server.info.version.isprintable()


@pytest.mark.parametrize(
    ("text", "base_url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"), ("HTTP://LocalHost:11434/", "http://localhost:11434"),
        ("https://host.example:443/v1/", "https://host.example"),
        ("https://host.example/team/v1", "https://host.example/team"), ("http://[::1]:8080", "http://[::1]:8080"),
        (" http://h:80 ", "http://h"),
    ],
)  # fmt: skip
def test_one_server_has_one_address(text: str, base_url: str) -> None:
    assert Address.parse(text).base_url == base_url


@pytest.mark.parametrize(
    "text",
    [
        "ftp://host", "http://", "http://host:port", "http://host:99999", "host:8080", "http://ho st", "http://h\x1b[2J",
        "http://user:secret@host", "http://user@host", "http://host/?api_key=secret", "http://host/#a", "http://[::1",
        "http://hôte", "",
    ],
)  # fmt: skip
def test_anything_else_is_refused_without_repeating_a_secret(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        Address.parse(text)
    assert raised.value.message.isprintable()
    assert "user:secret" not in raised.value.message


def test_a_host_whose_name_begins_like_this_machines_is_reached_by_the_proxy(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", serve(Recording("vllm")).url)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with closing(Client(Address.parse("http://localhost.invalid"), 5)) as client:
        assert client.ask("/v1/models").status


def test_a_key_in_the_place_of_its_name_is_refused_and_not_repeated() -> None:
    """The most likely mistake does not put the key on the screen."""
    with pytest.raises(UsageError) as raised:
        Address.parse("http://host", "sk-live-1234")
    assert "1234" not in raised.value.message + raised.value.hint


@pytest.mark.parametrize(("name", "value"), [("ALL_PROXY", "socks5://127.0.0.1:9"), ("SSL_CERT_FILE", "/no/such")])
def test_a_variable_of_which_no_client_can_be_made_is_a_line(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="a proxy or SSL_CERT_FILE cannot be used"):
        Client(Address.parse("https://example.invalid"), 1.0)
