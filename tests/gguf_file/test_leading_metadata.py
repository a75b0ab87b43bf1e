"""The beginning of a header, for lists of hundreds of files."""

import io

import pytest

from ggbench.errors import BadFile, Unsupported
from ggbench.gguf_file.parser import read_leading_metadata
from tests.gguf_file.conftest import STRING, U32, Encoder


class CountingSource(io.BytesIO):
    n_read = 0

    def read(self, n_bytes: int | None = -1, /) -> bytes:
        taken = super().read(64)
        self.n_read += len(taken)
        return taken


def with_vocabulary(n_tokens: int) -> Encoder:
    """What a model is, a vocabulary, and the file's type behind it, as llama-quantize leaves them."""
    return (
        Encoder()
        .key("general.architecture", STRING, "qwen2")
        .key("qwen2.context_length", U32, 4096)
        .key("tokenizer.ggml.model", STRING, "gpt2")
        .array("tokenizer.ggml.tokens", STRING, ["token"] * n_tokens)
        .key("general.file_type", U32, 15)
        .tensor("output.weight", (32,), 0, 128)
    )


def test_the_vocabulary_is_not_read() -> None:
    raw = with_vocabulary(10_000).file()
    source = CountingSource(raw)
    assert read_leading_metadata(source, len(raw), "x.gguf") == {
        "general.architecture": "qwen2",
        "qwen2.context_length": 4096,
        "tokenizer.ggml.model": "gpt2",
    }
    assert source.n_read < raw.index(b"tokenizer.ggml.tokens") + 128


@pytest.mark.parametrize(
    ("raw", "error"), [(b"", BadFile), (b"GGUF", BadFile), (b"lmgg" + bytes(40), Unsupported), (b"PK\3\4" * 9, BadFile)]
)
def test_what_is_no_gguf_is_refused(raw: bytes, error: type[BadFile]) -> None:
    with pytest.raises(error):
        read_leading_metadata(io.BytesIO(raw), len(raw), "x.gguf")
