"""A metric for comparing runs: its value and interval, whether higher is better, and when not to compare it.

A bound is not an interval: two values below 20 may be any distance apart, so bounds are not compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.runs.experiment import experiment_of
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.figure import Figure
from ggbench.show.run_figures import FIGURES, measured_text, reader
from ggbench.stats.decode_timing import PrefillSpeed
from ggbench.stats.intervals import Estimate, Interval
from ggbench.stats.speed_estimate import SpeedEstimate, interpolated, inverse, is_measured, knows
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count, format_interval, format_number

NO_INTERVAL = "without an interval"
_BOUND = "only a bound"

Concern = Literal["", "speed", "memory", "quality"]
"""Quantity limited by an option of `ggbench compare`; empty if none."""


class Metric(msgspec.Struct, frozen=True):
    key: str
    header: str
    unit: str
    text: Callable[[QuantSummary], str]
    more_is_better: bool
    value: Callable[[QuantSummary], float | None]
    interval: Callable[[QuantSummary], Interval | None] | None = None
    """None if runs have a value without an interval."""
    left_out: Callable[[QuantSummary], str] = lambda summary: NO_INTERVAL
    """Why a run with a value but no interval is not compared."""
    topic: str = ""
    """The name in sentences; empty if the metric follows from another."""
    difference: Callable[[float], str] | None = None
    """Describes a difference between exact values; None for an estimate, which has a ratio."""
    basis: Callable[[QuantSummary], object] = lambda summary: None
    """Conditions that must be equal for values to be comparable."""
    other_basis: str = ""
    """The verdict if the basis differs."""
    paired: Callable[[QuantSummary, QuantSummary], Interval | None] | None = None
    """The interval of the ratio of two runs with correlated values; None for independent runs."""
    is_timed: bool = False
    """Whether the value varies between loads of the model, beyond the noise within a run."""
    concern: Concern = ""

    @property
    def is_exact(self) -> bool:
        """Whether its intervals are single values."""
        return self.difference is not None


class Property(msgspec.Struct, frozen=True):
    """A property in which two quants may differ."""

    name: str
    path: str
    """A path for `reader`."""
    form: Callable[[Any], str] = str
    """Formats a value other than None."""
    of: Callable[[QuantSummary], object] = lambda summary: summary
    """Object at which the path starts."""

    def text(self, summary: QuantSummary) -> str:
        value = reader(self.path, self.of)(summary)
        return "" if value is None else sanitize(self.form(value))


def joined(metrics: Iterable[Metric]) -> tuple[Metric, ...]:
    """Return metrics with unique keys; the first metric of a key that has a value for a run is used."""
    found: dict[str, Metric] = {}
    for metric in metrics:
        before = found.get(metric.key)
        found[metric.key] = metric if before is None or before is metric else _either(before, metric)
    return tuple(found.values())


def metric_of(figure: Figure[QuantSummary], **more: Any) -> Metric:  # noqa: ANN401 - the fields' own types

    def value(summary: QuantSummary) -> float | None:
        known = figure.get(summary)
        if isinstance(known, Estimate):
            return known.value if math.isfinite(known.value) else None
        return known if isinstance(known, int | float) else None

    return Metric(figure.key, figure.header, figure.unit, figure.text, value=value, **more)


def estimated(metric: Metric, ends: Callable[[QuantSummary], tuple[float, float | None] | None]) -> Metric:
    """Return the metric with its interval; without an upper end or a value it is only a bound."""

    def interval(summary: QuantSummary) -> Interval | None:
        found = ends(summary)
        if metric.value(summary) is None or found is None or found[1] is None:
            return None
        return found[0], found[1]

    return replace(metric, interval=interval, left_out=lambda summary: _BOUND if ends(summary) else NO_INTERVAL)


def _either(one: Metric, other: Metric) -> Metric:
    """Return a metric that uses `one` for a run with a value for it, else `other`."""

    def of(summary: QuantSummary) -> Metric:
        return one if one.text(summary) != UNKNOWN else other

    def interval(summary: QuantSummary) -> Interval | None:
        found = of(summary).interval
        return None if found is None else found(summary)

    return replace(
        one,
        text=lambda summary: of(summary).text(summary),
        value=lambda summary: of(summary).value(summary),
        interval=interval,
        left_out=lambda summary: of(summary).left_out(summary),
        basis=lambda summary: of(summary).basis(summary),
    )


_OTHER_LENGTHS = "different lengths"


def decode_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return speed, W, B, memory, percentiles, and prompts read by several runs."""
    lengths = [prefill.n_prompt for summary in summaries for prefill in summary.prefills if not prefill.n_depth]
    together = [_TOGETHER] if any(each.decode and each.decode.n_seqs > 1 for each in summaries) else []
    return (
        *_DECODE,
        *together,
        *(_prefill(length) for length in sorted(set(lengths)) if lengths.count(length) > 1),
    )


def _why_no_memory(summary: QuantSummary) -> str:
    if summary.outcome is not Outcome.COMPLETED:
        return "not completed"
    return summary.run.result.no_one_memory if summary.run.result else NO_INTERVAL


def _memory_interval(summary: QuantSummary) -> Interval | None:
    """Return the exact memory; None for a run that ended early or had several contexts."""
    n_bytes = summary.memory.total_bytes
    return None if _why_no_memory(summary) or n_bytes is None else (n_bytes, n_bytes)


def decoded_lengths(summary: QuantSummary) -> object:
    """Return the conditions of speed: tokens of prompt and decode, and depths; None without a decode."""
    depths = getattr(summary.run.head.settings, "depths", ())
    return summary.decode and (summary.n_gen, summary.decode.n_prompt, depths)


def speed_metric(
    key: str,
    header: str,
    topic: str,
    text: Callable[[QuantSummary], str],
    speed: Callable[[QuantSummary], tuple[float, tuple[float, float | None] | None] | None],
) -> Metric:
    """Return a metric in tokens/s; `speed` returns the value and the ends of its interval, None if unknown."""
    metric = Metric(
        key,
        header,
        "tok/s",
        text=text,
        more_is_better=True,
        value=lambda summary: found[0] if (found := speed(summary)) else None,
        topic=topic,
        is_timed=True,
        concern="speed",
    )
    return estimated(metric, lambda summary: found[1] if (found := speed(summary)) else None)


def _prefill(n_prompt: int) -> Metric:
    def prompt(summary: QuantSummary) -> PrefillSpeed | None:
        return next((each for each in summary.prefills if each.n_prompt == n_prompt and not each.n_depth), None)

    def speed(summary: QuantSummary) -> tuple[float, tuple[float, float | None] | None] | None:
        return (found.tok_s, found.tok_s_ci95) if (found := prompt(summary)) else None

    name = f"prefill {format_count(n_prompt)}"
    return speed_metric(
        f"prefill_{n_prompt}", name, name, lambda summary: measured_text(prompt(summary), "tok_s"), speed
    )


def _together_ends(summary: QuantSummary) -> tuple[float, float | None] | None:
    if summary.decode is None or summary.latency is None or summary.latency.tok_s_ci95 is None:
        return None
    n_seqs, (low, high) = summary.decode.n_seqs, summary.latency.tok_s_ci95
    return n_seqs * low, None if high is None else n_seqs * high


_SPEED = estimated(
    metric_of(
        FIGURES["tok_s"],
        more_is_better=True,
        topic="speed",
        basis=decoded_lengths,
        other_basis=_OTHER_LENGTHS,
        is_timed=True,
        concern="speed",
    ),
    reader("latency.tok_s_ci95"),
)
W = estimated(
    metric_of(FIGURES["w_tokens_per_ms"], more_is_better=True, topic="W", is_timed=True), reader("fit.w_ci95")
)
B = estimated(metric_of(FIGURES["b_ms"], more_is_better=False, topic="B", is_timed=True), reader("fit.b_ci95"))
MEMORY = Metric(
    "memory_bytes",
    header="memory",
    unit="",
    text=lambda summary: format_bytes(summary.memory.total_bytes),
    more_is_better=False,
    value=lambda summary: summary.memory.total_bytes,
    interval=_memory_interval,
    left_out=_why_no_memory,
    topic="memory",
    difference=lambda n_bytes: f"{format_bytes(n_bytes)} less",
    basis=lambda summary: summary.memory.n_ctx if _memory_interval(summary) else None,
    other_basis="different n_ctx",
    concern="memory",
)
_TOGETHER = estimated(metric_of(FIGURES["tok_s_together"], more_is_better=True, is_timed=True), _together_ends)
_DECODE = (
    _SPEED,
    W,
    B,
    MEMORY,
    *(
        metric_of(
            FIGURES[key], more_is_better=False, basis=decoded_lengths, other_basis=_OTHER_LENGTHS, is_timed=True
        )
        for key in ("p50_ms", "p99_ms")
    ),
)


def vary(value: Callable[[QuantSummary], object], summaries: Sequence[QuantSummary]) -> bool:
    return len({value(summary) for summary in summaries} - {None}) > 1


_DEPTHS = (0, 4096, 8192, 16384, 32768, 65536, 131072)


def depth_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return tokens/s at the depths that any of these runs reached, and at the next one, including the requested depths
    of a decode.

    Speeds that a run did not measure follow from its fitted line and are marked with a tilde, if the line reaches that
    far. Raises StoreError for an unknown kind.
    """
    reaches = [reach for summary in summaries if (reach := reach_of(summary)) is not None]
    if not reaches:
        return ()
    reach = max(reaches)
    beyond = next((depth for depth in _DEPTHS if depth >= reach), _DEPTHS[-1])
    asked = {each.n_depth for summary in summaries for each in summary.depths}
    return tuple(_at_depth(depth) for depth in sorted(asked.union(_DEPTHS)) if depth <= beyond)


def reach_of(summary: QuantSummary) -> int | None:
    found = _speed_of(summary)
    return None if found is None else found.reach


def has_speed_at(summary: QuantSummary, depth: int) -> bool:
    """Return whether the run measured a speed at this depth, or its line gives one."""
    found = _speed_of(summary)
    return found is not None and knows(found, depth + 1)


def is_extrapolated(summary: QuantSummary, depth: int) -> bool:
    """Return whether the speed of the run at this depth comes from its line."""
    found = _speed_of(summary)
    return found is not None and has_speed_at(summary, depth) and not is_measured(found, depth + 1)


def _speed_of(summary: QuantSummary) -> SpeedEstimate | None:
    speeds = (experiment_of(run.head.kind).speed_of(run) for run in summary.runs if run.is_complete)
    return next((speed for speed in speeds if speed is not None and speed.step_ms), None)


def depth_key(depth: int) -> str:
    """Return the key of the metric of speed at a depth."""
    return f"tok_s_d{depth}"


def _at_depth(depth: int) -> Metric:
    def speed(summary: QuantSummary) -> tuple[float, tuple[float, float | None]] | None:
        curve = _speed_of(summary)
        if curve is None or not knows(curve, depth + 1):
            return None
        found = inverse(interpolated(curve.step_ms, depth + 1))
        return found.value, (found.low, found.high if math.isfinite(found.high) else None)

    def text(summary: QuantSummary) -> str:
        found = speed(summary)
        if found is None:
            return UNKNOWN
        value, (low, high) = found
        shown = f"> {format_number(low)}" if high is None else format_interval(value, low, high)
        return f"~{shown}" if is_extrapolated(summary, depth) else shown

    length = format_count(depth)
    return speed_metric(depth_key(depth), length, f"speed at n_depth {length}", text, speed)
