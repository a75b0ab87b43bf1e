"""Hub configuration from the environment, and the errors for its responses."""

import errno
import tracemalloc
from pathlib import Path

import httpx2
import huggingface_hub
import pytest

from ggbench.errors import GgbenchError, NetworkError, UnknownName, UsageError
from ggbench.hub import api
from ggbench.hub.access import HubAccess, hub_errors
from ggbench.hub.listing import list_repo
from ggbench.models.reference import parse_model
from ggbench.text import without_password
from tests.fakes.hub import Fault, Gated, Hang, Says, TestHub, TooMany, Unavailable

REPO = "org/name"
GGUF = {"m-q8_0.gguf": b"GGUF"}


@pytest.mark.parametrize("value", ["1", "true", "YES", "On"])
def test_offline_by_the_environment(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", value)
    access = HubAccess.from_environment()
    with pytest.raises(NetworkError, match="listing org/name needs the network") as raised:
        access.require_network("listing org/name")
    assert "HF_HUB_OFFLINE" in raised.value.hint


def test_the_cache_is_where_hugging_face_keeps_it(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    found = [HubAccess.from_environment().hub_cache]
    for name, value in (("XDG_CACHE_HOME", "~/x"), ("HF_HOME", "$HOME/h"), ("HF_HUB_CACHE", "~/c")):
        monkeypatch.setenv(name, value)
        found.append(HubAccess.from_environment().hub_cache)
    monkeypatch.setenv("HF_HUB_CACHE", "~nobody-of-this-name/c")
    assert HubAccess.from_environment().hub_cache.is_absolute()
    assert found == [home / ".cache/huggingface/hub", home / "x/huggingface/hub", home / "h/hub", home / "c"]


@pytest.mark.parametrize("had_token", [False, True])
def test_a_private_repo_is_reported_like_a_missing_one(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch, had_token: bool
) -> None:
    if had_token:
        monkeypatch.setenv("HF_TOKEN", "hf_a_stranger")
    hub.add_repo("org/private", GGUF, private=True)
    for repo in ("org/private", "org/nowhere"):
        with pytest.raises(NetworkError, match=f"repo {repo} does not exist") as raised:
            list_repo(access, repo)
        assert "hf auth login" in raised.value.hint
        assert not isinstance(raised.value, UnknownName)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Gated(), ["gated", "accept", "org/name", "hf auth login"]),
        (TooMany(3600), ["rate limit", "later"]),
        (Unavailable(500), ["500", "--offline"]),
        (Says(b"", 418), ["418", "HF_ENDPOINT"]),
        (Says(b"", 403), ["denied", "token"]),
        (Says(b"[1]", 404, headers={"X-Error-Code": "RepoNotFound"}), ["repo org/name does not exist"]),
        (Says(b"\xff", 404, headers={"X-Error-Code": "RevisionNotFound"}), ["revision"]),
    ],
)
def test_an_error_response_has_a_hint(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch, fault: Fault, expected: list[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    hub.add_repo(REPO, GGUF)
    hub.fail("*", fault, times=None)
    with pytest.raises(NetworkError) as raised:
        list_repo(access, REPO)
    text = f"{raised.value.message}\n{raised.value.hint}"
    assert all(part in text for part in expected)
    assert text.count("\n") == 1
    assert raised.value.hint
    assert "hf_secret" not in text
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def test_an_invalid_token_is_not_printed(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """httpx2's own message would print it."""
    hub.add_repo(REPO, GGUF)
    for token in ("hf_wröng", "hf_a\x00b"):
        monkeypatch.setattr("huggingface_hub.get_token", lambda token=token: token)
        with pytest.raises(UsageError, match="token contains invalid characters") as raised:
            list_repo(access, REPO)
        assert "hf_" not in raised.value.message
        assert raised.value.__suppress_context__
    assert hub.requests == []


@pytest.mark.parametrize(
    ("error", "kind", "expected"),
    [
        (httpx2.ConnectError("x hf_secret"), NetworkError, "cannot connect"),
        (httpx2.ReadTimeout("x"), NetworkError, "in time"),
        (httpx2.ProxyError("http://user:hf_secret@proxy"), NetworkError, "cannot connect"),
        (httpx2.UnsupportedProtocol("x"), UsageError, "HF_ENDPOINT"),
        (PermissionError(errno.EACCES, "Permission denied", "/a\x1b[31m/b"), UsageError, "Permission denied: /a[31m/b"),
    ],
)
def test_errors_of_the_network_and_the_disk(error: Exception, kind: type[GgbenchError], expected: str) -> None:
    with pytest.raises(kind) as raised, hub_errors("trying"):
        raise error
    assert expected in raised.value.message
    assert raised.value.hint
    assert "hf_secret" not in raised.value.message


def test_a_session_closed_by_another_thread_is_reopened(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_repo(REPO, GGUF)
    closed = httpx2.Client()
    closed.close()
    sessions, real = [closed, closed], huggingface_hub.get_session
    monkeypatch.setattr("huggingface_hub.get_session", lambda: sessions.pop() if sessions else real())
    assert list_repo(access, REPO).variants
    sessions += [closed] * 9
    with pytest.raises(NetworkError, match="lost"):
        list_repo(access, REPO)


def test_a_silent_server_times_out(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "READ_TIMEOUT_S", 0.2)
    hub.add_repo(REPO, GGUF)
    hub.fail("*", Hang(5), times=None)
    with pytest.raises(NetworkError, match="in time"):
        list_repo(access, REPO)
    assert len(hub.requests) == len(api.BACKOFF_S) + 1


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://user:pw@host/x", "https://***@host/x"), ("user:pw@host", "***@host"), ("hf_key@host", "***@host"),
        ("https://user:p/w@host", "https://***@host"), ("https://user:p@w@host", "https://***@host"),
        ("https://huggingface.co/org/name@rev", "https://huggingface.co/org/name@rev"),
        ("org/name@r:q4", "org/name@r:q4"), ("//user:pw@host", "//***@host"), ("https:/user:pw@host", "***@host"),
        ("https//user:pw@host", "***@host"),
    ],
)  # fmt: skip
def test_no_message_has_the_password_of_an_address(address: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert without_password(address) == shown
    monkeypatch.setenv("HF_ENDPOINT", address)
    said = []
    for call in (HubAccess.from_environment, lambda: parse_model(f"ftp://{address}/x")):
        try:
            call()
        except GgbenchError as error:
            said.append(error.message)
    assert not any(secret in text for text in said for secret in ("pw", "p/w", "p@w", "hf_key"))


def test_the_body_of_a_redirect_is_not_read_whatever_its_length(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add_repo(REPO, GGUF)
    hub.fail(
        "/api/*", Says(bytes(32 << 20), 302, headers={"Location": "/api/models/org/name/revision/main?blobs=true"})
    )
    tracemalloc.start()
    try:
        assert list_repo(access, REPO).repo == REPO
        assert len(hub.requests) == 2  # none of huggingface_hub's own
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "error", [ImportError("no socksio"), FileNotFoundError("a certificate"), ValueError("a timeout")]
)
def test_a_variable_of_which_no_client_can_be_made_is_a_line(
    error: Exception, access: HubAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.get_session", fail)
    with pytest.raises(UsageError, match="a proxy or SSL_CERT_FILE cannot be used") as raised:
        list_repo(access, REPO)
    assert "httpx2[socks]" in raised.value.hint
