"""What a search draws: the speed of each candidate over the baseline's, round by round, as far as it raced."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ggbench.experiments.tune.document import ratio_text
from ggbench.experiments.tune.race import BASELINE, Race, scores_of
from ggbench.experiments.tune.record import (
    TuneCandidate,
    TuneDropped,
    TuneResult,
    TuneSegment,
    changes,
    changes_text,
)
from ggbench.show.plot.curves import Curve, Figure, Floats, PlottedRun
from ggbench.units import counted, format_count, format_number

_LIVE_ROWS = 6
_NAME_WIDTH = 20


def race_figure(runs: Sequence[PlottedRun]) -> Figure:
    """Return a curve for each candidate: the geometric mean so far, with its standard error."""
    curves = [curve for index, run in enumerate(runs) for curve in _curves(run, index, has_name=len(runs) > 1)]
    return Figure("race", "speed over the defaults'", "times", "round", "", tuple(curves), least_range=0.01)


def race_lines(run: PlottedRun) -> tuple[str, ...]:
    """Return the fastest so far, in lines of at most 28 characters."""
    segments = [each for each in run.observations if isinstance(each, TuneSegment)]
    if not segments:
        return ()
    race, names = _race(run), _names(run)
    ordered = sorted((each for each in race.scores if race.scores[each]), key=race.mean, reverse=True)
    proofs = sum(each.stage == "proof" and each.is_kept for each in segments)
    last = f"proof {format_count(proofs)}" if proofs else f"round {format_count(segments[-1].round)}"
    lines = [f"{last}, {counted(len(race.alive), 'candidate')}"]
    for each in ordered[:_LIVE_ROWS]:
        name = names[each] if len(names[each]) <= _NAME_WIDTH else f"{names[each][: _NAME_WIDTH - 1]}…"
        mark = " " if each in race.alive else "✗"
        lines.append(f"{mark}{name:<{_NAME_WIDTH}} {format_number(math.exp(race.mean(each)))}")
    return tuple(lines)


def _curves(run: PlottedRun, index: int, *, has_name: bool) -> list[Curve]:
    names, race = _names(run), _race(run)
    dropped = {each.candidate for each in run.observations if isinstance(each, TuneDropped)}
    found = []
    for candidate, (rounds, scores) in _scores(run).items():
        means, errors = _running(scores)
        result = run.result
        is_finalist = isinstance(result, TuneResult) and result.finalist == candidate
        ratio = result.ratio if isinstance(result, TuneResult) and is_finalist else race.ratio(candidate)
        name = names.get(candidate, format_count(candidate))
        found.append(
            Curve(
                f"{run.name}: {name}" if has_name else name,
                np.asarray(rounds, np.int64),
                means,
                errors,
                note=f"{ratio_text(ratio)}{', dropped' if candidate in dropped else ''}",
                dimmed=run.dimmed or candidate in dropped,
                run=index,
            )
        )
    return found


def _scores(run: PlottedRun) -> dict[int, tuple[list[int], list[float]]]:
    """Rounds and scores of each candidate; those of the proof too."""
    found: dict[int, tuple[list[int], list[float]]] = {}
    for segment in run.observations:
        if isinstance(segment, TuneSegment) and segment.is_kept:
            for candidate, score in scores_of(segment.timings):
                if candidate != BASELINE:
                    rounds, scores = found.setdefault(candidate, ([], []))
                    rounds.append(segment.round)
                    scores.append(sum(score) / len(score))
    return found


def _running(scores: Sequence[float]) -> tuple[Floats, Floats]:
    """The geometric mean after each score, and its standard error; zero after the first."""
    values = np.asarray(scores, np.float64)
    counts = np.arange(1, len(values) + 1)
    means = np.cumsum(values) / counts
    squares = np.cumsum(values**2) - counts * means**2
    errors = np.sqrt(np.maximum(squares, 0) / np.maximum(counts - 1, 1) / counts)
    return np.exp(means), np.exp(means) * errors


def _race(run: PlottedRun) -> Race:
    race = Race()
    for each in run.observations:
        match each:
            case TuneCandidate(number=number) if number != BASELINE and not each.obstacle:
                race.enter([number])
            case TuneSegment(stage="race", is_kept=True):
                race.add(each)
            case TuneDropped(candidate=candidate):
                race.leave(candidate)
    return race


def _names(run: PlottedRun) -> dict[int, str]:
    candidates = {each.number: each.setup for each in run.observations if isinstance(each, TuneCandidate)}
    baseline = candidates.get(BASELINE)
    return {} if baseline is None else {n: changes_text(changes(baseline, setup)) for n, setup in candidates.items()}
