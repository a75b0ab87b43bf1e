"""A small twin to measure, and what a token of its context takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggbench.catalog.selector import Target, resolve_one
from ggbench.gguf_file.header import read_model_file


@pytest.fixture
def target(tiny_twin: Path) -> Target:
    """The tiny twin, by its path."""
    return resolve_one(str(tiny_twin))


@pytest.fixture
def kv_bytes(tiny_twin: Path) -> int:
    """Of one token."""
    return read_model_file(tiny_twin).kv_bytes_per_token()
