"""What a quality run shows while it goes on and afterwards: running figures, chunk by chunk, with their errors.

Texts differ from chunk to chunk far more than quants do, so two curves of PPL rise and fall together, and their bands
overlap long after the difference is known: the distance from the base is paired, chunk by chunk, and has its own curve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from ggbench.experiments.quality.record import ChunkScores
from ggbench.experiments.quality.scores import floats, mean_and_error, running_means
from ggbench.show.columns import estimate_text
from ggbench.show.plot.curves import Curve, Figure, Floats, PlottedRun
from ggbench.stats.intervals import Estimate
from ggbench.units import format_count, format_percent

_LEAST_RANGE = 1e-6
"""Of a KLD, of a PPL and of a distance in percent: below it, nothing but rounding differs."""

_Running = Callable[["_Scores"], tuple[Floats, Floats]]


class _Scores(msgspec.Struct, frozen=True):
    """Every position that was scored, in the order of the text."""

    n_chunks: int
    n_same_top: int
    nll: Floats
    base_nll: Floats
    kld: Floats
    """As `base_nll`, empty without a base."""

    @classmethod
    def of(cls, observations: Sequence[object]) -> _Scores:
        scores = [each for each in observations if isinstance(each, ChunkScores)]
        nll, base_nll, kld = (
            floats(b"".join(getattr(each, name) for each in scores)).astype(np.float64)
            for name in ("nll", "base_nll", "kld")
        )
        return cls(sum(each.n_chunks for each in scores), sum(each.n_same_top for each in scores), nll, base_nll, kld)

    @property
    def per_chunk(self) -> int:
        """Positions scored of each chunk."""
        return len(self.nll) // self.n_chunks

    @property
    def is_compared(self) -> bool:
        """Whether every position has a base's."""
        return len(self.kld) == len(self.nll) > 0


def quality_figures(runs: Sequence[PlottedRun]) -> tuple[Figure, ...]:
    """Return PPL, KLD and the distance of the PPL from the base's, over the chunks scored so far."""
    scored = [_Scores.of(run.observations) for run in runs]
    ends = [run.end for run, scores in zip(runs, scored, strict=True) if run.end is not None and scores.n_chunks]
    end = max(ends, default=None)

    def figure(key: str, name: str, unit: str, running: _Running, *, has_base: bool) -> Figure:
        curves = tuple(
            _curve(run, scores, running, unit)
            if scores.n_chunks and (scores.is_compared or not has_base)
            else Curve(run.name, np.empty(0, np.int64), np.empty(0))
            for run, scores in zip(runs, scored, strict=True)
        )
        return Figure(key, name, unit, "chunks scored", "", curves, end, _LEAST_RANGE)

    return (
        figure("ppl", "PPL", "", _running_ppl, has_base=False),
        figure("kld", "KLD", "nats", _running_kld, has_base=True),
        figure("ppl-over-base", "PPL above its base's", "%", _running_distance, has_base=True),
    )


def scores_lines(run: PlottedRun) -> tuple[str, ...]:
    """Return what is known so far, in lines of at most 28 characters."""
    scores = _Scores.of(run.observations)
    if not scores.n_chunks:
        return ()
    of = "" if run.end is None or run.end <= scores.n_chunks else f" of {format_count(run.end)}"
    lines = [f"{format_count(scores.n_chunks)}{of} chunks", f"PPL   {_last(_running_ppl(scores))}"]
    if scores.is_compared:
        distance = mean_and_error(scores.nll - scores.base_nll)
        lines += [
            f"KLD   {_last(_running_kld(scores))}",
            f"same  {format_percent(scores.n_same_top / len(scores.kld))} top tokens",
            f"PPL   {_signed(_as_percent(distance))} % of base",
        ]
    return tuple(lines)


def _curve(run: PlottedRun, scores: _Scores, running: _Running, unit: str) -> Curve:
    y, error = running(scores)
    text = f"{_last((y, error))} {unit}".rstrip()
    note = f"{text}, {format_count(scores.n_chunks)} chunks"
    return Curve(run.name, np.arange(1, len(y) + 1), y, error, note=note, dimmed=run.dimmed)


def _last(running: tuple[Floats, Floats]) -> str:
    return estimate_text(Estimate(float(running[0][-1]), float(running[1][-1])))


def _running_ppl(scores: _Scores) -> tuple[Floats, Floats]:
    mean, error = running_means(scores.nll, scores.per_chunk)
    return np.exp(mean), np.exp(mean) * error


def _running_kld(scores: _Scores) -> tuple[Floats, Floats]:
    return running_means(scores.kld, scores.per_chunk)


def _running_distance(scores: _Scores) -> tuple[Floats, Floats]:
    """In percent; the error is that of the paired differences."""
    mean, error = running_means(scores.nll - scores.base_nll, scores.per_chunk)
    return np.expm1(mean) * 100, np.exp(mean) * error * 100


def _signed(estimate: Estimate) -> str:
    return f"{'+' if estimate.mean >= 0 else ''}{estimate_text(estimate)}"


def _as_percent(distance: Estimate) -> Estimate:
    return Estimate(float(np.expm1(distance.mean)) * 100, float(np.exp(distance.mean)) * distance.error * 100)
