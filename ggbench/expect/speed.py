"""How fast a file is expected to decode where it is placed, by the most reliable basis that there is.

That is runs of a file with the same tensors here, a forecast from twins of its layers here, the share of the bandwidth
that this machine's other runs reach, or others' rows of llama-bench. Nothing else answers the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from msgspec.structs import replace

from ggbench.expect.machine_runs import MachineRuns
from ggbench.expect.published_speed import published_curve
from ggbench.expect.scaled_speed import scaled_curve
from ggbench.expect.together import curves_together
from ggbench.sizing.placement import Placement
from ggbench.sizing.speed_limits import read_latencies_ms, speed_positions, weights_ratio
from ggbench.stats.intervals import Expected, SpeedBasis
from ggbench.stats.speed_curve import SpeedCurve, inverse

_BASES = get_args(SpeedBasis)


def expected_speed(placement: Placement, runs: MachineRuns, n: int, n_seqs: int = 1) -> Expected | None:
    """Return the expected tokens/s of `n_seqs` sequences together, each at position n; None if nothing is known."""
    return speed_at(expected_curves(placement, runs, n_seqs), n, n_seqs)


def expected_curves(placement: Placement, runs: MachineRuns, n_seqs: int = 1) -> tuple[SpeedCurve, ...]:
    """Return what is known of the steps of `n_seqs` sequences at once, the most reliable first; empty if nothing is.

    `runs` are those of the machine that the file is placed on.
    """
    measured = runs.curves(placement.file, placement.setup, n_seqs)
    known = sorted((each for each in measured if each.step_ms), key=_order)
    if n_seqs > 1:
        alone = expected_curves(placement, runs)
        together = curves_together(alone, n_seqs, weights_ratio(placement, n_seqs))
        return (*(_reading(each, next(iter(alone), None)) for each in known), *together)
    published = published_curve(placement, is_here=runs.is_here)
    elsewhere = _scaled(placement, runs) or published
    read = (each for each in (*measured, published) if each is not None and each.prefill_ms)
    prompts = min(read, key=lambda each: _BASES.index(each.basis), default=None)
    return tuple(_reading(each, prompts) for each in (*known, elsewhere) if each is not None)


def curve_at(curves: Sequence[SpeedCurve], n: int) -> SpeedCurve | None:
    """Return the curve to use at position n, preferring a run that measured there to a longer line."""
    return min(
        (each for each in curves if each.knows(n)),
        key=lambda each: (each.basis != "measured", not each.is_steady, not each.has_measured(n)),
        default=None,
    )


def speed_at(curves: Sequence[SpeedCurve], n: int, n_seqs: int = 1) -> Expected | None:
    """Return the expected tokens/s of all sequences at position n; None if no curve knows it."""
    curve = curve_at(curves, n)
    if curve is None:
        return None
    tok_s = inverse(curve.step_ms_at(n), 1e3 * n_seqs)
    return Expected(tok_s.value, tok_s.low, tok_s.high, curve.basis, _source(curve, curves), curve.is_steady)


def _source(used: SpeedCurve, curves: Sequence[SpeedCurve]) -> str:
    """Return what a speed is from and, if that is no run of the file, which tokens its run timed."""
    own = [each for each in curves if each.reach is not None]
    if used in own or not own:
        return used.source
    return f"{used.source}; {own[0].source} timed tokens {own[0].first} to {own[0].reach}"


def _order(curve: SpeedCurve) -> tuple[bool, bool, bool]:
    """Order curves, the most reliable first."""
    return not curve.has_line, curve.basis != "measured", not curve.is_steady


def _reading(curve: SpeedCurve, prompts: SpeedCurve | None) -> SpeedCurve:
    """Return a curve with the times of prompts of another."""
    if prompts is None:
        return curve
    return replace(
        curve,
        prefill_ms=prompts.prefill_ms,
        prefill_basis=prompts.prefill_basis or prompts.basis,
        prefill_source=prompts.prefill_source or prompts.source,
    )


def _scaled(placement: Placement, runs: MachineRuns) -> SpeedCurve | None:
    """Return the speed at the share of the bandwidth that other runs reach; None without such, or unless one memory
    alone is read.
    """
    rates, positions = runs.rates(placement.setup), speed_positions(placement)
    latencies = read_latencies_ms(placement, positions) if rates else None
    if latencies is None or placement.read_bytes(1).keys() != {placement.planned_places[0]}:
        return None
    return scaled_curve(rates, placement.bandwidths[placement.planned_places[0]].bytes_per_s, latencies)
