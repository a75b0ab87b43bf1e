"""Files of logits as llama-perplexity keeps them."""

import struct
from pathlib import Path

import pytest

from ggbench.errors import BadFile, DoesNotFit
from ggbench.experiments.quality.logits_file import begin_logits_file, read_logits_file

TOKENS = tuple(range(16))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    begin_logits_file(tmp_path / "base.dat", 8, 101, 2, TOKENS)
    return tmp_path / "base.dat"


def test_a_file_is_read_as_it_was_begun(path: Path) -> None:
    assert path.read_bytes()[:20] == b"_logits_" + struct.pack("<3i", 8, 101, 2)
    found = read_logits_file(path)
    assert (found.n_ctx, found.n_vocab, found.n_chunks, found.tokens) == (8, 101, 2, TOKENS)
    assert found.rows_per_chunk == 3
    assert path.stat().st_size == found.n_bytes == 20 + 4 * 16 + 2 * 3 * 2 * (102 + 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a logits file"),
        (b"GGUF" + bytes(100), "not a logits file"),
        (
            b"_logits_" + struct.pack("<3i", 512, 32000, 10),
            "is damaged: n_ctx 512, n_vocab 32000 and 10 chunks in 20 B",
        ),
        (b"_logits_" + struct.pack("<3i", -1, 32000, 10) + bytes(99), "is damaged: n_ctx -1"),
        (b"_logits_" + struct.pack("<3i", 512, 0, 10) + bytes(99), "is damaged: n_ctx 512, n_vocab 0"),
        (b"_logits_" + struct.pack("<3i", 512, 2**31 - 1, 2**31 - 1) + bytes(99), "chunks in 119 B"),
    ],
)
def test_what_is_no_such_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "bad.dat"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=message):
        read_logits_file(path)


def test_a_truncated_file_is_named(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadFile, match="is damaged"):
        read_logits_file(path)


def test_a_disk_without_room_is_noticed_before_anything_is_scored(tmp_path: Path) -> None:
    path = tmp_path / "base.dat"
    with pytest.raises(DoesNotFit, match=r"has no room for .* TiB of logits"):
        begin_logits_file(path, 8, 1 << 28, 1 << 20, ())
    assert not path.exists()
