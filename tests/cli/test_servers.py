"""Commands on a server, from its URL to the stored run, over real connections to servers of the tests."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from ggbench.errors import ExitCode
from ggbench.models.targets import resolve
from tests.cli.conftest import Run
from tests.fakes.endpoint import Fault, Handler, Request, TestEndpoint
from tests.fakes.endpoint_faults import ANY_FAULTS, SECRET, STREAM_FAULTS, everywhere, fewer_tokens
from tests.fakes.endpoint_voices import AnyLength, Recording

Serve = Callable[..., TestEndpoint]
N_BEFORE = 5
"""Streams of a decode before the one that is timed: prompts and warm-up."""
IN_TIME_S = 30.0
"""Far above the timeout: the machine may be busy."""


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(voice: Recording | None = None, fault: Fault | None = None) -> TestEndpoint:
            return stack.enter_context(TestEndpoint(voice or AnyLength("llama_server"), fault))

        yield start


def _later(fault: Callable[[Handler, Request], None], n_before: int = N_BEFORE) -> Fault:
    seen: list[str] = []

    def apply(handler: Handler, request: Request) -> bool:
        if not handler.endpoint.voice.is_streamed(request.path, request.body):
            return False
        seen.append(request.path)
        if len(seen) <= n_before:
            return False
        fault(handler, request)
        return True

    return apply


def test_a_decode_of_a_server_is_measured_stored_and_shown(ggbench: Run, serve: Serve) -> None:
    endpoint = serve()
    ran = ggbench("decode", endpoint.url, "-n", "600", "--json")
    assert ran.code == 0, ran.err
    document = ran.json
    assert (document["provenance"], document["outcome"], document["n_gen"]) == ("endpoint", "completed", 600)
    assert document["p50_ms"] == pytest.approx(10)
    assert document["run"]["result"]["serving"]["clock"] == "server"
    assert document["kv_bytes"] is None
    assert document["run"]["head"]["setup"]["base_url"] == endpoint.url
    assert document["command"].startswith(f"ggbench decode {endpoint.url} ")
    shown = ggbench("results", "show", "1", "--why")
    assert "the server's own, for each token" in " ".join(shown.out.split())
    assert endpoint.url in shown.out


def test_prompts_and_concurrent_requests_are_measured(ggbench: Run, serve: Serve) -> None:
    endpoint = serve()
    prompts = ggbench("prefill", endpoint.url, "--lengths", "1,25", "--json")
    assert prompts.code == 0, prompts.err
    assert [each["n_prompt"] for each in prompts.json["run"]["result"]["prefills"]] == [1, 25]
    speed = ggbench("speed", endpoint.url, "--inputs", "16", "-n", "40", "--batch", "1,4", "--json")
    assert speed.code == 0, speed.err
    cases = [each["ended"] for each in speed.json["run"]["result"]["cases"]]
    assert [(each["case"]["n_seqs"], each["outcome"]) for each in cases] == [(1, "completed"), (4, "completed")]
    assert all(each["memory_bytes"] is None for each in cases)
    assert "server" in ggbench("results", "show", "2", "--why").out


def _offering(*names: str) -> AnyLength:
    voice = AnyLength("vllm")
    models = [{"id": name, "object": "model", "owned_by": "vllm", "max_model_len": 8192} for name in names]
    voice.documents[("GET", "/v1/models")] = (200, json.dumps({"object": "list", "data": models}).encode())
    return voice


def test_bench_measures_each_model_that_a_server_offers(ggbench: Run, serve: Serve) -> None:
    endpoint = serve(_offering("Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ"))
    ran = ggbench("bench", endpoint.url, "-n", "300", "--json")
    assert ran.code == 0, ran.err
    assert [row["model"] for row in ran.json["rows"]] == ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct-AWQ"]
    assert ggbench("compare", "1", "2").code == 0


def test_a_model_has_to_be_named_where_there_are_several(ggbench: Run, serve: Serve) -> None:
    endpoint = serve(_offering("one", "Two"))
    ambiguous = ggbench("decode", endpoint.url, "-n", "100")
    assert ambiguous.code == ExitCode.USAGE
    assert "it offers: one, Two" in ambiguous.err
    unknown = ggbench("decode", endpoint.url, "three", "-n", "100")
    assert unknown.code == ExitCode.USAGE
    assert ggbench("decode", endpoint.url, "two", "-n", "100").code == 0
    assert {request.body["model"] for request in endpoint.requests if "max_tokens" in request.body} == {"Two"}


def test_published_rows_of_servers_stand_beside_ones_own(ggbench: Run, serve: Serve) -> None:
    endpoint = serve(_offering("Qwen/Qwen2.5-7B-Instruct"))
    asked = "--inputs", "6144", "-n", "8", "--against", "published", "--json"
    ran = ggbench("speed", endpoint.url, *asked)
    assert ran.code == 0, ran.err
    nearest = ran.json["against"][0]
    assert nearest["row"]["system"] == "vllm"
    assert not any("not vllm" in each for each in nearest["differences"])


def test_an_api_key_is_sent_and_appears_nowhere(ggbench: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    endpoint = serve()
    ran = ggbench("decode", endpoint.url, "-n", "50", "--api-key-env", "TEST_KEY", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["run"]["head"]["setup"]["api_key_env"] == "TEST_KEY"
    assert ran.json["command"].endswith("--api-key-env TEST_KEY")
    shown = ggbench("results", "show", "1")
    assert SECRET not in ran.out + ran.err + shown.out
    assert {request.headers.get("Authorization") for request in endpoint.requests} == {f"Bearer {SECRET}"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("decode", "-ngl", "3"), "--n-gpu-layers is for a model that ggbench loads"),
        (("tune",), "the server cannot decode at a depth"),
        (("decode", "--n-ctx", "4096", "-t", "2"), "--n-ctx, --threads are for a model"),
        (("speed", "--bandwidth", "10GB/s"), "--bandwidth is for a model"),
        (("maxctx",), "the server cannot fill a context"),
        (("quality",), "the server cannot score"),
        (("plan",), "this command needs a model file"),
        (("pull", "q4_0"), "pull downloads GGUF files of the Hub, not "),
    ],
)
def test_what_a_server_cannot_is_refused_in_one_line(ggbench: Run, words: tuple[str, ...], message: str) -> None:
    ran = ggbench(words[0], "http://127.0.0.1:9", *words[1:])
    assert ran.code == ExitCode.USAGE
    assert message in ran.err
    assert len([line for line in ran.err.splitlines() if line]) == 2


@pytest.mark.parametrize("fault", sorted(STREAM_FAULTS)[::6])
def test_a_broken_stream_is_a_run_that_is_kept(
    ggbench: Run, serve: Serve, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_KEY", SECRET)
    endpoint = serve(None, _later(STREAM_FAULTS[fault]))
    began = time.monotonic()
    ran = ggbench("decode", endpoint.url, "-n", "100", "--timeout", "0.6", "--api-key-env", "TEST_KEY")
    assert time.monotonic() - began < IN_TIME_S
    assert ran.code not in (ExitCode.DONE, ExitCode.UNEXPECTED), ran.err
    assert "Traceback" not in ran.err + ran.out
    (row,) = ggbench("results", "--json").json["rows"]
    assert row["state"] in ("failed", "crashed", "timed_out")
    assert row["reason"]
    assert SECRET not in ran.err + ran.out
    assert "\x1b]" not in ran.err + ran.out


@pytest.mark.parametrize("fault", sorted(ANY_FAULTS)[::3])
def test_a_broken_server_is_an_error_with_a_hint(ggbench: Run, serve: Serve, fault: str) -> None:
    endpoint = serve(None, everywhere(ANY_FAULTS[fault]))
    ran = ggbench("decode", endpoint.url, "-n", "100", "--timeout", "0.5")
    assert ran.code in (ExitCode.NETWORK, ExitCode.ENGINE_FAILED), ran.err
    assert "Traceback" not in ran.err
    assert len([line for line in ran.err.splitlines() if line]) == 2, ran.err


def test_a_server_that_goes_away_before_the_run_is_kept_with_its_exit_code(
    ggbench: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = serve()

    def resolve_and_close(*args: object, **more: object) -> object:
        found = resolve(*args, **more)  # type: ignore[arg-type]
        endpoint.close()
        return found

    monkeypatch.setattr("ggbench.commands.measuring.resolve", resolve_and_close)
    ran = ggbench("decode", endpoint.url, "-n", "100")
    assert ran.code == ExitCode.NETWORK
    (row,) = ggbench("results", "--json").json["rows"]
    assert row["state"] == "failed"
    assert "cannot connect" in row["reason"]


def test_an_early_end_keeps_what_came(ggbench: Run, serve: Serve) -> None:
    endpoint = serve(None, _later(fewer_tokens))
    ran = ggbench("decode", endpoint.url, "-n", "100", "--json")
    assert ran.code == ExitCode.ENGINE_FAILED
    assert ran.json["reason"] == "decode failed: the server ended after 5 of 101 tokens (limit)"
    assert ran.json["n_gen"] == 4


def test_ctrl_c_closes_the_request_and_keeps_what_came(ggbench: Run, serve: Serve) -> None:
    gone = threading.Event()

    def slow(handler: Handler, request: Request) -> None:
        handler.begin_stream()
        try:
            for number, said in enumerate(handler.endpoint.voice.stream(request.path, request.body)):
                handler.chunk(said.line + b"\n")
                if number == 100:
                    os.kill(os.getpid(), signal.SIGINT)
                handler.endpoint.closing.wait(0.01)
        except OSError:
            gone.set()
            raise

    endpoint = serve(None, _later(slow))
    ran = ggbench("decode", endpoint.url, "-n", "900", "--json")
    assert ran.code == ExitCode.INTERRUPTED
    assert ran.json["outcome"] == "cancelled"
    assert 0 < ran.json["n_gen"] < 900
    assert gone.wait(10)
