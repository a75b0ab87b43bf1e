"""The real llama-server on the PATH: the printed line, started, gives one user the whole context."""

import contextlib
import csv
import json
import shlex
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.decisions.pick.run_commands import RunSettings, render
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from scripts.record_options import TABLE, rows_of

pytestmark = [pytest.mark.llama, pytest.mark.skipif(shutil.which("llama-server") is None, reason="needs llama-server")]

SETUPS = (
    LlamaConfig(n_ctx=2048),
    LlamaConfig(n_ctx=1024, type_k="q8_0", type_v="q8_0", n_ubatch=128, n_batch=256, threads=1, threads_batch=2),
    LlamaConfig(n_ctx=768, type_k="q4_0", type_v="q4_0", flash_attn="on", n_gpu_layers=0),
    LlamaConfig(n_ctx=512, flash_attn="off", mmap=False, kv_offload=False, swa_full=True),
    LlamaConfig(n_ctx=512, mlock=True, override_tensor=(r"\.ffn_up=CPU",), cpu_moe=True, split_mode="none"),
    LlamaConfig(n_ctx=512, n_cpu_moe=1),
)


@contextlib.contextmanager
def _serving(line: str) -> Iterator[str]:
    """Start llama-server by a shell with this line; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    log: list[str] = []
    # `exec`, so that ending the process ends the server and not the shell around it.
    started = ["sh", "-c", f"exec {line} --host 127.0.0.1 --port {port}"]
    with subprocess.Popen(started, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            for text in server.stdout:
                log.append(text)
                if "listening on" in text:
                    break
            assert server.poll() is None, "".join(log)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


def _get(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=60) as response:
        return dict(json.load(response))


def _properties(line: str) -> dict[str, Any]:
    with _serving(line) as url:
        return _get(f"{url}/props")


def _assert_serves(path: Path, setup: LlamaConfig) -> None:
    (variant,) = resolve_headers(parse_model(str(path)))
    assert variant.to_run is not None
    properties = _properties(render(RunSettings(variant.to_run, setup), "sh"))
    assert properties["total_slots"] == 1
    assert properties["default_generation_settings"]["n_ctx"] == setup.n_ctx
    assert properties["model_path"] == str(path)


def _says(option: str) -> str:
    return subprocess.run(
        ["llama-server", option], check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ).stdout


def test_the_table_of_options_is_what_the_program_lists() -> None:
    if "0c1e570" not in _says("--version"):
        pytest.skip("another llama-server than the table is of")
    assert [*csv.DictReader(TABLE.read_text("utf-8").splitlines())] == rows_of(_says("--help"))


@pytest.mark.parametrize("setup", SETUPS)
def test_the_line_starts_a_server_with_this_context(setup: LlamaConfig, tiny_twin: Path, tmp_path: Path) -> None:
    path = tmp_path / "it's $HOME & more-q8_0.gguf"
    path.hardlink_to(tiny_twin)
    _assert_serves(path, setup)


def test_the_router_lists_the_model_of_a_preset(tiny_twin: Path, tmp_path: Path) -> None:
    path, file = tmp_path / "it's $HOME & more-q8_0.gguf", tmp_path / "models.ini"
    path.hardlink_to(tiny_twin)
    (variant,) = resolve_headers(parse_model(str(path)))
    assert variant.to_run is not None
    run = RunSettings(variant.to_run, replace(SETUPS[1], n_cpu_moe=1, mmap=False, kv_offload=False))
    file.write_text(render(run, "preset"))
    with _serving(f"llama-server --models-preset {shlex.quote(str(file))}") as url:
        (model,) = _get(f"{url}/v1/models")["data"]
    assert model["id"] == run.name
    arguments = model["status"]["args"]
    assert arguments[arguments.index("--model") + 1] == str(path)
    assert arguments[arguments.index("--ctx-size") + 1] == "1024"
    assert {"--n-cpu-moe", "--no-kv-offload", "--load-mode", "--cache-type-k"} <= {*arguments}


@pytest.mark.real
@pytest.mark.parametrize("type_kv", ["f16", "q8_0"])
def test_a_trained_model_is_served_with_its_context(type_kv: str, smollm2: Path) -> None:
    """8,192 tokens, what SmolLM2 was trained on; beyond it the slot is capped."""
    setup = LlamaConfig(n_ctx=8192, type_k=type_kv, type_v=type_kv)
    _assert_serves(smollm2, setup)
    (variant,) = resolve_headers(parse_model(str(smollm2)))
    assert variant.to_run is not None
    assert variant.file is not None
    beyond = render(RunSettings(variant.to_run, replace(setup, n_ctx=16384)), "sh")
    assert _properties(beyond)["default_generation_settings"]["n_ctx"] == 8192
