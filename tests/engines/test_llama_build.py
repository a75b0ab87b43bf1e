"""The installed llama.cpp described, and each way in which it cannot be."""

import sys
from pathlib import Path

import llama_cpp
import pytest

from ggbench.engines.llama.build import build_flags, describe_llama_build


@pytest.mark.llama
def test_the_installed_llama_cpp_is_described() -> None:
    build = describe_llama_build()
    assert (build.is_installed, build.problem) == (True, "")
    assert build.llama_cpp_python == llama_cpp.__version__
    assert "CPU" in build.backends
    assert [each.name for each in build.devices if not each.is_gpu][-1] == "CPU"
    assert {"LLAMAFILE", "OPENMP"} & set(build.features)


def test_build_flags_are_those_left_beside_the_library(tmp_path: Path) -> None:
    library = tmp_path / "libllama.so"
    assert build_flags(library) == ""
    (tmp_path / "build_flags.txt").write_text("-DGGML_RPC=on  -DVulkan_LIBRARY=/home/me/lib -DGGML_CUDA=on\n")
    assert build_flags(library) == "-DGGML_RPC=on -DGGML_CUDA=on"


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("import sys; sys.exit('libcuda.so.1: cannot open shared object file')", "libcuda.so.1: cannot open shared"),
        (r"import os; os.write(2, b'\n\x1b[2Jvk: lost\n'); os.abort()", "was killed by SIGABRT: [2Jvk: lost"),
        ("import os; os.kill(os.getpid(), 9)", "its process was killed by SIGKILL"),
        ("import os; os.kill(os.getpid(), 35)", "its process was killed by signal 35"),
        ("print('no JSON')", "its process ended with exit status 0"),
        ("import time; time.sleep(60)", "it did not answer within 1 s"),
    ],
    ids=["says why", "aborts", "is killed", "real-time signal", "garbage", "hangs"],
)
def test_a_build_that_cannot_be_loaded_says_why(script: str, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.llama.build._QUERY", (sys.executable, "-c", script))
    build = describe_llama_build(timeout_s=1 if "sleep" in script else 30)
    assert build.is_installed
    assert problem in build.problem
