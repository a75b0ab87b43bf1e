"""Real trained models, where `scripts/real_models` has fetched them; tests that need one are skipped elsewhere."""

import ctypes
from pathlib import Path

import platformdirs
import pytest

FOLDER = Path(platformdirs.user_cache_dir("ggbench", appauthor=False)) / "real-models"
"""The home before a test gets one of its own."""


def _fetched(name: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{name} is not here; ./scripts/real_models fetches it")
    return path


@pytest.fixture(scope="session")
def smollm2() -> Path:
    return _fetched("SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture
def gemma3() -> Path:
    return _fetched("gemma-3-270m-q4_k_m.gguf")


@pytest.fixture(scope="session")
def smollm2_q2_k(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Q2_K of it, as llama-quantize --allow-requantize does."""
    from ggbench.engines.llama.c_functions import lib

    path = tmp_path_factory.mktemp("q2_k") / "SmolLM2-135M-Instruct.Q2_K.gguf"
    params = lib.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = lib.LLAMA_FTYPE_MOSTLY_Q2_K, True, 1
    assert lib.llama_model_quantize(str(smollm2).encode(), str(path).encode(), ctypes.byref(params)) == 0
    return path
