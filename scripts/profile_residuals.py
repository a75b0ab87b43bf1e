"""Speeds by a device profile alone beside what the models then take here, as the Markdown table of EVIDENCE.md.

A profile is taken first unless --profile names one of this machine. Each file, or twin of all layers, is timed near the
beginning, behind 4,096 tokens and over a prompt of 512, three times; as in the profile, the fastest time counts, since
other programs only slow it down. The load average is printed beside each: a table counts only if nothing else ran.
Exit code 1 if a step is off by more than 10 %.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import DecodeAtDepth, Engine, Prefill, Source, Workload
from ggbench.engines.endings import Completed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.profile import MachineProfile, find_profile
from ggbench.models.reference import parse_model
from ggbench.models.targets import materialize, resolve_one
from ggbench.runs.session import RunContext, run_context
from ggbench.sizing.placement import Placement
from ggbench.sizing.profiling import take_profile
from ggbench.sizing.work import profiled_speed
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_estimate import prefill_ms_at, step_ms_at

CASES = (
    "twin:qwen3-0.6b:q8_0", "twin:gemma-3-1b:q4_k_m", "twin:qwen1.5-0.5b:q4_k_m", "twin:qwen1.5-1.8b:q5_k_m",
    "twin:qwen2.5-3b:q4_k_m", "twin:qwen1.5-moe-a2.7b:q4_k_m", "twin:qwen1.5-7b:q4_k_m",
)  # fmt: skip
N_DEPTH, N_PROMPT, LOADS, AIM = 4096, 512, 3, 0.10


class Figure(msgspec.Struct, frozen=True):
    """One figure of a case, in ms."""

    name: str
    expected: Expected
    measured: float

    @property
    def error(self) -> float:
        return self.expected.value / self.measured - 1

    @property
    def is_within(self) -> bool:
        return self.expected.low <= self.measured <= self.expected.high


def main() -> int:
    """Print a row of the table for each figure of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=CASES, help="MODEL:QUANT, or files")
    parser.add_argument("--profile", help="a profile of this machine, instead of a new one")
    parser.add_argument("--remove", action="store_true", help="delete the twins that this writes")
    asked = parser.parse_args()
    profile = find_profile(asked.profile) if asked.profile else take_profile(lambda text: print(text, file=sys.stderr))
    print(f"profile of {profile.host.name}, noise {profile.noise:.1%}\n")
    print("| model | figure | by the profile, ms | measured ms | off by | within its interval | load |")
    print("|---|---|---:|---:|---:|---|---:|")
    rig, found = run_context(None, needs_bandwidth=False), list[Figure]()
    for model in asked.models:
        target = resolve_one(parse_model(model))
        was_there = target.path is not None
        path = materialize(target).paths[0]
        for each in _figures(profile, path, [_measured_ms(rig, path) for _ in range(LOADS)]):
            expected, within = each.expected, "yes" if each.is_within else "no"
            interval = f"{expected.value:.1f} ({expected.low:.1f}–{expected.high:.1f})"
            name, load = f"{target.model} {target.quant}", os.getloadavg()[0]
            row = (name, each.name, interval, f"{each.measured:.1f}", f"{each.error:+.1%}", within, f"{load:.1f}")
            print(f"| {' | '.join(row)} |", flush=True)
            found.append(each)
        if asked.remove and not was_there:
            path.unlink()
    steps = [abs(each.error) for each in found if not each.name.startswith("prompt")]
    n_within = sum(each.is_within for each in found)
    print(f"\n{n_within} of {len(found)} within their intervals; steps: worst {max(steps):.1%}, "
          f"median {statistics.median(steps):.1%}")  # fmt: skip
    return 0 if max(steps) <= AIM else 1


def _figures(profile: MachineProfile, path: Path, measured: Sequence[tuple[float, float, float]]) -> Iterator[Figure]:
    file, setup = read_model_file(path), LlamaConfig()
    known = profiled_speed(profile, file, Placement(file, setup, on_gpu=False), setup)
    assert known is not None, f"the profile says nothing of {path.name}"
    near, far, prompt = (min(each) for each in zip(*measured, strict=True))
    yield Figure("at 1", step_ms_at(known, 1), near)
    yield Figure("at 4,096", step_ms_at(known, N_DEPTH), far)
    if (expected := prefill_ms_at(known, N_PROMPT)) is not None:
        yield Figure("prompt of 512", expected, prompt)


def _measured_ms(rig: RunContext, path: Path) -> tuple[float, float, float]:
    """Return a step near the beginning, one behind the long context, and a prompt, of one load."""
    setup = replace(LlamaConfig(), threads=rig.threads, n_ctx=N_DEPTH + 256)
    with contextlib.closing(rig.launch(setup, rig.cancel)) as engine:
        *_, ending = engine.open(Source(path), setup)
        assert ending == Completed(), ending
        _step_ms(engine, DecodeAtDepth(1, 8))  # memory costs more at its first use
        near, far = (_step_ms(engine, DecodeAtDepth(n_depth, 8)) for n_depth in (1, N_DEPTH))
        prompts = [event for event in engine.run(Prefill(N_PROMPT, 1, 1)) if isinstance(event, PromptRead)]
    return near, far, prompts[0].elapsed_ns / 1e6


def _step_ms(engine: Engine, workload: Workload) -> float:
    (steps,) = (event for event in engine.run(workload) if isinstance(event, Steps))
    return statistics.median(steps.step_ns) / 1e6


if __name__ == "__main__":
    sys.exit(main())
