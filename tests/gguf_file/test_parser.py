"""The grammar of a header: what is in it comes out, and no bytes do harm."""

import io
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggbench.errors import BadFile, GgbenchError, Unsupported
from ggbench.gguf_file.parser import ArrayLength, Header, read_header
from tests.gguf_file.conftest import Encoder

HUGE = 1 << 60
STRING, ARRAY, U32, F32 = 8, 9, 4, 6


def parse(raw: bytes, *, size: int | None = None, allow_missing_data: bool = False) -> Header:
    return read_header(
        io.BytesIO(raw), len(raw) if size is None else size, "x.gguf", allow_missing_data=allow_missing_data
    )


def values_of(header: Header) -> dict[str, object]:
    return {"metadata": header.metadata, "tensors": header.tensors}


def test_values_come_out_as_written(small_model: "Encoder") -> None:
    header = parse(small_model.file())
    assert header.metadata == {
        "general.architecture": "qwen2", "general.file_type": 1, "qwen2.block_count": 2,
        "qwen2.embedding_length": 64, "qwen2.attention.head_count": 4, "qwen2.attention.head_count_kv": [2, 1],
        "qwen2.attention.layer_norm_rms_epsilon": 0.5, "test.flag": True, "test.wide": 1 << 40,
        "test.names": ["a", "", "c"], "tokenizer.ggml.tokens": 4, "tokenizer.ggml.scores": 4,
    }  # fmt: skip
    assert isinstance(header.metadata["tokenizer.ggml.tokens"], ArrayLength)
    assert [(t.name, t.shape, t.type_name, t.n_bytes) for t in header.tensors] == [
        ("token_embd.weight", (64, 4), "f16", 512),
        ("blk.0.ffn_up.weight", (64, 32), "q8_0", 2176),
        ("output_norm.weight", (64,), "f32", 256),
    ]


def test_files_of_ggufs_own_writer_read_back(tmp_path: Path) -> None:
    import gguf
    import numpy as np

    path = tmp_path / "written.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(3)
    writer.add_float64("test.double", 0.1)
    writer.add_int16("test.negative", -7)
    writer.add_array("test.floats", [0.5, -2.0])
    writer.add_array("test.flags", [True, False])
    writer.add_token_list(["a", "bc", "d" * 300])
    writer.add_custom_alignment(64)
    writer.add_tensor("a.weight", np.zeros((2, 48), dtype=np.float32))
    writer.add_tensor("b.weight", np.zeros((3, 34), dtype=np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    header = parse(path.read_bytes())
    assert header.version == 3
    assert header.metadata == {
        "general.architecture": "llama", "llama.block_count": 3, "test.double": 0.1, "test.negative": -7,
        "test.floats": [0.5, -2.0], "test.flags": [True, False], "tokenizer.ggml.tokens": 3,
        "general.alignment": 64,
    }  # fmt: skip
    assert [(t.name, t.shape, t.type_name, t.n_bytes) for t in header.tensors] == [
        ("a.weight", (48, 2), "f32", 384),
        ("b.weight", (32, 3), "q8_0", 102),
    ]
    assert header.data_offset % 64 == 0


class Trickle:
    """A source that hands out few bytes at a time, as a network does, and counts them."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at, self.handed_out = raw, 0, 0

    def seek(self, offset: int, /) -> int:
        self.at = offset
        return offset

    def read(self, n_bytes: int, /) -> bytes:
        chunk = self.raw[self.at : self.at + min(n_bytes, 7)]
        self.at += len(chunk)
        self.handed_out += len(chunk)
        return chunk


def test_a_source_may_hand_out_a_few_bytes_at_a_time(small_model: "Encoder") -> None:
    source = Trickle(small_model.file())
    header = read_header(source, len(source.raw), "x.gguf")
    assert values_of(header) == values_of(parse(small_model.file()))
    assert source.handed_out < len(header.raw) + 7


def test_a_long_vocabulary_is_skipped_across_buffer_ends(encoder: "type[Encoder]") -> None:
    tokens = ["é" * (index % 97) for index in range(20_000)]
    raw = encoder().array("tokenizer.ggml.tokens", STRING, tokens).key("after", U32, 5).file()
    assert parse(raw).metadata == {"tokenizer.ggml.tokens": 20_000, "after": 5}


def test_nested_arrays_become_their_length(encoder: "type[Encoder]") -> None:
    build = encoder()
    inner = build.pack("IQ", U32, 2) + build.pack("II", 1, 2) + build.pack("IQ", STRING, 1) + build.text("x")
    build.keys.append(build.text("nested") + build.pack("IIQ", ARRAY, ARRAY, 2) + inner)
    assert parse(build.key("after", U32, 9).file()).metadata == {"nested": 2, "after": 9}


def test_a_truncated_file_says_how_much_is_missing(small_model: "Encoder") -> None:
    whole = small_model.file()
    with pytest.raises(BadFile, match=r"truncated: 100 B of its 3.\d+ KiB are missing"):
        parse(whole[: len(whole) - 100])
    assert values_of(parse(small_model.header(), allow_missing_data=True)) == values_of(parse(whole))


def absurd(encoder: "type[Encoder]") -> dict[str, bytes]:
    build = encoder()
    key = build.text("k")
    deep = b"".join(build.pack("IQ", ARRAY, 1) for _ in range(1000))
    many_dims = encoder()
    many_dims.table.append(build.text("t") + build.pack("I", 1 << 31))
    return {
        "tensor count": encoder().header(n_tensors=HUGE),
        "key count": encoder().header(n_keys=HUGE),
        "key length": encoder().header(n_keys=1) + build.pack("Q", HUGE) + bytes(64),
        "string length": encoder().header(n_keys=1) + key + build.pack("IQ", STRING, HUGE),
        "array of numbers": encoder().array("k", U32, [1], count=HUGE).header(),
        "array of strings": encoder().array("k", STRING, ["a"], count=HUGE).header(),
        "vocabulary": encoder().array("tokenizer.ggml.tokens", STRING, ["a"], count=HUGE).header(),
        "string in a vocabulary": encoder()
        .array("tokenizer.ggml.tokens", STRING, ["a" * 80], count=2)
        .header()
        .replace(struct.pack("<Q", 80), struct.pack("<Q", HUGE)),
        "array of arrays": encoder().header(n_keys=1) + key + build.pack("IIQ", ARRAY, ARRAY, HUGE),
        "nesting": encoder().header(n_keys=1) + key + build.pack("IIQ", ARRAY, ARRAY, 1) + deep,
        "dimensions": many_dims.header() + bytes(64),
        "elements": encoder().tensor("t", (HUGE, HUGE, HUGE, HUGE)).header(),
        "offset": encoder().tensor("t", (1,), offset=HUGE << 3).header(),
        "alignment": encoder().key("general.alignment", U32, 3).file(),
        "no alignment": encoder().key("general.alignment", U32, 0).file(),
        "value type": encoder().header(n_keys=1) + key + build.pack("I", 77) + bytes(64),
        "element type": encoder().header(n_keys=1) + key + build.pack("IIQ", ARRAY, 77, 1) + bytes(64),
        "same key twice": encoder().key("k", U32, 1).key("k", U32, 1).file(),
        "same tensor twice": encoder().tensor("t", (8,), 0, 32).tensor("t", (8,), 0, 32).file(),
        "broken blocks": encoder().tensor("t", (33, 2), 8, 96).file(),
        "off alignment": encoder().tensor("t", (8,), 0, 32, offset=8).file(),
    }


@pytest.mark.parametrize("raw", [pytest.param(raw, id=case) for case, raw in absurd(Encoder).items()])
def test_absurd_claims_are_one_clear_error(raw: bytes) -> None:
    for allow_missing_data in (False, True):
        with pytest.raises(BadFile) as caught:
            parse(raw, allow_missing_data=allow_missing_data)
        assert "x.gguf" in caught.value.message
        assert caught.value.message.isprintable()
        assert caught.value.hint


def test_a_lie_in_a_large_file_is_refused_before_reading_it(encoder: "type[Encoder]") -> None:
    build = encoder()
    source = Trickle(
        encoder().header(n_keys=1) + build.text("k") + build.pack("IQ", STRING, 500 << 30) + bytes(600_000)
    )
    with pytest.raises(BadFile, match="536,870,912,000"):
        read_header(source, 1 << 40, "x.gguf")
    vocabulary = encoder().array("tokenizer.ggml.scores", F32, [0.0], count=100 << 30).header()
    with pytest.raises(BadFile, match="header is larger"):
        read_header(Trickle(vocabulary), 1 << 40, "x.gguf")


@pytest.mark.parametrize(
    ("raw", "error", "message"),
    [
        (b"", BadFile, "not a GGUF"), (b"GG", BadFile, "not a GGUF"),
        (b"Hello, world\n" * 9, BadFile, "is not a GGUF"),
        (b"<!DOCTYPE html>\n" * 9, BadFile, "not a GGUF"),
        (b"\x1b[31m\x07 red", BadFile, "not a GGUF"),
        (b"GGUF", BadFile, "ends inside its header"),
        (b"GGUF" + struct.pack("<III", 1, 0, 0) + bytes(32), Unsupported, "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), Unsupported, "version 4"),
    ],
)  # fmt: skip
def test_what_is_not_a_gguf_is_named(raw: bytes, error: type[GgbenchError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        parse(raw)
    assert caught.value.message.isprintable()
    assert caught.value.hint


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_to_a_header_does_harm(small_model: "Encoder", data: Any) -> None:  # noqa: ANN401
    raw = bytearray(small_model.file())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(small_model.header())))
        patch = data.draw(
            st.one_of(st.binary(max_size=12), st.sampled_from([b"\xff" * 8, bytes(8), struct.pack("<Q", HUGE)]))
        )
        raw[at : at + data.draw(st.sampled_from([0, 1, len(patch), 4, 8]))] = patch
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        header = parse(bytes(raw), allow_missing_data=data.draw(st.booleans()))
    except GgbenchError as error:
        assert error.message.isprintable()
    else:
        assert len(header.raw) <= len(raw)


def test_what_a_header_is_made_of(small_model: "Encoder", encoder: "type[Encoder]") -> None:
    """Neither padding nor weights, so that its hash does not depend on them; version 2 has another number alone."""
    header = parse(small_model.file())
    assert header.raw == small_model.header()
    assert header.data_offset == -(-len(header.raw) // 32) * 32
    small_model.version = 2
    assert (parse(small_model.file()).version, values_of(parse(small_model.file()))) == (2, values_of(header))
    assert parse(encoder().key("general.name", STRING, b"caf\xe9").file()).metadata == {"general.name": "caf\ufffd"}


class Failing(io.BytesIO):
    def read(self, n_bytes: int | None = -1, /) -> bytes:
        raise OSError(5, "Input/output error")


def test_what_went_wrong_is_said_without_steering_a_terminal(encoder: "type[Encoder]") -> None:
    with pytest.raises(BadFile, match="Input/output error"):
        read_header(Failing(), 100, "x.gguf")
    raw = encoder().tensor("\x1b[2Jt", (33,), 8, 64).file()
    with pytest.raises(BadFile) as caught:
        read_header(io.BytesIO(raw), len(raw), "evil\x1b[31m.gguf")
    assert caught.value.message.isprintable()
