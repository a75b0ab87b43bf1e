"""Scoring a text, with the real llama.cpp on a tiny twin, whose weights say nothing but are the same for everyone."""

import itertools
import math
import os
import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from ggbench.engines.contract import RowsFile, Score, Tokenize
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.events import Scored
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.process import WorkerProcess
from tests.conftest import TINY

pytestmark = pytest.mark.llama

N_CTX, FIRST = 32, 16
SETUP = LlamaConfig(n_ctx=512, n_batch=128, n_ubatch=128, threads=1, n_seq_max=2, n_outputs_max=64)


@pytest.fixture
def worker(tiny_twin: Path) -> Iterator[WorkerProcess]:
    with closing(WorkerProcess(timeout_s=60)) as process:
        assert list(process.call(LoadModel(str(tiny_twin), SETUP)))[-1] == Completed()
        assert list(process.call(MakeContext(SETUP)))[-1] == Completed()
        yield process


@pytest.fixture
def chunks() -> tuple[tuple[int, ...], ...]:
    rng = random.Random(1)
    return tuple(tuple(rng.randrange(TINY.n_vocab) for _ in range(N_CTX)) for _ in range(2))


def _parts(chunks: tuple[tuple[int, ...], ...], starts: list[int]) -> Iterator[Score]:
    for start, stop in zip(starts, [*starts[1:], N_CTX - 1], strict=True):
        targets = tuple(chunk[start + 1 : stop + 1] if start >= FIRST else () for chunk in chunks)
        yield Score(chunks, targets, start, stop, 2)


def _scored(worker: WorkerProcess, request: Score) -> Scored:
    *events, ending = worker.call(request)
    assert ending == Completed()
    (found,) = (event for event in events if isinstance(event, Scored))
    return found


def test_a_text_in_parts_scores_as_the_whole(worker: WorkerProcess, chunks: tuple[tuple[int, ...], ...]) -> None:
    whole = [_scored(worker, part) for part in _parts(chunks, [0, FIRST])][-1]
    assert len(whole.nll) == 2 * (N_CTX - 1 - FIRST)
    assert not whole.kld
    parts = [_scored(worker, part) for part in _parts(chunks, [0, 7, FIRST, 20, 30])]
    for seq in range(2):
        n = N_CTX - 1 - FIRST
        pieces = [part.nll[seq * len(part.nll) // 2 : (seq + 1) * len(part.nll) // 2] for part in parts]
        assert [*itertools.chain.from_iterable(pieces)] == pytest.approx(whole.nll[seq * n : (seq + 1) * n], rel=1e-3)


@pytest.mark.parametrize(("row_format", "largest"), [("f32", 0.0), ("u16", 1e-4)])
def test_a_model_is_compared_with_the_rows_of_its_base(
    worker: WorkerProcess, chunks: tuple[tuple[int, ...], ...], tmp_path: Path, row_format: str, largest: float
) -> None:
    path = tmp_path / "rows"
    path.touch()
    os.truncate(path, 1 << 20)
    n = N_CTX - 1 - FIRST
    rows = msgspec.convert(
        {"path": str(path), "format": row_format, "first_row": 0, "rows_per_chunk": n,
         "first_position": FIRST, "writes": True}, RowsFile
    )  # fmt: skip
    read, scored = _parts(chunks, [0, FIRST])
    for writes in (True, False):
        _scored(worker, read)
        found = _scored(worker, msgspec.structs.replace(scored, rows=msgspec.structs.replace(rows, writes=writes)))
        assert bool(found.kld) is not writes
    assert len(found.kld) == len(found.base_nll) == len(found.p_diff) == 2 * n
    assert max(map(abs, found.kld)) <= largest
    assert found.base_nll == pytest.approx(found.nll, abs=1e-3)
    assert sum(found.same_top) == 2 * n or row_format == "u16"


@pytest.mark.parametrize("writes", [False, True])
def test_a_broken_models_logits_are_not_numbers(
    tiny_twin: Path, chunks: tuple[tuple[int, ...], ...], tmp_path: Path, writes: bool
) -> None:
    from gguf import GGUFReader

    broken, path = tmp_path / "broken.gguf", tmp_path / "rows"
    broken.write_bytes(tiny_twin.read_bytes())
    (norm,) = (each for each in GGUFReader(broken, "r+").tensors if each.name == "blk.0.attn_norm.weight")
    norm.data[:] = math.nan
    path.write_bytes(bytes(1 << 20))
    rows = RowsFile(str(path), "f32", 0, N_CTX - 1 - FIRST, FIRST, writes=True) if writes else None
    with closing(WorkerProcess(timeout_s=60)) as process:
        assert list(process.call(LoadModel(str(broken), SETUP)))[-1] == Completed()
        assert list(process.call(MakeContext(SETUP)))[-1] == Completed()
        read, scored = _parts(chunks, [0, FIRST])
        _scored(process, read)
        ending = list(process.call(msgspec.structs.replace(scored, rows=rows)))[-1]
    assert isinstance(ending, Failed)
    assert f"the {'base' if writes else 'model'}'s logits contain NaN or Inf" in ending.reason


def test_what_cannot_be_scored_is_refused(worker: WorkerProcess, chunks: tuple[tuple[int, ...], ...]) -> None:
    """A text for a model without a tokenizer, and more chunks than the context has sequences."""
    ending = list(worker.call(Tokenize("some text")))[-1]
    assert isinstance(ending, Failed) and "no tokenizer" in ending.reason
    request, _ = _parts((*chunks, chunks[0]), [0, FIRST])
    assert isinstance(list(worker.call(request))[-1], Failed)
