"""From paths to model files: shards, wrong paths, and what assembling checks."""

import hashlib
import io
import os
from pathlib import Path

import pytest

from ggbench.errors import BadFile
from ggbench.gguf_file.header import read_local_header, read_model_file
from ggbench.gguf_file.parser import read_leading_metadata
from ggbench.gguf_file.twin import write_sparse
from tests.gguf_file.conftest import I32, STRING, U16, U32, Encoder


def write_shards(folder: Path, encoder: "type[Encoder]", count: int = 3) -> list[Path]:
    """A model of `count` shards with one tensor in each, as gguf-split lays them out."""
    paths = []
    for index in range(count):
        shard = encoder()
        if index == 0:
            shard.key("general.architecture", STRING, "llama").key("llama.block_count", U32, 1)
            shard.key("llama.embedding_length", U32, 64).key("llama.attention.head_count", U32, 1)
        shard.key("split.no", U16, index).key("split.count", U16, count).key("split.tensors.count", I32, count)
        shard.tensor(f"t{index}", (64, index + 1), 0, 256 * (index + 1))
        paths.append(folder / f"model-q8_0-{index + 1:05}-of-{count:05}.gguf")
        paths[-1].write_bytes(shard.file())
    return paths


def test_a_file_becomes_a_model(tmp_path: Path, small_model: "Encoder") -> None:
    path = tmp_path / "small-f16.gguf"
    path.write_bytes(small_model.file())
    model = read_model_file(path)
    assert (model.name, model.paths, model.file_bytes) == ("small-f16", (path,), path.stat().st_size)
    assert (model.version, model.architecture) == (3, "qwen2")
    assert model.header_sha256 == hashlib.sha256(small_model.header()).hexdigest()
    assert model.weight_bytes == 512 + 2176 + 256
    assert model.n_params == 64 * 4 + 64 * 32 + 64
    assert model.bpw == (512 + 2176 + 256) * 8 / (64 * 4 + 64 * 32 + 64)


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_shard_stands_for_the_whole_model(tmp_path: Path, encoder: "type[Encoder]", given: int) -> None:
    paths = write_shards(tmp_path, encoder)
    model = read_model_file(paths[given])
    assert (model.name, model.paths) == ("model-q8_0", tuple(paths))
    assert [(tensor.name, tensor.shard) for tensor in model.tensors] == [("t0", 0), ("t1", 1), ("t2", 2)]
    assert model.file_bytes == sum(path.stat().st_size for path in paths)
    headers = b"".join(read_local_header(path).raw for path in paths)
    assert model.header_sha256 == hashlib.sha256(headers).hexdigest()
    assert model.metadata["llama.block_count"] == 1


def test_a_missing_shard_is_named(tmp_path: Path, encoder: "type[Encoder]") -> None:
    paths = write_shards(tmp_path, encoder)
    paths[1].unlink()
    with pytest.raises(BadFile, match=r"shard model-q8_0-00002-of-00003\.gguf is missing"):
        read_model_file(paths[0])


def test_shards_that_do_not_make_a_model_are_named(tmp_path: Path, encoder: "type[Encoder]") -> None:
    """The header decides whether a file is split, as in llama.cpp."""
    paths = write_shards(tmp_path, encoder)
    whole = [path.read_bytes() for path in paths]
    paths[2].write_bytes(whole[2][:-32])
    with pytest.raises(BadFile, match=r"00003-of-00003\.gguf is truncated: 32 B"):
        read_model_file(paths[0])
    assert read_model_file(paths[0], allow_missing_data=True).n_params == 64 * 6
    paths[2].write_bytes(whole[2])
    paths[1].write_bytes(whole[2])
    with pytest.raises(BadFile, match="place 2 of 3"):
        read_model_file(paths[0])
    with pytest.raises(BadFile, match="one of 3 shards"):
        read_model_file(paths[0].rename(tmp_path / "model.gguf"))
    alone = tmp_path / "alone-00001-of-00001.gguf"
    alone.write_bytes(encoder().key("general.type", STRING, "imatrix").tensor("t", (8,), 0, 32).file())
    model = read_model_file(alone)
    assert (model.paths, model.architecture, model.n_layer, model.n_params) == ((alone,), "unknown", 0, 8)
    assert model.no_kv_reason


def test_a_tensor_in_two_shards_is_an_error(tmp_path: Path, encoder: "type[Encoder]") -> None:
    paths = write_shards(tmp_path, encoder, count=2)
    paths[1].write_bytes(paths[1].read_bytes().replace(b"t1", b"t0"))
    with pytest.raises(BadFile, match="'t0' is in two shards"):
        read_model_file(paths[0])


def test_wrong_paths_are_clear_errors(tmp_path: Path, small_model: "Encoder") -> None:
    (tmp_path / "inside.gguf").write_bytes(small_model.file())
    (tmp_path / "empty.gguf").touch()
    os.mkfifo(tmp_path / "fifo.gguf")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    cases = {
        "missing.gguf": "missing.gguf does not exist", "inside.gguf/x": "cannot be opened", "": "not an ordinary file",
        "empty.gguf": "empty.gguf is not a GGUF", "fifo.gguf": "not an ordinary file", "loop.gguf": "cannot be opened",
        "nul\0.gguf": "cannot be opened", "long" * 200: "cannot be opened",
    }  # fmt: skip
    for name, message in cases.items():
        with pytest.raises(BadFile, match=message) as caught:
            read_model_file(tmp_path / name)
        assert caught.value.hint
        assert caught.value.message.isprintable()


def test_a_file_with_an_unknown_type_keeps_all_but_its_size(tmp_path: Path, encoder: "type[Encoder]") -> None:
    path = tmp_path / "future.gguf"
    build = encoder().key("general.architecture", STRING, "llama").key("general.file_type", U32, 999)
    path.write_bytes(build.tensor("token_embd.weight", (64, 8), 97, 288).tensor("b", (64,), 0, 256).file())
    model = read_model_file(path)
    assert (model.unknown_types, model.n_params, model.file_bytes) == (("type 97",), 576, path.stat().st_size)
    assert (model.weight_bytes, model.bpw, model.active_weight_bytes) == (None, None, None)


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
    metadata, n_tensors = read_leading_metadata(source, len(raw), "x.gguf")
    assert n_tensors == 1
    assert metadata == {
        "general.architecture": "qwen2",
        "qwen2.context_length": 4096,
        "tokenizer.ggml.model": "gpt2",
    }
    assert source.n_read < raw.index(b"tokenizer.ggml.tokens") + 128


@pytest.mark.parametrize(
    ("raw", "error"), [(b"", BadFile), (b"GGUF", BadFile), (b"lmgg" + bytes(40), BadFile), (b"PK\3\4" * 9, BadFile)]
)
def test_what_is_no_gguf_is_refused(raw: bytes, error: type[BadFile]) -> None:
    with pytest.raises(error):
        read_leading_metadata(io.BytesIO(raw), len(raw), "x.gguf")


def test_a_file_that_is_its_header_alone(tiny_twin: Path, tmp_path: Path) -> None:
    begun = tmp_path / "begun.gguf"
    begun.write_bytes(tiny_twin.read_bytes()[: 64 << 10])
    (tmp_path / "copies").mkdir()
    path = write_sparse(read_model_file(begun, allow_missing_data=True), tmp_path / "copies")
    assert read_model_file(path).tensors == read_model_file(tiny_twin).tensors
    assert path.stat().st_size == tiny_twin.stat().st_size
    assert begun.stat().st_size == 64 << 10


def test_a_split_model(encoder: type[Encoder], tmp_path: Path) -> None:
    """Every shard is copied under its own name, so that llama.cpp finds the others beside the first."""
    for number, name in enumerate(("token_embd.weight", "blk.0.ffn_up.weight")):
        shard = encoder().key("general.architecture", STRING, "llama")
        shard.key("split.no", U16, number).key("split.count", U16, 2).key("split.tensors.count", I32, 2)
        (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(shard.tensor(name, (64, 64), 0, 1 << 14).header())
    (tmp_path / "copies").mkdir()
    model = read_model_file(tmp_path / "m-00001-of-00002.gguf", allow_missing_data=True)
    path = write_sparse(model, tmp_path / "copies")
    assert path.name == "m-00001-of-00002.gguf"
    copied = read_model_file(path)
    assert (copied.tensors, len(copied.paths)) == (model.tensors, 2)
    assert copied.weight_bytes == 1 << 15
    assert copied.file_bytes > 1 << 15


def test_shards_of_ggufs_own_writer_read_back(tmp_path: Path) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(tmp_path / "written.gguf", "llama", split_max_tensors=1)
    writer.add_block_count(1)
    for index in range(3):
        writer.add_tensor(f"t{index}", np.zeros((4, 32), dtype=np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = read_model_file(tmp_path / "written-00003-of-00003.gguf")
    assert (model.name, len(model.paths), model.weight_bytes) == ("written", 3, 3 * 256)
