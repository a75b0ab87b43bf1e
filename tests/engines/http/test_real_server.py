"""The real llama-server on a twin, against ggbench's own engine; LLAMA_SERVER names the program."""

import os
import shutil
from pathlib import Path

import pytest

from ggbench.commands.measure_options import run_by
from ggbench.engines.contract import Decode, Source, launch_engine
from ggbench.engines.endings import Completed
from ggbench.engines.events import Allocated, Steps
from ggbench.engines.llama.config import LlamaConfig

PROGRAM = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")


@pytest.mark.llama
@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="no llama-server on PATH or in LLAMA_SERVER")
def test_its_buffers_and_steps_are_those_of_ggbenchs_own_engine(tiny_twin: Path) -> None:
    """The same file, flags and positions: the same caches, and a time for each of the same tokens."""
    setup = LlamaConfig(n_ctx=512, threads=1, n_gpu_layers=0)
    found = []
    for each in (setup, run_by(f"llama-server={PROGRAM}", setup)):
        engine = launch_engine(each)
        try:
            events = [*engine.open(Source(tiny_twin), each), *engine.run(Decode(25, 40))]
        finally:
            engine.close()
        assert events[-1] == Completed(), events[-1].reason  # type: ignore[union-attr]
        allocated = [event for event in events if isinstance(event, Allocated)][-1]
        steps = [event for event in events if isinstance(event, Steps)]
        found.append((allocated.total("kv_bytes"), steps[0].first_position, sum(len(step.step_ns) for step in steps)))
    assert found[0] == found[1]
