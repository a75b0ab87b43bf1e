"""Results that the tools really wrote, and a store to import them into."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench.formats.imported_run import ImportedRun
from ggbench.formats.importing import read_runs

PEERS = Path(__file__).parent.parent / "data" / "peers"
"""SmolLM2-135M-Instruct Q4_1 on two cores: `llama-bench -p 64 -n 16 -d 0,256,512 -r 2` in each of its
formats."""

ReadRuns = Callable[..., list[ImportedRun]]


@pytest.fixture
def read(tmp_path: Path) -> ReadRuns:
    def read_file(name: str, text: str | None = None) -> list[ImportedRun]:
        path = PEERS / name
        if text is not None:
            path = tmp_path / name
            path.write_text(text)
        return list(read_runs(path))

    return read_file
