"""gguf's constants without the rest of gguf, and only when they are needed."""

from __future__ import annotations

import subprocess
import sys
import typing

import gguf.constants
import pytest

from ggbench.gguf_file import gguf_constants, header_bytes
from ggbench.gguf_file.gguf_constants import tensor_name


def run_python(code: str) -> None:
    """Run code in a fresh process, where nothing has imported gguf."""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_constants_are_ggufs_own() -> None:
    assert gguf_constants.Keys is gguf.constants.Keys
    assert gguf_constants.TENSOR_NAMES is gguf.constants.TENSOR_NAMES
    with pytest.raises(AttributeError, match="NO_SUCH_CONSTANT"):
        typing.cast(object, gguf_constants.NO_SUCH_CONSTANT)


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


def test_the_format_has_ggufs_numbers() -> None:
    value_types = gguf.GGUFValueType
    assert int.from_bytes(header_bytes.MAGIC, "little") == gguf.GGUF_MAGIC
    assert gguf.GGUF_VERSION == header_bytes.VERSION == max(header_bytes.READABLE_VERSIONS)
    assert gguf.GGUF_DEFAULT_ALIGNMENT == header_bytes.ALIGNMENT
    assert gguf.Keys.General.ALIGNMENT == header_bytes.ALIGNMENT_KEY
    assert gguf.Keys.General.ARCHITECTURE == header_bytes.ARCHITECTURE_KEY
    assert {*header_bytes.NUMBER_CODES, header_bytes.STRING, header_bytes.ARRAY} == set(value_types)
    assert (header_bytes.STRING, header_bytes.ARRAY) == (value_types.STRING, value_types.ARRAY)
    letters = {"UINT": "BHIQ", "INT": "bhiq", "FLOAT": "efd"}
    for value_type, code in header_bytes.NUMBER_CODES.items():
        kind = value_types(value_type).name.rstrip("0123456789")
        assert code in letters.get(kind, "?")


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


def test_an_unknown_tensor_is_an_error() -> None:
    with pytest.raises(KeyError, match="NO_SUCH_TENSOR"):
        tensor_name("NO_SUCH_TENSOR")
