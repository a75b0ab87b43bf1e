"""Files with a name and a size only."""

from collections.abc import Callable
from pathlib import Path

import pytest

MakeFile = Callable[[str, int], Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def make_file(folder: Path) -> MakeFile:
    def make(name: str, n_bytes: int) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.truncate(n_bytes)
        return path

    return make
