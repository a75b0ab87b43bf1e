"""GGUF models in a folder, by file name alone."""

from pathlib import Path

import pytest

from ggbench.models.local_files import local_variants
from tests.catalog.conftest import MakeFile


@pytest.mark.parametrize("number", [1, 2])
def test_one_shard_selects_all_its_siblings(make_file: MakeFile, number: int) -> None:
    shards = [make_file(f"m-q8_0-0000{n}-of-00002.gguf", 10) for n in (1, 2)]
    make_file("m-q4_0.gguf", 5)
    (variant,) = local_variants(shards[number - 1])
    assert (variant.paths, variant.n_missing) == (tuple(shards), 0)


def test_sidecars_are_left_out(tmp_path: Path, make_file: MakeFile) -> None:
    make_file("mmproj-model-f16.gguf", 9)
    make_file("imatrix.gguf", 9)
    make_file("m-q4_0.gguf", 5)
    assert [variant.quant for variant in local_variants(tmp_path)] == ["q4_0"]


def test_direct_subfolders_are_searched(tmp_path: Path, make_file: MakeFile) -> None:
    make_file("UD-Q4_K_XL/m-UD-Q4_K_XL-00001-of-00001.gguf", 5)
    make_file("a.gguf/m-q2_k.gguf", 3)
    make_file("too/deep/m-q8_0.gguf", 9)
    assert [variant.quant for variant in local_variants(tmp_path)] == ["ud-q4_k_xl", "q2_k"]


def test_broken_link_and_name_with_control_characters(tmp_path: Path, make_file: MakeFile) -> None:
    """A dangling link is not a model; a name that would control the terminal is sanitized."""
    (tmp_path / "gone-q8_0.gguf").symlink_to(tmp_path / "nowhere")
    make_file("red\x1b[31m\u202e-thing.gguf", 5)
    make_file("byte\udcff-q4_0.gguf", 4)
    names = [(variant.name, variant.quant) for variant in local_variants(tmp_path)]
    assert names == [("red[31m-thing", None), ("byte-q4_0", "q4_0")]
