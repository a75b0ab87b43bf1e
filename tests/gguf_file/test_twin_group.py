"""Twins that share a file, read as llama.cpp reads split models."""

from pathlib import Path

from ggbench.gguf_file.blueprint import build_model
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import twin_of
from ggbench.gguf_file.twin_writer import group_twins
from tests.conftest import TINY


def test_twins_share_what_is_outside_their_layers(tmp_path: Path) -> None:
    model = build_model(TINY, "tiny")
    twins = [twin_of(model, "tiny", layers) for layers in ((0,), (0, 1))]
    group = group_twins(twins)
    paths = [group.write(number, tmp_path) for number in (0, 1)]
    for path, twin in zip(paths, twins, strict=True):
        found = read_model_file(path)
        assert {each.name for each in found.tensors} == {each.name for each in twin.tensors}
        assert (found.n_layer, found.shape_key) == (twin.n_layer, twin.shape_key)
    on_disk = sum(path.stat().st_size for path in tmp_path.iterdir() if not path.is_symlink())
    assert on_disk == group.file_bytes < sum(twin.file_bytes for twin in twins)
