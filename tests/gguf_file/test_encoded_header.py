"""Headers encoded here, read back by the gguf package and by ggbench's own parser."""

import io
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggbench.errors import Unsupported
from ggbench.gguf_file.header import encode_header
from ggbench.gguf_file.parser import read_header

FLOAT32 = st.floats(width=32, allow_nan=False)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.one_of(
    WHOLE,
    st.integers(0, (1 << 64) - 1),
    FLOAT32,
    st.booleans(),
    TEXT,
    *(st.lists(items, min_size=1, max_size=5) for items in (WHOLE, FLOAT32, st.booleans(), TEXT)),
)
KEYS = st.from_regex(r"[a-z]{1,8}\.[a-z]{1,8}", fullmatch=True).filter(lambda key: key.partition(".")[0] != "tokenizer")


@settings(max_examples=30)
@given(st.dictionaries(KEYS, VALUES, max_size=8))
def test_metadata_comes_back_from_the_parser(metadata: dict[str, object]) -> None:
    header = encode_header(metadata, [])
    read = read_header(io.BytesIO(header.data), header.file_bytes, "x")
    assert read.metadata == metadata
    assert len(header.data) == header.file_bytes == read.data_offset


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, gguf.GGUFValueType.UINT32), (-7, gguf.GGUFValueType.INT32), (1 << 40, gguf.GGUFValueType.UINT64),
        (1e-6, gguf.GGUFValueType.FLOAT32), (True, gguf.GGUFValueType.BOOL), ("text", gguf.GGUFValueType.STRING),
    ],
)  # fmt: skip
def test_values_have_the_types_that_llama_cpp_reads(
    value: object, expected: gguf.GGUFValueType, tmp_path: Path
) -> None:
    (tmp_path / "x.gguf").write_bytes(encode_header({"a.one": value, "a.many": [value, value]}, []).data)
    fields = gguf.GGUFReader(tmp_path / "x.gguf").fields
    assert fields["a.one"].types == [expected]
    assert fields["a.many"].types == [gguf.GGUFValueType.ARRAY, expected]
    (narrowed,) = struct.unpack("<f", struct.pack("<f", value)) if isinstance(value, float) else (value,)
    assert fields["a.many"].contents() == [narrowed, narrowed]


@pytest.mark.parametrize("value", [None, {"a": 1}, [1, "a"], [1, True], [[1]], b"x"])
def test_a_value_of_another_kind_is_unsupported(value: object) -> None:
    with pytest.raises(Unsupported, match=r"a\.key"):
        encode_header({"a.key": value}, [])
