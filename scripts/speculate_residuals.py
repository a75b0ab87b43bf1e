"""What `ggbench speculate` predicts beside what llama-server then does, as the Markdown table of EVIDENCE.md.

The server accepts drafted tokens at random, with the mean length of a step given by --spec-synth-len, whatever the
models say, so twins will do. Each case is timed beside a server without drafts, in turn, by the servers' own clocks;
ggbench measures the pair before and after. The prediction is for the length that the server's random numbers gave: the
other server's time over the predicted speed-up. On a shared machine only a table made while nothing else runs is
meaningful. Exit code 1 where fewer than 90 % of the times are within 10 %.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.experiments.speculate.measure import EXPERIMENT
from ggbench.experiments.speculate.record import SpeculateResult, SpeculateSettings, SpeculationCase
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.twin import cached_twin, with_vocabulary
from ggbench.machine.host import logical_cpus
from ggbench.models.catalog import load_catalog
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import run_context
from ggbench.stats.intervals import Estimate
from scripts import draft_reports
from scripts.peer_figures import serving
from scripts.peer_programs import Peers, find_or_build, peer_environment
from scripts.whole_models import Residual

KS, LENS, DEPTHS = (1, 3, 5, 8), (1.0, 1.5, 2.0, 3.0, 4.0), (0, 4096)
AIM, SHARE = 0.10, 0.90
N_THREADS = 1
"""Of each model; the machine's last core is for the servers' own threads and for this client."""
ROUNDS, N_STEPS, N_OFF = 5, 10, 12
"""Answers of each case, and the steps of each with drafts and without."""
SPARE, WARM = 40, 200
"""Tokens of an answer that nobody reads, and of one before all others: a server's first seconds are slower."""


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
    "7b": Pair("qwen2.5-7b:q4_k_m", 2, "qwen2.5-0.5b:q8_0", 3),
    "1.8b": Pair("qwen1.5-1.8b:q4_k_m", 4, "qwen1.5-0.5b:q8_0", 2),
    "moe": Pair("qwen1.5-moe-a2.7b:q4_k_m", 3, "qwen1.5-0.5b:q4_k_m", 2),
    "window": Pair("gemma-3-4b:q4_k_m", 6, "gemma-3-1b:q4_k_m", 2),
}


@dataclass(frozen=True, slots=True)
class Served:
    """Answers of the server with drafts, each beside one without."""

    ms_per_token: float
    off_ms: float
    """ms per token without drafts."""
    mean_len: float


def main() -> int:
    """Predict and measure each pair, and print a row of the table for each time."""
    asked = _parser().parse_args()
    if asked.reports:
        return draft_reports.main(prints_costs=asked.costs)
    peers = find_or_build(asked.peers, logical_cpus(), None)
    os.environ.update(peer_environment())
    print("| pair | case | predicted ms/token | measured | off by | within its interval | mean length |")
    print("|---|---|---:|---:|---:|---|---:|", flush=True)
    found: list[Residual] = []
    for name in asked.pairs or PAIRS:
        pair = PAIRS[name]
        with _files(pair, remove=asked.remove) as (target, draft):
            for depth in asked.depths:
                before = _predicted(target, draft, asked.k, depth)
                served = _served(peers, target, draft, asked.k, asked.lengths, depth)
                after = _predicted(target, draft, asked.k, depth)
                for (k, length), answer in served.items():
                    case_name = f"k {k}, L {length:g}, depth {depth:,}"
                    expected = _expected([before[k], after[k]], answer)
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
    made.add_argument("pairs", nargs="*", default=[], choices=[*PAIRS, []], help="default: all")
    made.add_argument("--reports", action="store_true", help="compare with published gains instead")
    made.add_argument(
        "--costs", action="store_true", help="with --reports, print the cost of a row on each device"
    )
    made.add_argument("--peers", type=Path, help="folder of llama.cpp's programs; built if omitted")
    made.add_argument("--remove", action="store_true", help="delete the twins that this writes")
    made.add_argument("-k", type=_integers, default=KS, metavar="N,...")
    made.add_argument("--depths", type=_integers, default=DEPTHS, metavar="N,...")
    made.add_argument(
        "--lengths", type=lambda text: tuple(map(float, text.split(","))), default=LENS, metavar="L,..."
    )
    return made


def _integers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


@contextlib.contextmanager
def _files(pair: Pair, *, remove: bool) -> Iterator[tuple[Path, Path]]:
    """Write the two twins, cut to the pair's layers. The engine of the server gives them a vocabulary."""
    found = []
    for ref, n_layer in ((pair.model, pair.layers), (pair.draft, pair.draft_layers)):
        model, quant = ref.split(":")
        hyper = load_catalog().model(model).hyper
        hyper = replace(hyper, n_layer=n_layer or hyper.n_layer)
        found.append(cached_twin(f"{model}-{hyper.n_layer}-layers", hyper, quant, paths.twins_dir()))
    try:
        yield found[0], found[1]
    finally:
        for path in found if remove else ():
            with_vocabulary(read_model_file(path), paths.twins_dir()).unlink()
            path.unlink()


_Case = tuple[int, float]
"""k and the length that was asked for."""


def _served(
    peers: Peers, target: Path, draft: Path, ks: Sequence[int], lengths: Sequence[float], depth: int
) -> dict[_Case, Served]:
    """Answer each case with drafts and without in turn, by two servers that both keep the prompt in their caches.

    The time of a step is the median of an answer's, in units of those of the answers without drafts before and after
    it, so that what slows the machine for a moment is not in it.
    """
    found = {}
    n_ctx = whole_steps(depth + max(round(N_STEPS * max(lengths)), WARM) + SPARE)
    files = [with_vocabulary(read_model_file(each), paths.twins_dir()) for each in (target, draft)]
    setup = ("-np", 1, "-ngl", 0, "-t", N_THREADS, "-lv", 4)
    with serving(peers, files[0], n_ctx, setup) as off:
        cases = ((k, length) for k in ks for length in lengths if length <= k + 1)
        _answer(off.url, [0], WARM)
        for k, length in cases:
            drafting = ("-md", files[1], "--spec-type", "draft-simple", "-ngld", 0, "--spec-draft-n-max", k)
            synthetic = ("--spec-draft-p-min", 0, "--spec-synth-len", f"{length:g}")
            with serving(peers, files[0], n_ctx, (*setup, *drafting, *synthetic)) as on:
                found[k, length] = _in_turn(off.url, on.url, depth, round(N_STEPS * length))
    return found


def _in_turn(off_url: str, on_url: str, n_depth: int, n_gen: int) -> Served:
    prompt = [1000 + at % 1000 for at in range(n_depth + 1)]
    for url in (off_url, on_url):
        _answer(url, prompt, 1)
    ratios, n_steps, n_tokens = [], 0, 0
    off_ms = [_answer(off_url, prompt, N_OFF).step_ms]
    for _ in range(ROUNDS):
        answer = _answer(on_url, prompt, n_gen)
        off_ms.append(_answer(off_url, prompt, N_OFF).step_ms)
        ratios.append(answer.step_ms / statistics.fmean(off_ms[-2:]))
        n_tokens += answer.n_tokens
        n_steps += answer.n_tokens - answer.n_accepted
    mean_len, ms = n_tokens / n_steps, statistics.median(off_ms)
    return Served(statistics.median(ratios) * ms / mean_len, ms, mean_len)


@dataclass(frozen=True, slots=True)
class _Answer:
    """The tokens of an answer after the one that comes with its prompt."""

    n_tokens: int
    n_accepted: int
    """Those that were drafted."""
    step_ms: float
    """Of its steps, the median."""


def _answer(url: str, prompt: Sequence[int], n_gen: int) -> _Answer:
    """Read an answer to the step that gives at least `n_gen` tokens after the one that came with the prompt.

    It is abandoned then, since the steps at the end of an answer draft fewer tokens.
    """
    asked = {
        "prompt": prompt,
        "n_predict": n_gen + SPARE,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": True,
    }
    asked |= {"stream": True, "timings_per_token": True}
    request = urllib.request.Request(f"{url}/completion", json.dumps(asked).encode())
    last: dict[str, Any] = {"predicted_n": 0, "predicted_ms": 0.0}
    ends_ms: list[float] = []
    with urllib.request.urlopen(request) as response:
        for line in response:
            found = json.loads(line[6:])["timings"] if line.startswith(b"data: ") else last
            if (
                found["predicted_ms"] != last["predicted_ms"]
            ):  # the tokens of a step come one by one, with its time
                if last["predicted_n"]:
                    ends_ms.append(last["predicted_ms"])
                if last["predicted_n"] > n_gen:
                    break
            last = found
    while any(slot["is_processing"] for slot in _get(f"{url}/slots")):
        time.sleep(0.05)
    steps_ms = [after - before for before, after in itertools.pairwise(ends_ms)]
    return _Answer(last["predicted_n"] - 1, last.get("draft_n_accepted", 0), statistics.median(steps_ms))


def _get(url: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(url) as response:
        return json.load(response)


_SWAPPED = ("value", "high", "low")
"""A time is low for a high speed."""


def _predicted(target: Path, draft: Path, ks: Sequence[int], depth: int) -> dict[int, SpeculationCase]:
    """Return what ggbench measures of the pair with its own engine, by k."""
    model, drafting = (resolve_one(parse_model(str(path))) for path in (target, draft))
    settings = SpeculateSettings(n_drafted=tuple(ks), depths=(depth,))
    job = Job(EXPERIMENT, model, LlamaConfig(n_gpu_layers=0, threads=N_THREADS), settings, draft=drafting)
    *_, end = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(end, Finished)
    if end.error is not None:
        raise end.error
    assert end.run.is_complete and isinstance(end.run.result, SpeculateResult), end.run.reason
    return {case.k: case for case in end.run.result.cases}


def _expected(cases: Sequence[SpeculationCase], answer: Served) -> Estimate:
    """Return the ms per token for an answer's own length, by the mean of the runs."""
    found = [case.step.speedup(answer.mean_len) for case in cases]
    return Estimate(
        *(answer.off_ms / statistics.fmean(getattr(each, end) for each in found) for end in _SWAPPED)
    )


if __name__ == "__main__":
    sys.exit(main())
