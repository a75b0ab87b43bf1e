"""The real llama.cpp in a worker."""

from collections.abc import Iterator

import pytest

from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.process import WorkerProcess


@pytest.fixture
def llama() -> Iterator[LlamaEngine]:
    engine = LlamaEngine(lambda: WorkerProcess(timeout_s=60))
    yield engine
    engine.close()
