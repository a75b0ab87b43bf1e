"""A GGUF encoder of the tests' own: it can write what gguf's writer refuses, which is what a reader has to survive."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

U8, U16, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 2, 4, 5, 6, 7, 8, 9, 10
CODES = {U8: "B", U16: "H", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}


@dataclass
class Encoder:
    order: str = "<"
    version: int = 3
    keys: list[bytes] = field(default_factory=list)
    table: list[bytes] = field(default_factory=list)
    data_bytes: int = 0

    def pack(self, code: str, *values: object) -> bytes:
        return struct.pack(self.order + code, *values)

    def text(self, text: str | bytes) -> bytes:
        raw = text.encode() if isinstance(text, str) else text
        return self.pack("Q", len(raw)) + raw

    def value(self, value_type: int, value: object) -> bytes:
        if value_type == STRING:
            assert isinstance(value, str | bytes)
            return self.text(value)
        return self.pack(CODES[value_type], value)

    def key(self, name: str, value_type: int, value: object) -> "Encoder":
        self.keys.append(self.text(name) + self.pack("I", value_type) + self.value(value_type, value))
        return self

    def array(self, name: str, element_type: int, values: Sequence[object], count: int | None = None) -> "Encoder":
        """Add an array, whose stated count may be a lie."""
        head = self.pack("IIQ", ARRAY, element_type, len(values) if count is None else count)
        self.keys.append(self.text(name) + head + b"".join(self.value(element_type, value) for value in values))
        return self

    def tensor(
        self, name: str, shape: Sequence[int], type_id: int = 0, n_bytes: int = 0, offset: int | None = None
    ) -> "Encoder":
        """Add a row of the tensor table, with the data after the previous one unless an offset is given."""
        at = self.data_bytes if offset is None else offset
        self.table.append(
            self.text(name)
            + self.pack("I", len(shape))
            + self.pack(f"{len(shape)}Q", *shape)
            + self.pack("IQ", type_id, at)
        )
        self.data_bytes += -(-n_bytes // 32) * 32
        return self

    def header(self, n_tensors: int | None = None, n_keys: int | None = None) -> bytes:
        counts = (len(self.table) if n_tensors is None else n_tensors, len(self.keys) if n_keys is None else n_keys)
        return b"GGUF" + self.pack("IQQ", self.version, *counts) + b"".join(self.keys) + b"".join(self.table)

    def file(self) -> bytes:
        header = self.header()
        return header + bytes(-len(header) % 32) + bytes(self.data_bytes)


@pytest.fixture
def encoder() -> type[Encoder]:
    return Encoder


@pytest.fixture
def small_model() -> Encoder:
    return (
        Encoder()
        .key("general.architecture", STRING, "qwen2")
        .key("general.file_type", U32, 1)
        .key("qwen2.block_count", U32, 2)
        .key("qwen2.embedding_length", U32, 64)
        .key("qwen2.attention.head_count", U32, 4)
        .array("qwen2.attention.head_count_kv", I32, [2, 1])
        .key("qwen2.attention.layer_norm_rms_epsilon", F32, 0.5)
        .key("test.flag", BOOL, True)
        .key("test.wide", U64, 1 << 40)
        .array("test.names", STRING, ["a", "", "c"])
        .array("tokenizer.ggml.tokens", STRING, ["<s>", "hello", "world", "!"])
        .array("tokenizer.ggml.scores", F32, [0.0, 1.0, 2.0, 3.0])
        .tensor("token_embd.weight", (64, 4), 1, 512)
        .tensor("blk.0.ffn_up.weight", (64, 32), 8, 2176)
        .tensor("output_norm.weight", (64,), 0, 256)
    )
