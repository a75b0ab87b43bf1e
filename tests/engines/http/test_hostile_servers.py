"""A server that goes wrong in every way: one message with a hint, in time, and what was measured before stands."""

import ssl
import subprocess
import threading
import time
from pathlib import Path

import pytest

from ggbench.engines.http.endpoint import Address
from ggbench.engines.http.messages import Generate, Prompt
from ggbench.engines.http.server import Server
from ggbench.errors import GgbenchError, NetworkError, ServerTimeout
from tests.engines.http.conftest import Generation, Serve, plain_completions
from tests.fakes.endpoint import TestEndpoint
from tests.fakes.endpoint_faults import (
    AFTER,
    ANY_FAULTS,
    CLOCK_FAULTS,
    SECRET,
    STREAM_FAULTS,
    everywhere,
    fewer_tokens,
    more_tokens,
    of_streams,
)
from tests.fakes.endpoint_voices import AnyLength

TIMEOUT_S = 0.6
IN_TIME_S = 20.0
"""Far above the timeout: the machine may be busy."""
BREAKS_LATE = {
    "dies", "resets", "hangs", "pings", "drips", "half_a_line", "ends_early", "endless_line", "wrong_json",
    "wrong_types", "deep_json", "not_utf8", "reports_an_error",
}  # fmt: skip

SILENT = {"hangs", "pings", "drips", "hangs_at_once", "drips_its_head"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)


def _address(endpoint: TestEndpoint) -> Address:
    return Address.parse(endpoint.url, "TEST_KEY")


def _generate(endpoint: TestEndpoint, n_gen: int = 40) -> Generation:
    with Server(_address(endpoint), timeout_s=TIMEOUT_S) as server:
        return Generation(server, Generate(server.info.models[0].name, Prompt(8, text="a b c"), n_gen))


def _check_message(error: GgbenchError) -> None:
    for line in (error.message, error.hint):
        assert line
        assert line.isprintable(), line
        assert len(line) < 400
        assert SECRET not in line


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        *((fault, "llama_server") for fault in STREAM_FAULTS),
        *((fault, "openai") for fault in STREAM_FAULTS if fault not in ANY_FAULTS),
    ],
)
def test_a_broken_generation_is_a_value(fault: str, name: str, serve: Serve) -> None:
    voice = plain_completions() if name == "openai" else AnyLength(name)
    endpoint = serve(voice, of_streams(STREAM_FAULTS[fault]))
    started = time.monotonic()
    found = _generate(endpoint)
    assert time.monotonic() - started < IN_TIME_S
    error = found.request.error
    assert error is not None and not found.request.said.is_last
    _check_message(error)
    assert isinstance(error, ServerTimeout) or fault not in SILENT
    if fault in BREAKS_LATE:
        assert len(found.tokens) == AFTER


@pytest.mark.parametrize("fault", sorted(CLOCK_FAULTS))
def test_an_impossible_clock_is_not_used(fault: str, serve: Serve) -> None:
    request = _generate(serve(AnyLength("llama_server"), of_streams(CLOCK_FAULTS[fault]))).request
    if fault == "nan_timings":
        assert request.error is not None
        return
    assert request.said.is_last and not request.is_timed
    assert "its clock is missing or ran backwards" in request.mismatches()


@pytest.mark.parametrize("name", ["llama_server", "vllm"])
def test_what_a_server_did_not_obey_is_said(name: str, serve: Serve) -> None:
    fewer, *_ = _generate(serve(AnyLength(name), of_streams(fewer_tokens))).request.mismatches()
    more, *_ = _generate(serve(AnyLength(name), of_streams(more_tokens))).request.mismatches()
    assert fewer.startswith(f"generated {AFTER} tokens, requested 40")
    assert more.startswith("generated 43 tokens, requested 40")


def test_a_redirect_is_refused_and_its_secrets_are_not_shown(serve: Serve) -> None:
    with pytest.raises(NetworkError, match="redirects") as raised:
        _generate(serve(AnyLength("llama_server"), everywhere(ANY_FAULTS["redirects"])))
    assert "pw" not in raised.value.message
    assert "key=1" not in raised.value.message


def test_a_key_goes_into_the_header_and_nowhere_else(serve: Serve) -> None:
    endpoint = serve(AnyLength("vllm"))
    _generate(endpoint)
    assert {request.headers.get("Authorization") for request in endpoint.requests} == {f"Bearer {SECRET}"}
    assert SECRET not in repr(_address(endpoint))


def _certificate(folder: Path) -> ssl.SSLContext:
    files = [folder / "key.pem", folder / "cert.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(files[0]), "-out", str(files[1])], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files[1], files[0])
    return context


def test_a_certificate_that_nobody_signed_is_refused(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(AnyLength("vllm"), None, _certificate(tmp_path))
    with pytest.raises(NetworkError, match=r"no trusted TLS connection to .*: self-signed certificate") as raised:
        Server(_address(endpoint))
    _check_message(raised.value)
    assert not endpoint.requests


def test_a_certificate_named_in_ssl_cert_file_is_trusted(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve(AnyLength("vllm"), None, _certificate(tmp_path))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    assert _generate(endpoint).request.said.is_last


def test_tls_to_a_server_without_it_is_named(serve: Serve) -> None:
    endpoint = serve(AnyLength("vllm"))
    with pytest.raises(NetworkError, match="no trusted TLS connection"):
        Server(Address.parse(endpoint.url.replace("http:", "https:")))


def test_no_thread_outlives_a_broken_stream(serve: Serve) -> None:
    for fault in ("hangs", "drips_its_head", "endless_line"):
        _generate(serve(AnyLength("llama_server"), of_streams(STREAM_FAULTS[fault])))
    assert not [thread for thread in threading.enumerate() if thread.name == "ggbench-stream"]
