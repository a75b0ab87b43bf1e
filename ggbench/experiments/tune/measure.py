"""Tune: the settings that beat the defaults on this machine, with the gain and its interval."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.experiments.tune.race import BASELINE, Race, block_of, proven
from ggbench.experiments.tune.record import (
    Gain,
    Objective,
    State,
    TuneCandidate,
    TunedCandidate,
    TuneDropped,
    TuneFailed,
    TuneNoise,
    TuneResult,
    TuneSegment,
    TuneSettings,
    TuneTiming,
    changes,
    changes_text,
)
from ggbench.runs.experiment import Conclusion, Experiment, FoundSetup
from ggbench.runs.recording import Recording
from ggbench.stats.intervals import Expected
from ggbench.units import format_percent, format_ratio

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session
    from ggbench.runs.store.database import Store


class TuneExperiment(Experiment):
    """Race settings against the defaults, then measure the gain of the best again."""

    kind: ClassVar[str] = "tune"
    settings_type = TuneSettings
    result_type = TuneResult
    needs_file: ClassVar[str] = "a server took its settings when it started"
    needs_gguf: ClassVar[str] = "its settings are llama.cpp's"
    observed = (TuneCandidate, TuneSegment, TuneDropped, TuneFailed, TuneNoise)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises Unsupported for an engine without such settings, DoesNotFit and UsageError for too little time."""
        from ggbench.experiments.tune.search import search

        return (yield from search(session))

    def reduce(self, recording: Recording) -> TuneResult | None:
        """The table of all candidates, and the gain of the finalist as far as it was measured."""
        return tune_result(
            recording.settings(TuneSettings).objective,
            recording.of(TuneCandidate),
            recording.of(TuneSegment),
            recording.of(TuneDropped),
            recording.of(TuneFailed),
            recording.last(TuneNoise),
        )

    def find_setup(self, store: Store, target: Target) -> FoundSetup | None:
        """Return the newest search for this file that decided something, one that still holds before a stale one."""
        from ggbench.experiments.tune.tuned import find_tuned

        return find_tuned(store, target)


EXPERIMENT = TuneExperiment()


def tune_result(
    objective: Objective,
    candidates: Sequence[TuneCandidate],
    segments: Sequence[TuneSegment],
    dropped: Sequence[TuneDropped],
    failed: Sequence[TuneFailed],
    noise: TuneNoise | None,
) -> TuneResult | None:
    """Return the result as far as the search came; None where not even the baseline is known."""
    if not candidates:
        return None
    race = Race()
    race.enter(each.number for each in candidates if each.number != BASELINE and not each.obstacle)
    for each in segments:
        if each.stage == "race" and each.is_kept:
            race.add(each)
    for number in (*(each.candidate for each in dropped), *(each.candidate for each in failed)):
        race.leave(number)
    proofs = [each for each in segments if each.stage == "proof" and each.is_kept]
    finalist = next((_measured_in(each) for each in reversed(proofs)), BASELINE) or race.leader
    proofs = [each for each in proofs if _measured_in(each) == finalist]
    found = proven([block_of(each) for each in proofs])
    whole = found[0] if found else None
    variance, freedom = race.noise
    n_shared = sum(one.timings[-1] == other.timings[0] for one, other in itertools.pairwise(segments))
    fates = _fates(candidates, dropped, failed)
    if whole is not None and whole.low > 1:
        fates[finalist] = ("best", "")
    return TuneResult(
        objective,
        tuple(_row(each, race, segments, fates) for each in candidates),
        finalist or None,
        whole,
        _gains([timing for each in proofs for timing in each.timings if timing.candidate == finalist], found[1])
        if found
        else (),
        sum(len(each.timings) for each in segments) - n_shared,
        sum(len(each.timings) for each in segments if not each.is_kept),
        math.sqrt(variance) if freedom else None,
        "" if noise is None else _unsteady(noise),
    )


def _fates(
    candidates: Sequence[TuneCandidate], dropped: Sequence[TuneDropped], failed: Sequence[TuneFailed]
) -> dict[int, tuple[State, str]]:
    """What became of each candidate, and why."""
    texts = {each.number: changes_text(changes(candidates[0].setup, each.setup)) for each in candidates}
    found: dict[int, tuple[State, str]] = {BASELINE: ("baseline", "")}
    for each in candidates:
        if each.obstacle:
            found[each.number] = ("left out", each.obstacle)
    for out in dropped:
        ratio = format_ratio(out.ratio.value, out.ratio.low, out.ratio.high)
        found[out.candidate] = ("dropped", f"round {out.round}: {ratio} times the speed of {texts[out.leader]}")
    found.update({out.candidate: ("failed", out.reason) for out in failed})
    return found


def _row(
    candidate: TuneCandidate, race: Race, segments: Sequence[TuneSegment], fates: Mapping[int, tuple[State, str]]
) -> TunedCandidate:
    number = candidate.number
    state, reason = fates.get(number, ("raced", ""))
    timings = [timing for each in segments if each.is_kept for timing in each.timings if timing.candidate == number]
    ratio = None if number == BASELINE else race.ratio(number)
    parts: list[Expected | None] = []
    if ratio is not None:
        parts = [race.part(number, index) for index in range(sum(len(at.times_ns) for at in timings[0].at))]
    return TunedCandidate(
        number, candidate.setup, state, reason, len(timings), ratio, _gains(timings, parts), candidate.kv_loss
    )


def _gains(timings: Sequence[TuneTiming], parts: Sequence[Expected | None]) -> tuple[Gain, ...]:
    """By depth, from measurements and from the ratios in the order of the times of one; of the baseline without any."""
    left, gains = iter(parts), []
    for index, at in enumerate(timings[0].at if timings else ()):
        steps = [each.at[index].step_ns for each in timings]
        batches = [each.at[index].batch_ns for each in timings]
        decode = next(left, None) if at.step_ns is not None else None
        prefill = next(left, None) if at.batch_ns is not None else None
        gains.append(Gain(at.n_depth, decode, prefill, _median_ms(steps), _median_ms(batches)))
    return tuple(gains)


def _median_ms(times_ns: Sequence[float | None]) -> float | None:
    known = [each for each in times_ns if each is not None]
    return statistics.median(known) / 1e6 if known else None


def _measured_in(segment: TuneSegment) -> int:
    """The one candidate of a proof; the baseline where it failed."""
    return max(timing.candidate for timing in segment.timings)


def _unsteady(noise: TuneNoise) -> str:
    """Why nothing could be decided, with what computed meanwhile."""
    change = f"the defaults took {format_percent(noise.drift)} of their previous time, repeatedly"
    who = ", ".join(noise.busy)
    return f"{change}; {who} used the CPU" if who else f"{change}; no other program used the CPU"
