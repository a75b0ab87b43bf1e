"""A decode of several sequences at once, with the real llama.cpp on a tiny twin."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ggbench.engines.contract import BatchedDecode
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.c_functions import lib, llama_library
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.model import LlamaModel
from ggbench.engines.llama.workloads import carry_out
from ggbench.engines.process import WorkerProcess

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=2048, n_batch=64, n_ubatch=64, flash_attn="on", threads=1, n_seq_max=4)


@pytest.fixture
def worker(tiny_twin: Path) -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(timeout_s=60)) as process:
        assert list(process.call(LoadModel(str(tiny_twin), SETUP)))[-1] == Completed()
        assert list(process.call(MakeContext(SETUP)))[-1] == Completed()
        yield process


@pytest.mark.parametrize("n_seqs", [1, 2, 4])
def test_every_step_advances_all_sequences(worker: WorkerProcess, n_seqs: int) -> None:
    items = list(worker.call(BatchedDecode(25, 300, n_seqs)))
    (prompt,) = (item for item in items if isinstance(item, PromptRead))
    assert (prompt.n_prompt, prompt.n_seqs) == (25, n_seqs)
    assert prompt.elapsed_ns > 0
    steps = [item for item in items if isinstance(item, Steps)]
    assert steps[0].first_position == 26
    assert [each.first_position for each in steps[1:]] == [
        each.first_position + len(each.step_ns) for each in steps[:-1]
    ]
    assert sum(len(each.step_ns) for each in steps) == 300
    assert not any(each.sampler_ns for each in steps)
    assert all(step_ns > 0 for each in steps for step_ns in each.step_ns)
    assert items[-1] == Completed()


_KEPT: list[LlamaModel] = []
"""llama.cpp's log goes to them for as long as the process lives."""


def test_every_sequence_has_a_prompt_and_tokens_of_its_own(tiny_twin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = LlamaModel(lambda level, text: None, lambda: None)
    _KEPT.append(model)
    decoded: list[tuple[int, int, int]] = []
    decode = lib.llama_decode

    def record(context: object, batch: Any) -> object:  # noqa: ANN401 - a ctypes structure
        for i in range(batch.n_tokens):
            assert batch.n_seq_id[i] == 1
            decoded.append((batch.seq_id[i][0], batch.pos[i], batch.token[i]))
        return decode(context, batch)

    monkeypatch.setattr(lib, "llama_decode", record)
    model.load(str(tiny_twin), SETUP, GgmlDevices(llama_library()), lambda share: None, dry=False)
    model.make_context(SETUP)
    text = list(model.prompt_tokens(25 + 3))
    carry_out(model, BatchedDecode(25, 40, 4), lambda event: None)
    model.free_context()
    prompts, steps = decoded[: 4 * 25], decoded[4 * 25 :]
    assert prompts == [(seq, position, text[seq + position]) for seq in range(4) for position in range(25)]
    assert [(seq, position) for seq, position, _ in steps] == [(seq, 25 + i) for i in range(40) for seq in range(4)]
    streams = {tuple(token for each, _, token in steps if each == seq) for seq in range(4)}
    assert len(streams) == 4


def test_what_does_not_fit_is_refused_and_the_worker_lives(worker: WorkerProcess) -> None:
    """llama.cpp would abort at more sequences; of too many tokens every step before is reported."""
    items = list(worker.call(BatchedDecode(25, 600, 4)))
    assert sum(len(item.step_ns) for item in items if isinstance(item, Steps)) == 512 - 25
    assert isinstance(items[-1], Failed) and "step 488 of 600" in items[-1].reason
    assert isinstance(list(worker.call(BatchedDecode(25, 5, 5)))[-1], Failed)
    assert list(worker.call(BatchedDecode(25, 5, 4)))[-1] == Completed()
