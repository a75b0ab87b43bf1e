"""Addresses of servers as people type them."""

import pytest

from ggbench.engines.server.client import Client
from ggbench.engines.server.config import Address
from ggbench.errors import UsageError
from tests.fakes.endpoint_voices import Recording
from tests.servers.conftest import Serve


@pytest.mark.parametrize(
    ("text", "base_url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("HTTP://LocalHost:11434/", "http://localhost:11434"),
        ("https://host.example:443/v1/", "https://host.example"),
        ("https://host.example/team/v1", "https://host.example/team"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        (" http://h:80 ", "http://h"),
    ],
)
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
    with Client(Address.parse("http://localhost.invalid"), timeout_s=5) as client:
        assert client.get("/v1/models").status
