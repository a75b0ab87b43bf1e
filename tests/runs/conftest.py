"""A small twin to measure, and a store for what is recorded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_one
from ggbench.runs.store.database import Store


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    return resolve_one(parse_model(str(tiny_twin)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "results.sqlite") as opened:
        yield opened
