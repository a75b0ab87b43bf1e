"""Speed by how many tokens are in the cache already: what fits, cases and forecasts of any kind of run say alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ggbench.runs.experiment import experiment_of
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.metric import Metric, estimated
from ggbench.stats.intervals import Expected
from ggbench.stats.known_speed import RunSpeed, interpolated, inverse
from ggbench.units import format_count, format_interval, format_number

_DEPTHS = (0, 4096, 8192, 16384, 32768, 65536, 131072)


def depth_metrics(summaries: Sequence[QuantSummary]) -> tuple[Metric, ...]:
    """Return tokens/s at depths up to what any of these runs reached, and at the next one; none without a curve.

    A figure beyond what its run reached follows from its line, and has a tilde. Raises StoreError for a run of a kind
    that this ggbench does not have.
    """
    reaches = [reach for summary in summaries if (reach := reach_of(summary)) is not None]
    if not reaches:
        return ()
    reach = max(reaches)
    beyond = next((depth for depth in _DEPTHS if depth >= reach), _DEPTHS[-1])
    return tuple(_at_depth(depth) for depth in _DEPTHS if depth <= beyond)


def reach_of(summary: QuantSummary) -> int | None:
    """Return the last position that its latencies were measured at, or forecast; None where it shows none."""
    found = _speed_of(summary)
    return None if found is None else found.reach


def _speed_of(summary: QuantSummary) -> RunSpeed | None:
    """What the first run says that has latencies by position."""
    speeds = (experiment_of(run.head.kind).speed_of(run) for run in summary.runs if run.is_complete)
    return next((speed for speed in speeds if speed is not None and speed.step_ms), None)


def _at_depth(depth: int) -> Metric:
    def speed(summary: QuantSummary) -> tuple[Expected, bool] | None:
        """Tokens/s, and whether they lie beyond what was measured."""
        curve = _speed_of(summary)
        if curve is None:
            return None
        return inverse(interpolated(curve.step_ms, depth + 1)), curve.reach is None or depth >= curve.reach

    def text(summary: QuantSummary) -> str:
        found = speed(summary)
        if found is None:
            return UNKNOWN
        (value, low, high), is_beyond = (found[0].value, found[0].low, found[0].high), found[1]
        shown = format_interval(value, low, high) if math.isfinite(high) else f"> {format_number(low)}"
        return f"~{shown}" if is_beyond else shown

    def ends(summary: QuantSummary) -> tuple[float, float | None] | None:
        found = speed(summary)
        if found is None:
            return None
        return found[0].low, found[0].high if math.isfinite(found[0].high) else None

    metric = Metric(
        f"tok_s_d{depth}",
        format_count(depth),
        "tok/s",
        text=text,
        more_is_better=True,
        value=lambda summary: found[0].value if (found := speed(summary)) else None,
        topic=f"speed at n_depth {format_count(depth)}",
        is_timed=True,
        concern="speed",
    )
    return estimated(metric, ends)
