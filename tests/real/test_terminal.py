"""The progress of `quality`, which needs a trained model, in a terminal of its own."""

from pathlib import Path

import pytest

from tests.cli.test_terminal import check

pytestmark = [pytest.mark.real, pytest.mark.llama]


def test_quality_draws_its_progress_without_an_error(smollm2: Path) -> None:
    types = ["--type-k", "q8_0", "--type-v", "q8_0"]
    check(["quality", str(smollm2), "--chunks", "1", "--n-ctx", "64", "--threads", "1", *types])
