"""Steps of speculative decoding with the real llama.cpp, a tiny twin drafting for itself."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Speculate
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.events import Speculated
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.worker import Worker
from ggbench.engines.process import WorkerProcess
from ggbench.engines.protocol import EventPipe
from ggbench.errors import BadFile
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import with_vocabulary
from ggbench.sizing.drafts import check_pair

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=512, n_batch=64, n_ubatch=64, threads=1, n_outputs_max=9)


@pytest.fixture
def worker(tiny_twin: Path) -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(timeout_s=60)) as process:
        load(process, tiny_twin, tiny_twin)
        yield process


def load(worker: WorkerProcess, path: Path, draft: Path | None = None) -> None:
    drafting = SETUP.for_draft() if draft else None
    for request in (LoadModel(str(path), SETUP, draft=str(draft or "")), MakeContext(SETUP, drafting)):
        assert list(worker.call(request))[-1] == Completed()


def test_steps_are_timed_again_and_again(worker: WorkerProcess) -> None:
    """The caches are as before after each step, or a later one would find no cell."""
    for n_depth in (0, 300):
        *items, last = worker.call(Speculate(n_depth, (1, 8), 2, n_passes=30))
        passes = [item for item in items if isinstance(item, Speculated)]
        assert last == Completed() and len(passes) == 30
        for each in passes:
            assert (len(each.single_ns), len(each.step_ns)) == (2, 2)
            assert min(*each.single_ns, each.sampler_ns, *each.step_ns) > 0


def test_without_a_draft_nothing_is_timed(tiny_twin: Path) -> None:
    with closing(WorkerProcess(timeout_s=60)) as process:
        load(process, tiny_twin)
        *_, last = process.call(Speculate(8, (3,), 1))
    assert last == Failed("decode", "no draft is loaded")


def test_more_drafted_tokens_than_the_context_has_outputs_are_refused(worker: WorkerProcess) -> None:
    *_, last = worker.call(Speculate(0, (9,), 1))
    assert isinstance(last, Failed) and "10 outputs" in last.reason


def test_mtp_layers_draft_for_the_model_that_was_loaded_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the one before are freed with it, after their context."""
    alive, contexts = set[object](), dict[object, object]()

    class Model:
        """What llama.cpp has of a model; reading freed memory would be seen by chance only."""

        versions: Mapping[str, str] = {}
        tensor_bytes, description, handle = 1, "", None

        def __init__(self, *_: object) -> None: ...

        def add_servers(self, _: object) -> None: ...

        def load(self, *_: object, **__: object) -> None:
            self.free_context()
            assert self.handle not in contexts.values()
            alive.discard(self.handle)
            self.handle = object()
            alive.add(self.handle)

        def make_context(self, _: object) -> tuple[int, int, int]:
            assert self.handle in alive
            contexts[self] = self.handle
            return 512, 64, 64

        def free_context(self) -> None:
            contexts.pop(self, None)

    monkeypatch.setattr("ggbench.engines.llama.worker.LlamaModel", Model)
    context = replace(SETUP, mtp=True, n_gpu_layers=0)
    with Path(os.devnull).open("wb") as events:
        worker = Worker(EventPipe(events.fileno()))
        for setup in (context, replace(context, mmap=False)):
            worker.carry_out(LoadModel("x.gguf", setup))
            worker.carry_out(MakeContext(setup.of_target(), setup.for_draft()))
    assert len(contexts) == 2 and set(contexts.values()) == alive


def test_a_draft_of_unknown_size_is_refused(tiny_twin: Path) -> None:
    file = read_model_file(tiny_twin)
    first, *rest = file.tensors
    newer = replace(file, tensors=(replace(first, type_name="type 97", n_bytes=None), *rest))
    check_pair(newer, file)
    with pytest.raises(BadFile, match="unknown type: type 97"):
        check_pair(file, newer)


def test_a_draft_of_another_vocabulary_is_refused_when_it_is_loaded(tiny_twin: Path, tmp_path: Path) -> None:
    path = with_vocabulary(read_model_file(tiny_twin), tmp_path)
    other = tmp_path / "other.gguf"
    other.write_bytes(path.read_bytes().replace("\u2581100".encode(), "\u2581abc".encode(), 1))
    with closing(WorkerProcess(timeout_s=60)) as process:
        *_, last = process.call(LoadModel(str(path), SETUP, draft=str(other)))
    assert isinstance(last, Failed) and "of the model's vocabulary differs from the draft's" in last.message
