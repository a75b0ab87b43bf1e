"""The table of tensor types: all of gguf's, corrected and completed where gguf differs from ggml itself."""

import ctypes
from pathlib import Path

import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from ggbench.errors import GgbenchError
from ggbench.gguf_file.ggml_types import CORRECTED_BLOCK_BYTES, known_types, row_bytes, tensor_bytes, type_by_name

IDS_IN_GGML = 43
"""`GGML_TYPE_COUNT` of the llama.cpp that the tests run with; its tables end there."""


@pytest.fixture(scope="module")
def ggml() -> ctypes.CDLL:
    import llama_cpp

    library = ctypes.CDLL(str(Path(llama_cpp.__file__).parent / "lib" / "libggml-base.so"))
    library.ggml_type_name.restype = ctypes.c_char_p
    library.ggml_blck_size.restype = ctypes.c_int64
    library.ggml_type_size.restype = ctypes.c_size_t
    return library


@pytest.mark.parametrize("type_id", range(IDS_IN_GGML))
def test_table_agrees_with_ggml(ggml: ctypes.CDLL, type_id: int) -> None:
    block_len = ggml.ggml_blck_size(type_id)
    entry = known_types().get(type_id)
    if block_len == 0:
        assert entry is None
    else:
        assert entry is not None
        assert (entry.name, entry.block_len, entry.block_bytes) == (
            ggml.ggml_type_name(type_id).decode(),
            block_len,
            ggml.ggml_type_size(type_id),
        )


def test_every_type_of_gguf_is_known() -> None:
    assert set(GGML_QUANT_SIZES) == set(GGMLQuantizationType)
    for quant, (block_len, block_bytes) in GGML_QUANT_SIZES.items():
        entry = known_types().get(quant.value)
        assert entry is not None
        assert type_by_name(quant.name) is entry
        assert (entry.block_len, entry.block_bytes) == (block_len, CORRECTED_BLOCK_BYTES.get(quant.name, block_bytes))


@pytest.mark.parametrize("n_elements", [80, 31, -32])
def test_part_of_a_block_is_an_error(n_elements: int) -> None:
    with pytest.raises(GgbenchError, match="blocks of 32"):
        row_bytes("q8_0", n_elements)


def test_a_tensor_without_dimensions_is_one_element() -> None:
    """A damaged header may have one."""
    assert tensor_bytes("F32", ()) == 4
