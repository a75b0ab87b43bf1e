"""Steps of speculative decoding with the real llama.cpp, a tiny twin drafting for itself."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggbench.engines.contract import Speculate
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.events import Speculated
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=512, n_batch=64, n_ubatch=64, threads=1, n_outputs_max=9)


@pytest.fixture
def worker(tiny_twin: Path) -> Iterator[WorkerProcess]:
    with WorkerProcess(timeout_s=60) as process:
        assert list(process.call(LoadModel(str(tiny_twin), SETUP)))[-1] == Completed()
        assert list(process.call(MakeContext(SETUP)))[-1] == Completed()
        yield process


def test_every_part_of_every_step_is_timed_again_and_again(worker: WorkerProcess, tiny_twin: Path) -> None:
    """The caches are as before after each step, or a later one would find no cell."""
    for n_depth in (0, 300):
        workload = Speculate(n_depth, (1, 8), 2, n_passes=30, draft=str(tiny_twin))
        *items, last = worker.call(workload)
        passes = [item for item in items if isinstance(item, Speculated)]
        assert last == Completed() and len(passes) == 30
        for each in passes:
            assert len(each.single_ns) == 2 and min(*each.single_ns, each.sampler_ns) > 0
            assert [step.n_drafted for step in each.steps] == [1, 8]
            for step in each.steps:
                assert 0 < step.draft_ns + step.verify_ns + step.reread_ns < step.step_ns
                assert min(step.draft_ns, step.verify_ns, step.reread_ns) > 0


def test_without_a_draft_only_the_models_part_is_timed(worker: WorkerProcess) -> None:
    *items, last = worker.call(Speculate(8, (3,), 1))
    assert last == Completed()
    (found,) = (item for item in items if isinstance(item, Speculated))
    (step,) = found.steps
    assert step.draft_ns == step.reread_ns == 0 < step.verify_ns


def test_more_drafted_tokens_than_the_context_has_outputs_are_refused(worker: WorkerProcess) -> None:
    *_, last = worker.call(Speculate(0, (9,), 1))
    assert isinstance(last, Failed) and "10 outputs" in last.reason
