"""Checkpoints in folders: a config.json, and safetensors whose tensors are holes."""

from pathlib import Path

import pytest

from tests.fakes.checkpoints import QWEN2_TINY, write_checkpoint


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny", QWEN2_TINY)
