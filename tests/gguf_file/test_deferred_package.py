"""A package whose own code is deferred, tried on one whose modules show when its code runs."""

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.gguf_file.gguf_constants import defer_package


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "deferred_sample"
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("from .light import *\nfrom . import heavy\nVERSION = '1.2'\n")
    (folder / "light.py").write_text("ANSWER = 42\n")
    (folder / "heavy.py").write_text(f"import {name}.light as light\nDOUBLE = 2 * light.ANSWER\n")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("", ".light", ".heavy"):
        monkeypatch.delitem(sys.modules, name + module, raising=False)
    yield name
    for module in ("", ".light", ".heavy"):
        sys.modules.pop(name + module, None)


def test_the_packages_code_runs_when_one_of_its_names_is_used(package: str) -> None:
    defer_package(package)
    light = importlib.import_module(f"{package}.light")

    whole = importlib.import_module(package)

    assert (whole.VERSION, whole.ANSWER, whole.heavy.DOUBLE) == ("1.2", 42, 84)
    assert whole.light is light is sys.modules[f"{package}.light"]


@pytest.mark.llama
def test_llama_cpp_quantizes_without_its_chat_templates() -> None:
    code = (
        "import sys\n"
        "from ggbench.gguf_file.ggml_types import type_by_name\n"
        "from ggbench.gguf_file.quantizer import quantize\n"
        "import numpy as np\n"
        "assert len(quantize(type_by_name('q8_0'), np.ones(256, np.float32))) == 272\n"
        "assert 'llama_cpp.llama_chat_format' not in sys.modules\n"
        "import llama_cpp\n"
        "assert llama_cpp.Llama and llama_cpp.__version__ and llama_cpp.llama_cpp.llama_version()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
