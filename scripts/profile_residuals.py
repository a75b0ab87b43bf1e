"""Speeds by a device profile alone beside what the models then take here, as the Markdown table of EVIDENCE.md.

A profile is taken first unless --profile names one of this machine. Each file, or twin of all layers, is timed near the
beginning, behind 4,096 tokens and over a prompt of 512, three times; as in the profile, the fastest time counts, since
other programs only slow it down. The load average is printed beside each: a table counts only if nothing else ran.
Exit code 1 if a step is off by more than 10 %.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from ggbench.engines.llama.config import LlamaConfig
from ggbench.gguf_file.header import read_model_file
from ggbench.machine.profile import MachineProfile, find_profile
from ggbench.runs.session import run_context
from ggbench.sizing.placement import Placement
from ggbench.sizing.profiling import take_profile
from ggbench.sizing.work import profiled_speed
from ggbench.stats.speed_estimate import prefill_ms_at, step_ms_at
from scripts.whole_models import LOADS, N_DEPTH, N_PROMPT, Residual, make_parser, measure_ms, on_disk

CASES = (
    "twin:qwen3-0.6b:q8_0", "twin:gemma-3-1b:q4_k_m", "twin:qwen1.5-0.5b:q4_k_m", "twin:qwen1.5-1.8b:q5_k_m",
    "twin:qwen2.5-3b:q4_k_m", "twin:qwen1.5-moe-a2.7b:q4_k_m", "twin:qwen1.5-7b:q4_k_m",
)  # fmt: skip
AIM = 0.10
ROUNDS = 4


def main() -> int:
    """Print a row of the table for each time of each case."""
    arguments = make_parser(__doc__, CASES)
    arguments.add_argument("--profile", help="a profile of this machine, instead of a new one")
    asked = arguments.parse_args()
    profile = find_profile(asked.profile) if asked.profile else take_profile(lambda text: print(text, file=sys.stderr))
    print(f"profile of {profile.host.name}, noise {profile.noise:.1%}\n")
    print("| model | figure | by the profile, ms | measured ms | off by | within its interval | load |")
    print("|---|---|---:|---:|---:|---|---:|")
    context, found = run_context(None, needs_bandwidth=False), list[Residual]()
    for model in asked.models:
        with on_disk(model, remove=asked.remove) as (target, path):
            for each in _residuals(profile, path, [measure_ms(context, path, ROUNDS) for _ in range(LOADS)]):
                each.show(f"{target.model} {target.quant}", f"{os.getloadavg()[0]:.1f}")
                found.append(each)
    steps = [abs(each.error) for each in found if not each.name.startswith("prompt")]
    n_within = sum(each.is_within for each in found)
    print(f"\n{n_within} of {len(found)} within their intervals; steps: worst {max(steps):.1%}, "
          f"median {statistics.median(steps):.1%}")  # fmt: skip
    return 0 if max(steps) <= AIM else 1


def _residuals(
    profile: MachineProfile, path: Path, measured: Sequence[tuple[float, float, float]]
) -> Iterator[Residual]:
    file, setup = read_model_file(path), LlamaConfig()
    known = profiled_speed(profile, file, Placement(file, setup, on_gpu=False), setup)
    assert known is not None, f"the profile says nothing of {path.name}"
    near, far, prompt = (min(each) for each in zip(*measured, strict=True))
    yield Residual("at 1", step_ms_at(known, 1), near)
    yield Residual("at 4,096", step_ms_at(known, N_DEPTH), far)
    if (expected := prefill_ms_at(known, N_PROMPT)) is not None:
        yield Residual("prompt of 512", expected, prompt)


if __name__ == "__main__":
    sys.exit(main())
