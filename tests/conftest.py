"""Fixtures for every test: a home of its own, and a model small enough for llama.cpp to load in a moment."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from msgspec.structs import replace

from ggbench.gguf_file.hyperparameters import Hyperparameters

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.store.database import Store
    from tests.fakes.hub import TestHub

TINY = Hyperparameters(
    architecture="qwen2", n_layer=2, n_embd=256, n_head=4, n_head_kv=4, n_ff=512, n_vocab=1024, n_ctx_train=4096
)

DRAFTING = replace(
    TINY, architecture="qwen35", n_head_kv=2, head_dim=64, n_rot=32, layer_pattern="M*", ssm_conv=4, ssm_state=64,
    ssm_inner=256, ssm_n_head=4, ssm_n_group=4, n_layer_nextn=1,
)  # fmt: skip
"""A layer with a recurrent state, one with KV, and one that drafts."""

# How long an example takes depends on what else the machine does.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def pytest_configure() -> None:
    """Heed the signals that a shell or `nohup` makes programs in the background ignore: tests send them.

    Threads of llama.cpp and NumPy that wait for another would keep a core busy that another test could have. Without
    bytecode, each run compiles all tests, and the programs that tests start, hundreds, compile ggbench each time.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collection_finish() -> None:
    """Leave what is imported and collected to no later collection of garbage: it is most of all there is."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def machine_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ggbench.machine.bandwidth import ReadRate, cached_bandwidth
    from ggbench.machine.host import logical_cpus

    file = tmp_path_factory.mktemp("machine") / "machine.json"
    with (
        patch("ggbench.machine.bandwidth.probe_reads", lambda threads, **_: ReadRate(2e10, threads, "test", False)),
        patch("ggbench.paths.machine_cache_file", lambda: file),
    ):
        for threads in range(1, logical_cpus() + 1):
            cached_bandwidth(threads)
    return file


@pytest.fixture(scope="session")
def quant_types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep what llama.cpp's quantizer chooses for all tests and processes: asking it again takes longer than a plan."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quant_types"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(autouse=True)
def home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, machine_cache: Path, quant_types: Path
) -> Path:
    folder = tmp_path_factory.mktemp("home")
    caches = folder / "cache" / "ggbench"
    caches.mkdir(parents=True)
    shutil.copy(machine_cache, caches)
    (caches / "quant_types").symlink_to(quant_types)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("DATA", "CACHE", "CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(folder / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    return folder


@pytest.fixture
def unmeasured(home: Path) -> Path:
    shutil.rmtree(home / "cache")
    return home


@pytest.fixture(scope="session")
def tiny_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from ggbench.gguf_file.twin import cached_twin

    return cached_twin("tiny", TINY, "q8_0", tmp_path_factory.mktemp("twins"))


@pytest.fixture(scope="session")
def moe_twin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from msgspec.structs import replace

    from ggbench.gguf_file.twin import cached_twin

    experts = {"n_expert": 4, "n_expert_used": 2, "n_ff_expert": 256, "n_ff_shared_expert": 256}
    hyper = replace(TINY, architecture="qwen2moe", **experts)
    return cached_twin("tiny-moe", hyper, "q8_0", tmp_path_factory.mktemp("twins"))


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestHub]:
    from tests.fakes.hub import served

    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(home / "huggingface"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    with served() as hub:
        yield hub
    assert hub.errors == []


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    from ggbench.models.reference import parse_model
    from ggbench.models.targets import resolve_one

    return resolve_one(parse_model(str(tiny_twin)))


@pytest.fixture
def kv_bytes(tiny_twin: Path) -> int:
    from ggbench.gguf_file.header import read_model_file

    return read_model_file(tiny_twin).kv_bytes_per_token()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    from ggbench.runs.store.database import Store

    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened
