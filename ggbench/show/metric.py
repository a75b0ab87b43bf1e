"""A metric: a figure of runs, when two runs may be compared by it, and what the comparison calls it.

A bound is not an interval: two values below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.record import Record
from ggbench.runs.run import Run
from ggbench.show.figure import Figure, bounded_text, is_bound, reader
from ggbench.show.run_figures import FIGURES, estimate, unsteady_mark
from ggbench.stats.intervals import Estimate, Interval
from ggbench.units import format_bytes, format_count

NO_INTERVAL = "without an interval"
BOUND = "only a bound"

Concern = Literal["", "speed", "memory", "quality"]
"""Quantity limited by an option of `ggbench compare`; empty if none."""
RunFigure: TypeAlias = Figure[Run]


class Metric(Record):
    """When a figure of two runs may be compared, and what sentences call it; the figure says which value is better."""

    figure: RunFigure
    """An `Estimate` is compared by its interval, and a whole number as it is; others are compared only if timed."""
    topic: str = ""
    """The name in sentences; empty if the figure follows from another."""
    concern: Concern = ""
    win: str = "better"
    """Key of the sentence about the better one, in the words of `compare`."""
    is_timed: bool = False
    """Whether the value varies between loads of the model, so that only runs in turns decide."""
    alike: float = 0.1
    """Share, either way, within which the whole interval of a ratio must lie to say that there is no difference."""
    difference: Callable[[float, float], str] | None = None
    """Describes the better value beside another; None for one that is stated as a ratio."""
    basis: Callable[[Run], object] = lambda run: None
    """Conditions that must be equal for values to be comparable."""
    other_basis: str = ""
    """Why values are not compared if the basis differs."""
    unfit: Callable[[Run], str] = lambda run: ""
    """Why the value of a run is not compared; empty if it is."""
    paired: Callable[[Run, Run], Sequence[float]] | None = None
    """Logarithms of the ratios of two runs, one for each chunk of a text that both scored; None for independent
    runs.
    """

    @property
    def key(self) -> str:
        return self.figure.key

    def value(self, run: Run) -> float | None:
        found = self.figure.get(run)
        if isinstance(found, Estimate):
            return None if self.is_timed and is_bound(found) else found.value
        return found if isinstance(found, int | float) else None

    def ci95(self, run: Run) -> Interval | None:
        """Return the interval, that of a whole number without width; None if unknown, or if it is not compared."""
        found = self.figure.get(run)
        if self.left_out(run):
            return None
        if isinstance(found, Estimate):
            return found.low, found.high
        return (found, found) if isinstance(found, int) else None

    def left_out(self, run: Run) -> str:
        """Return why the value is not compared; empty if it is, or if it is unknown."""
        found = self.figure.get(run)
        if found is None:
            return ""
        if isinstance(found, Estimate) and self.value(run) is None:
            return BOUND
        has_interval = isinstance(found, Estimate | int)
        return self.unfit(run) or ("" if has_interval or self.is_timed else NO_INTERVAL)


def joined(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return metrics with unique keys; the first metric of a key that has a value for a run is used."""
    found: dict[str, Metric] = {}
    for metric in metrics:
        before = found.get(metric.key)
        found[metric.key] = metric if before is None or before == metric else _either(before, metric)
    return tuple(found.values())


def _either(one: Metric, other: Metric) -> Metric:
    """Return a metric that uses `one` for a run with a value for it, else `other`."""

    def of(run: Run) -> Metric:
        return other if one.figure.get(run) is None else one

    figure = replace(
        one.figure,
        get=lambda run: of(run).figure.get(run),
        mark=lambda run: of(run).figure.mark(run),
    )
    return replace(
        one,
        figure=figure,
        basis=lambda run: of(run).basis(run),
        unfit=lambda run: of(run).unfit(run),
    )


def vary(value: Callable[[Run], object], runs: Iterable[Run]) -> bool:
    return len({value(run) for run in runs} - {None}) > 1


_OTHER_LENGTHS = "different lengths"


def decode_metrics(runs: Sequence[Run]) -> tuple[Metric, ...]:
    """Return speed, also at each depth, W, B, memory, percentiles, and prompts read by several runs."""
    depths = map(_at_depth, sorted({each.n_depth for run in runs for each in run.depths}))
    lengths = [prefill.n_prompt for run in runs for prefill in run.prefills if not prefill.n_depth]
    shared = sorted({length for length in lengths if lengths.count(length) > 1})
    prompts = map(_prefill, shared)
    return (*depths, _SPEED, *prompts, B, W_BEFORE, W, memory_metric(runs), *_LATENCIES, _TOGETHER)


def decoded_lengths(run: Run) -> object:
    """Return the conditions of speed: tokens of prompt and decode, and depths; None without a decode."""
    depths = getattr(run.head.settings, "depths", ())
    return run.decode and (run.n_gen, run.decode.n_prompt, depths)


def speed_metric(
    key: str,
    topic: str,
    get: Callable[[Run], Estimate | float | None],
    **more: Any,  # noqa: ANN401 - members
) -> Metric:
    """Return a metric in tokens/s."""
    figure = RunFigure(
        key, topic, get, bounded_text, "tok/s", better="more", mark=unsteady_mark, is_estimate=True
    )
    return Metric(replace(figure, **more), topic, "speed", "faster_in", is_timed=True)


def _prefill(n_prompt: int) -> Metric:
    def speed(run: Run) -> Estimate | float | None:
        found = next((each for each in run.prefills if (each.n_prompt, each.n_depth) == (n_prompt, 0)), None)
        return None if found is None else estimate(found.tok_s, found.tok_s_ci95)

    return speed_metric(f"prefill_{n_prompt}", f"prefill {n_prompt:,}", speed)


def _timed(key: str, topic: str = "", **more: Any) -> Metric:  # noqa: ANN401 - members
    return Metric(replace(FIGURES[key], mark=unsteady_mark), topic, is_timed=True, **more)


_LENGTHS: dict[str, Any] = {"basis": decoded_lengths, "other_basis": _OTHER_LENGTHS}
_SPEED = _timed("tok_s", "speed", concern="speed", win="faster", **_LENGTHS)
W_BEFORE = _timed(
    "w_before", "W before the break", basis=reader("fit.last_break.n"), other_basis="different breaks"
)
W = _timed("w_tokens_per_ms", "W")
B = _timed("b_ms", "B")
_LATENCIES = tuple(_timed(key, **_LENGTHS) for key in ("p50_ms", "p99_ms"))
_TOGETHER = _timed("tok_s_together")


def memory_metric(runs: Iterable[Run]) -> Metric:
    """Return the memory that the processes took at most, or that of the buffers unless all peaks are known.

    Weights on GPUs are not in the process's resident memory, and a file repacked for the CPU is in memory twice.
    """
    has_peaks = all(each.memory.peak_bytes and not each.memory.weights_on_gpu for each in runs)
    return replace(_MEMORY, figure=_PEAK) if has_peaks else _MEMORY


def _peak(run: Run) -> Estimate | None:
    peak_bytes = run.memory.peak_bytes
    return (
        None if peak_bytes is None else Estimate(peak_bytes, peak_bytes / _PEAK_ERROR, peak_bytes * _PEAK_ERROR)
    )


_PEAK_ERROR = 1.01
"""Factor by which peaks of one setting differ."""
_PEAK = replace(
    FIGURES["memory_bytes"], header="memory (peak)", get=_peak, form=lambda peak: format_bytes(peak.value)
)


def _why_no_memory(run: Run) -> str:
    """Return why the memory of a run is not compared: it ended early or had several contexts."""
    if run.outcome is not Outcome.COMPLETED:
        return "not completed"
    return run.result.no_one_memory if run.result else NO_INTERVAL


_MEMORY = Metric(
    FIGURES["memory_bytes"],
    "memory",
    "memory",
    "less",
    difference=lambda one, other: format_bytes(abs(one - other)),
    basis=lambda run: None if _why_no_memory(run) else (run.memory.n_ctx, run.setup.engine),
    other_basis="different n_ctx or engines",
    unfit=_why_no_memory,
)


DEPTH = "tok_s_d"
"""Beginning of the keys of speeds at a depth."""


def speed_at(depth: int, run: Run) -> Estimate | float | None:
    """Return the speed that a decode measured at a depth; None if it did not."""
    found = next((each for each in run.depths if each.n_depth == depth), None)
    return None if found is None else estimate(found.tok_s, found.tok_s_ci95)


def _at_depth(depth: int) -> Metric:
    topic = f"decode at n_depth {format_count(depth)}"
    return speed_metric(f"{DEPTH}{depth}", topic, partial(speed_at, depth), header=f"at {format_count(depth)}")
