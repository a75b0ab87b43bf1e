"""gguf's constants without the rest of gguf, and only when they are needed."""

import subprocess
import sys

import pytest

from ggbench.gguf_file.gguf_constants import tensor_name


def run_python(code: str) -> None:
    """Run code in a fresh process, where nothing has imported gguf."""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_and_numbers_of_a_catalog_need_no_gguf() -> None:
    run_python(
        "import sys\n"
        "from ggbench.models.catalog import load_catalog\n"
        "from ggbench.gguf_file.blueprint import count_params\n"
        "from ggbench.gguf_file.quants import quant_from_file_name\n"
        "import ggbench.gguf_file.header, ggbench.gguf_file.parser, ggbench.gguf_file.twin, ggbench.gguf_file.twin\n"
        "assert all(count_params(model.hyper) for model in load_catalog())\n"
        "assert quant_from_file_name('x-q4_k_m.gguf') == 'q4_k_m'\n"
        "assert not any(name.partition('.')[0] == 'gguf' for name in sys.modules)\n"
    )


def test_constants_come_without_the_rest_of_gguf() -> None:
    run_python(
        "import sys\n"
        "from ggbench.gguf_file.ggml_types import known_types\n"
        "assert known_types()\n"
        "assert 'gguf.constants' in sys.modules\n"
        "assert not {'numpy', 'yaml', 'gguf.gguf_reader'} & set(sys.modules)\n"
        "import gguf\n"
        "assert gguf.GGUFReader and gguf.Keys is gguf.constants.Keys\n"
    )


@pytest.mark.parametrize(
    ("tensor", "suffix", "block", "name"),
    [
        ("OUTPUT", "weight", None, "output.weight"),
        ("ATTN_Q", "bias", 7, "blk.7.attn_q.bias"),
        ("FFN_DOWN_EXP", "weight", 0, "blk.0.ffn_down_exps.weight"),
    ],
)
def test_tensor_names_are_those_of_files(tensor: str, suffix: str, block: int | None, name: str) -> None:
    assert tensor_name(tensor, suffix, block) == name
