"""GGUF models in a folder, by file name alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggbench.errors import BadFile
from ggbench.models.local_files import local_variants
from tests.catalog.conftest import MakeFile


def test_variants_come_largest_first_with_their_quants_in_lower_case(tmp_path: Path, make_file: MakeFile) -> None:
    make_file("qwen1_5-0_5b-chat-q4_k_m.gguf", 400)
    make_file("Qwen1.5-0.5B-Q8_0.GGUF", 800)
    make_file("README.md", 10)
    assert [(v.quant, v.file_bytes) for v in local_variants(tmp_path)] == [("q8_0", 800), ("q4_k_m", 400)]


def test_shards_are_one_variant(tmp_path: Path, make_file: MakeFile) -> None:
    make_file("m-q8_0-00002-of-00003.gguf", 20)
    first = make_file("m-q8_0-00001-of-00003.gguf", 30)
    (variant,) = local_variants(tmp_path)
    assert (variant.name, variant.quant, variant.file_bytes, variant.n_missing) == ("m-q8_0", "q8_0", 50, 1)
    assert variant.paths[0] == first


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


@pytest.mark.parametrize("name", ["nowhere", "file.gguf/below", "x" * 300, "/dev/null"])
def test_an_invalid_place_is_one_clear_error(tmp_path: Path, make_file: MakeFile, name: str) -> None:
    make_file("file.gguf", 1)
    with pytest.raises(BadFile):
        local_variants(tmp_path / name)
