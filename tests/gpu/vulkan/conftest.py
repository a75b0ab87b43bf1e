"""A Vulkan build of llama.cpp on Mesa's software driver, and small twins that it decodes in seconds.

scripts/vulkan_check makes the build and names its folder in GGBENCH_VULKAN_LIB; LLAMA_CPP_LIB_PATH serves as well.
Without either every one of these tests is skipped.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from ggbench.gguf_file.twin import cached_twin
from tests.conftest import TINY


class Ran(NamedTuple):
    code: int
    document: Any
    """What `--json` printed; None without a document."""
    stderr: str


Ggbench = Callable[..., Ran]


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    given = os.environ.get("GGBENCH_VULKAN_LIB") or os.environ.get("LLAMA_CPP_LIB_PATH")
    if not given or not any(Path(given).glob("libggml-vulkan*")):
        pytest.skip("no Vulkan build of llama.cpp: ./scripts/vulkan_check makes one")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", given)
    monkeypatch.setenv("GGML_VK_VISIBLE_DEVICES", "0")  # llama.cpp passes over CPU devices that are not named
    monkeypatch.setenv("MESA_SHADER_CACHE_DIR", str(folder / "shaders"))
    return Path(given)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = Path(os.environ.get("GGBENCH_GPU_TWINS") or tmp_path_factory.mktemp("twins"))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


SMALL = replace(TINY, n_layer=8, n_embd=512, n_head=8, n_head_kv=2, n_ff=1536, n_vocab=4096, n_ctx_train=32_768)


@pytest.fixture(scope="session")
def small(folder: Path) -> Path:
    return cached_twin("small", SMALL, "q8_0", folder)


@pytest.fixture(scope="session")
def small_moe(folder: Path) -> Path:
    experts = {"n_expert": 8, "n_expert_used": 2, "n_ff_expert": 512, "n_ff_shared_expert": 512}
    return cached_twin("small-moe", replace(SMALL, architecture="qwen2moe", **experts), "q8_0", folder)


@pytest.fixture
def ggbench(library: Path) -> Ggbench:
    def run(*words: object) -> Ran:
        command = [sys.executable, "-P", "-m", "ggbench", *map(str, words), "--json"]
        ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return Ran(ran.returncode, json.loads(ran.stdout) if ran.stdout else None, ran.stderr)

    return run
