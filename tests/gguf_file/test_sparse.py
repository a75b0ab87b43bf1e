"""Headers with a hole behind them."""

from pathlib import Path

from ggbench.gguf_file.blueprint import build_model
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import write_sparse
from tests.conftest import TINY
from tests.gguf_file.conftest import I32, STRING, U16, Encoder


def test_a_model_with_no_file(tmp_path: Path) -> None:
    planned = build_model(TINY, "tiny")
    path = write_sparse(planned, tmp_path)
    found = read_model_file(path)
    assert found.tensors == planned.tensors
    assert path.stat().st_size == planned.file_bytes > 3_000_000
    assert path.stat().st_blocks * 512 < 200_000


def test_a_file_that_is_its_header_alone(tiny_twin: Path, tmp_path: Path) -> None:
    """What a download has begun with is enough; the copy is as long as the whole file and the original stays."""
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
