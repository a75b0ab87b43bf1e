"""Answers of measured quants, one in full or several side by side, and the list of stored runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.fields import config_options
from ggbench.machine.readings import name_processes
from ggbench.runs.run import STILL_RUNNING, Run
from ggbench.show.against import Beside, speed_beside
from ggbench.show.answer import Answer, Facts, Part, Table
from ggbench.show.charts import (
    LineChart,
    PlottedRun,
    batch_sizes,
    latency_figure,
    prompt_speed,
)
from ggbench.show.figure import Figure, bounded_text, facts_of, member
from ggbench.show.machine import serving_facts
from ggbench.show.metric import DEPTH, Metric, decode_metrics, decoded_lengths, speed_at, vary
from ggbench.show.names import row_labels, run_name, twin_notes
from ggbench.show.presenter import Presenter
from ggbench.show.run_answer import compare_command, in_turns, run_answer, shared
from ggbench.show.run_figures import (
    FIGURES,
    caveats,
    estimate,
    figures,
    rows_of,
    unsteady_mark,
    unsteady_note,
    w_text,
)
from ggbench.show.words import say
from ggbench.stats.decode_timing import DepthSpeed, PrefillSpeed
from ggbench.units import (
    format_bytes,
    format_count,
    format_ms,
)

_FRONT = (
    *figures("memory_bytes prefill_ms"),
    replace(
        FIGURES["n_seqs"], get=lambda row: row.decode.n_seqs if row.decode and row.decode.n_seqs > 1 else None
    ),
    *figures("tok_s_together b_ms w_before w_break w_tokens_per_ms b_ratio w_ratio b_w16_ms bpw file_bytes"),
)

_PROMPT = (
    member("n_prompt", "prompt", unit="tokens"),
    Figure[PrefillSpeed]("n_depth", "depth", lambda each: each.n_depth or None, unit="tokens"),
)
_TIME = member("prefill_ms", "time", format_ms, unit="ms", better="less")
_TIMINGS = member("repeat", "timings", priority=1)


def speed_in(run: Run) -> Figure[PrefillSpeed | DepthSpeed]:
    """Return the figure of a speed of this run, marked if the run was disturbed."""
    mark = unsteady_mark(run)
    return Figure(
        "tok_s",
        "speed",
        lambda each: estimate(each.tok_s, each.tok_s_ci95),
        bounded_text,
        "tok/s",
        better="more",
        mark=lambda each: mark,
    )


def speed_parts(run: Run) -> list[Part]:
    """Return the speeds at depths and those of prompts."""
    speed = speed_in(run)
    return [
        Table((member("n_depth", "depth", unit="tokens"), speed, _TIMINGS), run.depths),
        Table((*_PROMPT, speed, _TIME, _TIMINGS), run.prefills),
    ]


def _buffer(key: str, header: str) -> Figure[DeviceBuffers]:
    return Figure(key, header, lambda buffers: getattr(buffers, key) or None, format_bytes)


BUFFERS = (
    member("device", "device"),
    _buffer("weight_bytes", "weights"),
    _buffer("kv_bytes", "KV"),
    _buffer("compute_bytes", "compute"),
    _buffer("output_bytes", "output"),
    _buffer("total_bytes", "total"),
)


def memory_parts(memory: Memory) -> list[Part]:
    """Return the buffers by device, what else the process held, and its peak."""
    sizes = {
        "other": memory.other_bytes,
        "peak resident": memory.peak_bytes,
    }
    facts = Facts([(name, format_bytes(n_bytes) if n_bytes else "") for name, n_bytes in sizes.items()])
    return [Table(BUFFERS, memory.buffers, "Memory"), facts]


def _quant_answer(run: Run, text: str) -> Answer:
    """Return the answer of a decode or a prefill, with all other figures behind it."""
    command = "" if run.run_id is None or run.latency is None else f"ggbench results show {run.run_id} --plot"
    notes = twin_notes([run.subject])
    why: list[Part] = [
        Facts(_model(run), "Model"),
        *memory_parts(run.memory),
        Facts(_facts("b_ratio w_ratio b_w16_ms", run), "Latency"),
        Facts(serving_facts(run), "Server"),
        Facts(_limit(run), "Limit by memory bandwidth"),
        Facts(_gpu(run), "GPU while timing"),
    ]
    parts = [*speed_parts(run), *([latency_facts(run)] if run.head.kind == "decode" else ())]
    ended = run.reason if run.reason == STILL_RUNNING else run.outcome.text
    named = f"{run_name(run)}: {text or ended}."
    return run_answer(run, Answer(named, command, parts, notes, why))


def _facts(keys: str, run: Run) -> list[tuple[str, str]]:
    """Return shared figures that a run has, by their keys."""
    return facts_of(figures(keys), run)


def latency_facts(run: Run) -> Facts:
    """Return what a decode measured besides its speed."""
    fit = run.fit
    w = [] if fit is None or fit.is_nothing else [("W", f"{w_text(fit)} tokens/ms")]
    others = _facts("p50_ms p99_ms prefill_ms memory_bytes peak_bytes", run)
    return Facts([*_facts("b_ms", run), *w, *others])


def _model(run: Run) -> list[tuple[str, str]]:
    subject, setup, memory = run.subject, run.setup, run.memory
    n_batch, n_ubatch = memory.n_batch or setup.n_batch, memory.n_ubatch or setup.n_ubatch
    return [
        ("file", subject.file),
        ("quant", say("run.quant_from_name") if subject.is_quant_from_name else ""),
        *_facts("source file_bytes n_params bpw", run),
        *_facts("n_ctx n_prompt n_gen repeat max_n_ctx", run),
        ("KV cache", ", ".join(setup.cache_types or ())),
        *_facts("kv_bytes_per_token flash_attn", run),
        ("batches", f"n_batch {n_batch}, n_ubatch {n_ubatch}" if n_batch else ""),
        ("options", shlex.join(config_options(setup, without=("n_ctx",)))),
    ]


def _limit(run: Run) -> list[tuple[str, str]]:
    source = run.limit.bandwidth_source if run.limit else ""
    return [*_facts("bandwidth_bytes_per_s limit_w_tokens_per_ms limit_b_ms", run), ("from", source)]


_GPU = "gpu_temperature_max_c gpu_sm_clock_min_mhz gpu_power_mean_w gpu_energy_per_token_mj gpu_throttle"


def _gpu(run: Run) -> list[tuple[str, str]]:
    use = run.gpu_use
    if use is None:
        return []
    peak = "" if use.worker_bytes is None else format_bytes(use.worker_bytes)
    return [
        *_facts(_GPU, run),
        ("peak memory", peak),
        ("other programs", name_processes(use.other_processes or ())),
    ]


def bench_answer(runs: Sequence[Run]) -> Answer:
    """Return several quants side by side, with the one that stands out."""
    subjects = [run.subject for run in runs]
    labels = row_labels(subjects)
    unsteady = unsteady_note(labels, runs)
    notes = [*shared(labels, map("; ".join, map(caveats, runs))), unsteady, *twin_notes(subjects)]
    depths = sorted({each.n_depth for run in runs for each in run.depths})
    speeds = list(map(_speed_at, depths)) or [FIGURES["tok_s"]]
    front = (*rows_of(runs), *speeds, *_FRONT)
    table = Table(front, runs, style=lambda row: "" if row.is_complete else "dim")
    sizes = Table((*rows_of(runs), *_BEHIND), runs)
    where = say("bench.at_depth", depth=depths[-1]) if depths else ""
    disturbed = Facts([(label, row.unsteady) for label, row in zip(labels, runs, strict=True)], "Unsteady")
    text, command = _standing_out(speeds[-1], where, runs, labels)
    return Answer(text, command, [table], notes, [sizes, disturbed])


def _speed_at(depth: int) -> Figure[Run]:
    return replace(
        FIGURES["tok_s"],
        key=f"{DEPTH}{depth}",
        header=f"tok/s at {format_count(depth)}",
        unit="",
        get=partial(speed_at, depth),
    )


_BEHIND = figures(
    "source bpw file_bytes weight_bytes kv_bytes compute_bytes other_bytes peak_bytes n_ctx n_gen p50_ms p99_ms b_ratio"
    " w_ratio b_w16_ms"
)


def _standing_out(
    speed: Figure[Run], where: str, rows: Sequence[Run], labels: Sequence[str]
) -> tuple[str, str]:
    """Return which quant was the fastest, of one run each and so no verdict, and the command that gives one.

    Unless all speeds are known, and not only bounds, there is no text.
    """
    metric = Metric(speed, is_timed=True)
    found = zip(labels, rows, strict=True)
    timed = [(metric.value(row) or 0.0, label, row) for label, row in found if row.is_complete]
    if len(timed) < 2 or not all(value for value, *_ in timed):
        return "", compare_command([row for *_, row in timed])
    (best, label, row), (second, other, beaten), *_ = sorted(timed, key=lambda each: -each[0])
    runs, ratio = (row, beaten), best / second
    text = say("bench.fastest", quant=label, other=other, speed=speed.text(row), ratio=ratio, where=where)
    return text, in_turns(runs) or compare_command(runs)


class QuantPresenter(Presenter):
    """Presents runs shown in a table of quants: a decode, or prompts of several lengths."""

    def has_details(self, run: Run) -> bool:
        return run.is_complete or bool(self.answer(run))

    def line_charts(self, runs: Sequence[PlottedRun]) -> tuple[LineChart, ...]:
        sizes = sorted({n_seqs for run in runs for n_seqs in batch_sizes(run)}) or [1]
        return tuple(latency_figure(runs, n_seqs) for n_seqs in sizes)

    def charts(self, runs: Sequence[Run], names: Sequence[str]) -> tuple[LineChart, ...]:
        return (prompt_speed(runs, names),)

    def metrics(self, runs: Sequence[Run]) -> tuple[Metric, ...]:
        return decode_metrics(runs)

    def caveats(self, runs: Sequence[Run]) -> tuple[str, ...]:
        is_other = vary(decoded_lengths, runs)
        return ("different lengths: p50, p99 and tok/s are over different positions",) if is_other else ()

    def details(self, run: Run) -> Answer:
        return _quant_answer(run, self.answer(run))

    def table(self, runs: Sequence[Run]) -> Answer:
        return bench_answer(runs)

    def beside(self, run: Run) -> Sequence[Beside] | None:
        return [speed_beside(run)] if run.decode is not None or run.prefills else None
