"""A small twin to measure, what a token of its context takes, and a store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.gguf_file.header import read_model_file
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.store.database import Store


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    return resolve_one(parse_model(str(tiny_twin)))


@pytest.fixture
def kv_bytes(tiny_twin: Path) -> int:
    return read_model_file(tiny_twin).kv_bytes_per_token()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened
