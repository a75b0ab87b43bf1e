"""The projector beside a model, from its header."""

from pathlib import Path

import pytest

from ggbench.errors import BadFile
from ggbench.gguf_file.header import Projector, read_projector
from tests.fakes.projector import a_projector


def test_its_tensors_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "mmproj-model-f16.gguf"
    path.write_bytes(a_projector(n_rows=3))
    assert read_projector(path) == Projector(path, 2 * 6 * 3 + 4 * 3)


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
