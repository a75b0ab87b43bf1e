"""The tune experiment: settings that beat the defaults on this machine, with the gain and its interval."""

from __future__ import annotations

import contextlib
import itertools
import math
import statistics
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, EngineConfig
from ggbench.engines.llama.build import gpu_backends
from ggbench.errors import GgbenchError, StoreError
from ggbench.experiments.tune.race import BASELINE, Race, block_of, proven
from ggbench.experiments.tune.record import (
    Gain,
    State,
    TuneCandidate,
    TunedCandidate,
    TuneDropped,
    TuneFailed,
    TuneNoise,
    TuneResult,
    TuneSegment,
    TuneSettings,
    TuneTimeUp,
    TuneTiming,
    changes,
    changes_text,
    ratio_text,
)
from ggbench.machine.condition import gpus_of
from ggbench.machine.records import Gpu
from ggbench.models.targets import Target
from ggbench.runs.comparable import ThisMachine
from ggbench.runs.experiment import Conclusion, Experiment, FoundSetup
from ggbench.runs.recording import Recording
from ggbench.runs.run import Settings
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, StoredRun
from ggbench.runs.stored import read_run
from ggbench.stats.intervals import Expected
from ggbench.units import format_duration, format_percent, format_ratio

if TYPE_CHECKING:
    from ggbench.runs.progress import Progress
    from ggbench.runs.session import Session


class TuneExperiment(Experiment):
    """Race settings against the defaults, then remeasure the gain of the best."""

    kind: ClassVar[str] = "tune"
    settings_type = TuneSettings
    result_type = TuneResult
    needs = (DecodeAtDepth,)
    observed = (TuneCandidate, TuneSegment, TuneDropped, TuneFailed, TuneNoise, TuneTimeUp)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if isinstance(settings, TuneSettings) and settings.objective != "decode":
            setup.require(BatchAtDepth)

    def measure(self, session: Session) -> Generator[Progress, None, Conclusion]:
        """Raises Unsupported for an engine without these settings, and DoesNotFit."""
        from ggbench.experiments.tune.search import search

        return (yield from search(session))

    def reduce(self, recording: Recording) -> TuneResult | None:
        candidates = recording.of(TuneCandidate)
        return tune_result(recording, candidates, recording.of(TuneSegment)) if candidates else None

    def find_setup(self, store: Store, target: Target) -> FoundSetup | None:
        return find_tuned(store, target)


EXPERIMENT = TuneExperiment()
_MEASUREMENTS = 60
"""Measurements in a search with about five candidates and a proof of five blocks."""


def tune_result(
    recording: Recording, candidates: Sequence[TuneCandidate], segments: Sequence[TuneSegment]
) -> TuneResult:
    """Return the result of the search so far."""
    dropped, failed, noise = recording.of(TuneDropped), recording.of(TuneFailed), recording.last(TuneNoise)
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
    unsteady = ""
    if noise is not None:
        busy = ", ".join(noise.busy) or "no other program"
        unsteady = (
            f"the defaults took {format_percent(noise.drift)} of their previous time, repeatedly; {busy} used the CPU"
        )
    return TuneResult(
        recording.settings(TuneSettings).objective,
        tuple(_row(each, race, segments, fates) for each in candidates),
        finalist or None,
        whole,
        _gains([timing for each in proofs for timing in each.timings if timing.candidate == finalist], found[1])
        if found
        else (),
        sum(len(each.timings) for each in segments) - n_shared,
        sum(len(each.timings) for each in segments if not each.is_kept),
        math.sqrt(variance) if freedom else None,
        unsteady,
        "" if found else _cut_short(recording.last(TuneTimeUp)),
    )


def _cut_short(time_up: TuneTimeUp | None) -> str:
    if time_up is None:
        return ""
    enough_s = _MEASUREMENTS * time_up.measurement_s
    took = f"a measurement takes {format_duration(time_up.measurement_s)}"
    return f"{took}, and a search some {_MEASUREMENTS} of them: give --within {math.ceil(enough_s / 60)}m or more"


def _fates(
    candidates: Sequence[TuneCandidate], dropped: Sequence[TuneDropped], failed: Sequence[TuneFailed]
) -> dict[int, tuple[State, str]]:
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
    """Return gains by depth from measurements and, if given, ratios in the order of one measurement's times."""
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
    """Return the candidate of a proof, or the baseline if the proof failed."""
    return max(timing.candidate for timing in segment.timings)


def find_tuned(store: Store, target: Target) -> FoundSetup | None:
    """Return the newest conclusive search for this file, preferring one that is still valid.

    A search counts if the header is the same, or if it was requested by the same name. Raises StoreError.
    """
    header, path = "", str(target.path.absolute()) if target.path is not None else ""
    with contextlib.suppress(GgbenchError):
        header = target.header().header_sha256
    here, gpus = ThisMachine.describe(), gpus_of(gpu_backends())
    is_local = target.path is not None and target.source is None and target.published is None
    stale: FoundSetup | None = None
    for stored in store.runs_of_kind("tune"):
        subject = stored.subject
        is_same = (header and subject.header_sha256 == header) or (path and subject.file == path)
        is_named_so = not is_local and (subject.model, subject.quant) == (target.model, target.quant)
        if stored.state == RUNNING or stored.is_imported or not (is_same or is_named_so):
            continue
        with contextlib.suppress(StoreError):
            run = read_run(store, stored)
            result = run.result
            if not isinstance(result, TuneResult) or result.unsteady or result.cut_short:
                continue
            if run.head.setup.engine_option or not (result.has_gain or run.is_complete):
                continue
            changed = _changed(stored, header, here, gpus)
            text, settings = f"run {run.run_id} found no settings that beat the defaults", dict[str, object]()
            if result.best is not None:
                settings, gain = result.changes(result.best), ratio_text(result.ratio)
                text = f"{changes_text(settings)}, as run {run.run_id} found: {gain} times the speed of the defaults"
            found = FoundSetup(run.run_id, settings, text, changed)
            if not changed:
                return found
            stale = stale or found
    return stale


def _changed(stored: StoredRun, header: str, here: ThisMachine, gpus: tuple[Gpu, ...]) -> tuple[str, ...]:
    environment, found = stored.environment, []
    if header and stored.subject.header_sha256 != header:
        found.append("the file")
    if environment is None:
        return (*found, "an unknown llama.cpp")
    if environment.llama_cpp_python != here.llama_cpp_python:
        found.append(f"llama-cpp-python, {environment.llama_cpp_python} then and {here.llama_cpp_python} now")
    if (environment.cpu, environment.n_cores) != (here.cpu, here.n_cores):
        found.append(f"the CPU, {environment.cpu} with {environment.n_cores} cores then")
    if tuple(gpu.name for gpu in environment.gpus) != here.gpus:
        found.append("the GPUs")
    elif (drivers := [gpu.driver for gpu in environment.gpus]) != [gpu.driver for gpu in gpus]:
        found.append(f"the driver, {', '.join(map(str, dict.fromkeys(drivers)))} then")
    return tuple(found)
