"""Stored runs as rows of llama-bench: each prompt read from an empty cache is pp, each window of a decode tg.

llama-bench's test `tg N @ d D` times N steps after D tokens in the cache, one token at a time: the same as the steps at
positions D+1 to D+N of a decode. So a decode gives one row for all its steps, after its prompt, and one for each
window; repetitions are samples. llama-bench has no test for batches of several sequences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from ggbench.formats.llama_bench import FIELDS, TOOL, BenchRow, measured_row
from ggbench.machine.records import Cell, Environment, ImportedRow
from ggbench.record import Record
from ggbench.runs.recording import ModelDescribed, PromptTiming, Recording, Series
from ggbench.runs.run import Run
from ggbench.runs.store.runs import WARMUP, utc_text
from ggbench.stats.decode_timing import DecodeWindow

WINDOW = 128
"""Tokens of a window: llama-bench's own n_gen."""
DEPTHS = tuple(1 << power for power in range(8, 21))
"""Depths at which windows start, up to the end of the decode."""

_AT_DEPTH = re.compile(r"^decode/d(\d+)/")
_ALONE = re.compile(r"(?:^|/)b1(?:/|$)")
_SPLIT = re.compile(r"(?:^|\|)\s*(\w+)\s*:")
"""A backend in llama.cpp's line of features: `CUDA : ARCHS = 890 | CPU : AVX2 = 1`."""


class ExportedRun(Record):
    run_id: int | None
    rows: tuple[BenchRow, ...]
    """Empty if llama-bench has no such test."""
    unknown: tuple[str, ...] = ()
    """Fields with llama-bench's default, as they are unknown for the run."""


def export_run(run: Run, recording: Recording) -> ExportedRun:
    """Return the rows of a run; those of an imported run unchanged."""
    kept = [each for each in recording.of(ImportedRow) if each.tool == TOOL]
    if kept:
        rows = [BenchRow.from_record(each) for each in kept]
    else:
        fields = _fields(run, recording)
        times = [*_prompts(recording), *_decodes(recording)]
        rows = [
            measured_row({**fields, "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": n_depth}, samples_ns)
            for (n_prompt, n_gen, n_depth), samples_ns in times
            if min(samples_ns) > 0  # lines of a server that arrived together took no time
        ]
    unknown = tuple(dict.fromkeys(name for row in rows for name in row.unknown))
    return ExportedRun(run.run_id, tuple(rows), unknown)


_Times = tuple[tuple[int, int, int], Sequence[int]]
"""n_prompt, n_gen and n_depth of a test, with the time of each repetition in ns."""


def _prompts(recording: Recording) -> list[_Times]:
    found: dict[tuple[int, int, int], list[int]] = {}
    for each in recording.of(PromptTiming):
        if each.n_seqs == 1:
            found.setdefault((each.n_prompt, 0, each.n_depth), []).append(each.elapsed_ns)
    return sorted(found.items())


def _decodes(recording: Recording) -> list[_Times]:
    """Return every decode of a single sequence, as a whole and in windows."""
    found: dict[tuple[int, int, int], list[int]] = {}
    for name, series in recording.series.items():
        if _ALONE.search(name) and not name.startswith(WARMUP) and series.step_ns:
            asked = _AT_DEPTH.match(name)
            whole = {(len(series.step_ns), int(asked[1])): sum(series.step_ns)} if asked else None
            for (n_gen, n_depth), elapsed_ns in (whole or _stretches(series)).items():
                found.setdefault((0, n_gen, n_depth), []).append(elapsed_ns)
    for window in recording.of(DecodeWindow):
        found.setdefault((0, window.n_gen, window.n_depth), []).append(round(window.elapsed_ns))
    return list(found.items())


def _stretches(series: Series) -> dict[tuple[int, int], int]:
    """Return the time of all steps and of each window, by length and depth."""
    n_depth, n_steps = series.position[0] - 1, len(series.step_ns)
    stretches = {(n_steps, n_depth): sum(series.step_ns)}
    for depth in DEPTHS:
        start = depth - n_depth
        if start >= 0 and start + WINDOW <= n_steps:
            stretches[WINDOW, depth] = sum(series.step_ns[start : start + WINDOW])
    return stretches


def _fields(run: Run, recording: Recording) -> dict[str, Cell]:
    """Return the values of llama-bench's fields from the run, except the test and its results; of a path its name,
    as folders may reveal who measured.
    """
    subject, described, environment = run.subject, recording.last(ModelDescribed), run.environment
    fields: dict[str, Cell | None] = {
        "model_filename": PurePath(subject.file).name or None,
        "model_type": described.text if described else None,
        "model_size": subject.weight_bytes,
        "model_n_params": subject.n_params,
        "test_time": utc_text(run.head.started_at).replace("+00:00", "Z") or None,
    }
    if environment is not None:
        fields |= _machine_fields(environment, has_rpc=bool(run.setup.rpc_servers))
    if settings := run.setup.bench_fields:
        fields |= {name: FIELDS[name] for name in _NOT_SET} | settings
    return {name: value for name, value in fields.items() if value is not None}


def _machine_fields(environment: Environment, *, has_rpc: bool) -> dict[str, Cell | None]:
    fields: dict[str, Cell | None] = {
        "build_commit": environment.llama_cpp_commit or None,
        "cpu_info": environment.cpu or None,
    }
    compiled = environment.backends or _SPLIT.findall(environment.system_info)
    if compiled:
        others = [name for name in dict.fromkeys(compiled) if name != "CPU" and (has_rpc or name != "RPC")]
        fields["gpu_info"] = ", ".join(gpu.name for gpu in environment.gpus) if others else ""
        fields["backends"] = ",".join(others) or "CPU"
    return fields


_NOT_SET = (
    "cpu_mask", "cpu_strict", "poll", "lazy_mode", "embeddings", "no_op_offload", "no_host", "repack",
    "fit_target", "fit_min_ctx",
)  # fmt: skip
"""Options that ggbench does not set; they have llama-bench's defaults."""
