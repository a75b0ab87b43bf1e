"""Projectors: their size, the model that each belongs to, and the file beside a model."""

from pathlib import Path
from typing import cast

import pytest

from ggbench.engines.llama.config import FlashAttn
from ggbench.errors import BadFile
from ggbench.hub.access import HubAccess
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.sizing.projectors import find_projector, published_projector, read_projector
from tests.fakes.projector import a_projector

VIT = {
    "image_size": 224, "patch_size": 14, "embedding_length": 768, "feed_forward_length": 3072,
    "attention.head_count": 12,
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mmproj-model-f16.gguf"


def test_its_tensors_are_counted_and_its_buffer_bounded_where_the_header_allows(path: Path) -> None:
    path.write_bytes(a_projector())
    plain = read_projector(path)
    assert (plain.weight_bytes, plain.compute_bytes) == (4 << 20, 0)
    path.write_bytes(a_projector(vision=VIT))
    image = read_projector(path)
    assert 257 * 4 * (768 + 3072) < image.compute_bytes < 64 << 20
    assert read_projector(path, "on") == image
    assert read_projector(path, "off").compute_bytes - image.compute_bytes == 2 * 12 * 257**2 * 4


@pytest.mark.parametrize("flash_attn", ["auto", "off"])
def test_one_of_the_catalog_has_the_buffer_of_its_file(path: Path, flash_attn: FlashAttn) -> None:
    """llama-server warms it up however it is named."""
    known = load_catalog().model("qwen3.8-27b")
    named = published_projector(parse_model("qwen3.8-27b"), cast("HubAccess", None), flash_attn)
    path.write_bytes(a_projector(vision=known.mmproj_vision | {"image_size": 768}))
    assert named.weight_bytes == known.mmproj_bytes
    assert named.compute_bytes == read_projector(path, flash_attn).compute_bytes > 500 << 20


def beside(path: Path) -> Path:
    return find_projector(Path("auto"), parse_model(str(path)))


def test_the_one_beside_a_model(tmp_path: Path) -> None:
    model = tmp_path / "model-q4_0.gguf"
    with pytest.raises(BadFile, match=r"no projector \(mmproj\*.gguf\) in "):
        beside(model)
    for name in ("mmproj-BF16.gguf", "mmproj-F32.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(BadFile, match="2 projectors in ") as refused:
        beside(model)
    assert refused.value.hint == "choose one with --mmproj: mmproj-BF16.gguf, mmproj-F32.gguf"
    (tmp_path / "mmproj-F16.gguf").touch()
    assert beside(model) == beside(tmp_path) == tmp_path / "mmproj-F16.gguf"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (a_projector("llama"), "is a model of the architecture llama, not a projector"),
        (a_projector(type_id=999), "has tensors of unknown type"),
        (b"not a GGUF", "mmproj.gguf"),
    ],
)
def test_another_file_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mmproj.gguf"
    path.write_bytes(content)
    with pytest.raises(BadFile, match=said):
        read_projector(path)
