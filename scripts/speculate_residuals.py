"""What `ggbench speculate` predicts beside what llama-server then does, as the Markdown table of EVIDENCE.md.

The server accepts drafted tokens at random, with the mean length of a step given by --spec-synth-len, whatever the
models say, so twins will do. Each k is timed without drafts and at each length, by the server's own clock; ggbench
measures the pair before and after. The prediction is for the length that the server's random numbers gave, and for the
mean number of tokens that it drafted, since the last steps of an answer draft fewer. It is the server's time without
drafts over the predicted speed-up. On a shared machine only a table made while nothing else runs is meaningful. Exit
code 1 where fewer than 90 % of the times are within 10 %.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import DecodeAtDepth, Source
from ggbench.engines.endings import Completed
from ggbench.engines.events import RequestEnded
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.engines.llama_server.config import LlamaServerConfig
from ggbench.engines.llama_server.engine import launch
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import SpeculateResult, SpeculateSettings, SpeculationCase
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin, with_vocabulary
from ggbench.machine.host import default_threads
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import run_context
from ggbench.stats.intervals import Expected
from scripts.peer_programs import find_or_build, peer_environment
from scripts.whole_models import Residual

KS, LENS, DEPTHS = (1, 3, 5, 8), (1.0, 1.5, 2.0, 3.0, 4.0), (0, 4096)
AIM, SHARE = 0.10, 0.90
N_STEPS, SHORTEST = 24, 64
"""Steps to time at each length, and the fewest tokens."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A model and its draft, each cut to some layers, since every timing reads a prompt of 4,096 tokens first."""

    model: str
    layers: int
    draft: str
    draft_layers: int

    @property
    def name(self) -> str:
        return f"{self.draft} ({self.draft_layers} layers) for {self.model} ({self.layers} layers)"


PAIRS = {
    "7b": Pair("qwen2.5-7b:q4_k_m", 4, "qwen2.5-0.5b:q8_0", 6),
    "1.8b": Pair("qwen1.5-1.8b:q4_k_m", 12, "qwen1.5-0.5b:q8_0", 6),
    "moe": Pair("qwen1.5-moe-a2.7b:q4_k_m", 6, "qwen1.5-0.5b:q4_k_m", 6),
    "window": Pair("gemma-3-4b:q4_k_m", 12, "gemma-3-1b:q4_k_m", 6),
}


@dataclass(frozen=True, slots=True)
class Served:
    """One answer of the server."""

    ms_per_token: float
    mean_len: float
    mean_drafted: float


def main() -> int:
    """Predict and measure each pair, and print a row of the table for each time."""
    asked = _parser().parse_args()
    peers = find_or_build(asked.peers, default_threads(), None)
    os.environ.update(peer_environment())
    print("| pair | case | predicted ms/token | measured | off by | within its interval | mean length |")
    print("|---|---|---:|---:|---:|---|---:|", flush=True)
    found: list[Residual] = []
    for name in asked.pairs:
        pair, program = PAIRS[name], peers.folder / "llama-server"
        with _files(pair, remove=asked.remove) as (target, draft):
            before = _predicted(target, draft, asked.k, asked.depths)
            served: dict[_Case, tuple[Served, float]] = {}
            for drafted in asked.k:
                served |= _served(program, target, draft, drafted, asked.lengths, asked.depths)
            result = _joined([before, _predicted(target, draft, asked.k, asked.depths)])
            for (k, depth, length), (answer, off_ms) in served.items():
                cases = [case for case in result if case[0].n_depth == depth]
                case_name, expected = f"k {k}, L {length:g}, depth {depth:,}", _expected(cases, answer, off_ms)
                residual = Residual(case_name, expected, answer.ms_per_token)
                residual.show(name, f"{answer.mean_len:.2f}")
                found.append(residual)
    n_near = sum(abs(each.error) <= AIM for each in found)
    n_within = sum(each.is_within for each in found)
    worst = max(abs(each.error) for each in found)
    print(f"\n{n_near} of {len(found)} within {AIM:.0%}, {n_within} within their intervals; worst {worst:.1%}")
    return 0 if n_near >= SHARE * len(found) else 1


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("pairs", nargs="*", default=list(PAIRS), choices=[*PAIRS, []], help="default: all")
    made.add_argument("--peers", type=Path, help="folder of llama.cpp's programs; built if omitted")
    made.add_argument("--remove", action="store_true", help="delete the twins that this writes")
    made.add_argument("-k", type=_integers, default=KS, metavar="N,...")
    made.add_argument("--depths", type=_integers, default=DEPTHS, metavar="N,...")
    made.add_argument("--lengths", type=lambda text: tuple(map(float, text.split(","))), default=LENS, metavar="L,...")
    return made


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@contextlib.contextmanager
def _files(pair: Pair, *, remove: bool) -> Iterator[tuple[Path, Path]]:
    """Write the two twins, cut to the pair's layers. The engine of the server gives them a vocabulary."""
    found = []
    for ref, n_layer in ((pair.model, pair.layers), (pair.draft, pair.draft_layers)):
        model, quant = ref.split(":")
        found.append(cached_twin(model, load_catalog().model(model).hyper, quant, paths.twins_dir(), n_layer))
    try:
        yield found[0], found[1]
    finally:
        for path in found if remove else ():
            with_vocabulary(read_model_file(path), paths.twins_dir()).unlink()
            path.unlink()


_Case = tuple[int, int, float]
"""k, depth and the length that was asked for."""


def _served(
    program: Path, target: Path, draft: Path, k: int, lengths: Sequence[float], depths: Sequence[int]
) -> dict[_Case, tuple[Served, float]]:
    """Return the server's answers for each case, with its ms per token without drafts, timed before and after."""
    first = _answers(program, target, None, k, 1.0, depths)
    drafted = {
        (k, depth, length): answer
        for length in lengths
        if length <= k + 1
        for depth, answer in _answers(program, target, draft, k, length, depths).items()
    }
    last = _answers(program, target, None, k, 1.0, depths)
    off_ms = {depth: statistics.fmean(each[depth].ms_per_token for each in (first, last)) for depth in depths}
    return {case: (answer, off_ms[case[1]]) for case, answer in drafted.items()}


def _answers(
    program: Path, target: Path, draft: Path | None, k: int, length: float, depths: Sequence[int]
) -> dict[int, Served]:
    """Start the server, and return an answer behind each depth; the first is an untimed one."""
    n_gen = max(SHORTEST, round(N_STEPS * length))
    synthetic = "" if draft is None else f" --spec-draft-p-min 0 --spec-synth-len {length:g}"
    n_ctx = whole_steps(max(depths) + n_gen + k + 2)
    setup = LlamaConfig(threads=default_threads(), n_ctx=n_ctx, n_gpu_layers=0)
    config = LlamaServerConfig.of_command(f"{program}{synthetic}", setup)
    if draft is not None:
        config = replace(config, spec_type="draft-simple", n_draft=k)
    found: dict[int, Served] = {}
    with contextlib.closing(launch(threading.Event())) as engine:
        *_, ending = engine.open(Source(target, draft), config)
        assert ending == Completed(), ending
        for depth in (0, *depths):
            *events, ending = engine.run(DecodeAtDepth(depth, n_gen))
            assert ending == Completed(), ending
            (timing,) = (event.timing for event in events if isinstance(event, RequestEnded))
            assert timing.server_gen_ns is not None
            n_tokens, n_accepted = timing.n_tokens - 1, timing.n_accepted or 0
            n_steps = n_tokens - n_accepted
            ms = timing.server_gen_ns / 1e6 / n_tokens
            found[depth] = Served(ms, n_tokens / n_steps, (timing.n_drafted or 0) / n_steps)
    return found


_Measured = tuple[SpeculationCase, ...]


def _predicted(target: Path, draft: Path, ks: Sequence[int], depths: Sequence[int]) -> _Measured:
    """Return what ggbench measures of the pair with its own engine."""
    model, drafting = (resolve_one(parse_model(str(path))) for path in (target, draft))
    settings = SpeculateSettings(n_drafted=tuple(ks), depths=tuple(depths))
    job = Job(EXPERIMENT, model, LlamaConfig(n_gpu_layers=0), settings, draft=drafting)
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    if end.error is not None:
        raise end.error
    assert end.run.is_complete and isinstance(end.run.result, SpeculateResult), end.run.reason
    return end.run.result.cases


def _joined(runs: Sequence[_Measured]) -> list[_Measured]:
    """Return the cases of all runs that are of the same k and depth."""
    return list(zip(*runs, strict=True))


def _expected(cases: Sequence[_Measured], answer: Served, off_ms: float) -> Expected:
    """Return the ms per token for an answer's own length and mean draft, by the mean of the runs."""
    ks = [0, *(each[0].k for each in cases)]
    times = cases[0][0].step.times

    def at(end: str) -> float:
        lens = [1.0, *(statistics.fmean(getattr(run.step.break_even, end) for run in each) for each in cases)]
        return off_ms / times.speedup(answer.mean_len, float(np.interp(answer.mean_drafted, ks, lens)))

    return Expected(at("value"), at("low"), at("high"))


if __name__ == "__main__":
    sys.exit(main())
