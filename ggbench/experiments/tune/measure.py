"""The tune experiment: the defaults against a short list of settings in turns, then against the fastest alone, again.

The best of several is partly lucky, so only the second round's interval is stated. A measurement of that round has a
worker of its own, since the memory layout of a process changes its speed by a few percent.
"""

from __future__ import annotations

import statistics
from collections.abc import Generator, Iterator, Sequence
from operator import truediv
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, EngineConfig, Source
from ggbench.engines.endings import Cancelled, Completed, Ending, EngineEnded
from ggbench.engines.events import Event, PromptRead, Ready, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit
from ggbench.experiments.tune.record import (
    BASELINE,
    MOST_GEN,
    TuneCandidate,
    TuneResult,
    TuneSettings,
    TuneTiming,
)
from ggbench.machine.host import describe_cpu, logical_cpus
from ggbench.machine.readings import moment_ns
from ggbench.runs.experiment import Conclusion, Experiment
from ggbench.runs.progress import Measuring, PointMeasured, Progress, Working
from ggbench.runs.recording import Recording, WorkerStarted
from ggbench.runs.run import Settings
from ggbench.stats.intervals import Estimate
from ggbench.stats.turns import FEWEST_TURNS, ordered, ratio_of_turns

if TYPE_CHECKING:
    from ggbench.gguf_file.model_file import ModelFile
    from ggbench.runs.session import Session
    from ggbench.sizing.fit import Fitter


class TuneExperiment(Experiment):
    """Measure the defaults and some other settings in turns, then the gain of the fastest again."""

    kind = "tune"
    settings_type = TuneSettings
    result_type = TuneResult
    needs = (DecodeAtDepth,)
    observed = (TuneCandidate, TuneTiming)

    def check(self, setup: EngineConfig, settings: Settings) -> None:
        super().check(setup, settings)
        if isinstance(settings, TuneSettings) and settings.objective != "decode":
            setup.require(BatchAtDepth)

    def measure(self, session: Session) -> Measuring[Conclusion]:
        """Raises Unsupported for an engine without these settings, and DoesNotFit."""
        file = yield from session.prepare_file()
        yield Working("probe", text="sizing")
        try:
            candidates = candidates_of(session, file)
            for each in candidates:
                session.recorder.observe(each)
            ending = yield from session.open(candidates[BASELINE].setup)
            if not isinstance(ending, Completed):
                return ending
            rounds = _Rounds(session, file, candidates)
            rounds.warm_up()
            fitting = [index for index, each in enumerate(candidates) if not each.reason]
            yield from rounds.measure(1, fitting, 1, FEWEST_TURNS, 0.5)
            found = self.reduce(session.recorder.recording)
            while found.finalist is not None and found.ratio is None:  # the next one, if the first fails
                yield from rounds.measure(2, [BASELINE, found.finalist], FEWEST_TURNS, 4 * FEWEST_TURNS, 1.0)
                found = self.reduce(session.recorder.recording)
        except EngineEnded as ended:
            return ended.ending
        return Completed()

    def reduce(self, recording: Recording) -> TuneResult:
        timings = recording.of(TuneTiming)
        candidates = tuple(
            _first_round(index, each, timings) for index, each in enumerate(recording.of(TuneCandidate))
        )
        faster = [index for index, each in enumerate(candidates) if (each.speed or 0) > 1]
        finalist = max(faster, key=lambda index: candidates[index].speed or 0, default=None)
        found = ratio_of_turns(_ratios(timings, 2, finalist))
        ratio = None if found is None else Estimate(found.value, found.low, found.high)
        return TuneResult(candidates, finalist, ratio)


EXPERIMENT = TuneExperiment()


def _ratios(timings: Sequence[TuneTiming], number: int, candidate: int | None) -> list[float]:
    """Return a candidate's speed / the defaults' in each turn of a round that timed both."""
    timed = [each for each in timings if each.round == number and each.times_ns]
    defaults = {each.turn: each.times_ns for each in timed if each.candidate == BASELINE}
    own = [each for each in timed if each.candidate == candidate and each.turn in defaults]
    return [statistics.geometric_mean(map(truediv, defaults[each.turn], each.times_ns)) for each in own]


def _first_round(index: int, candidate: TuneCandidate, timings: Sequence[TuneTiming]) -> TuneCandidate:
    """Return a candidate with what the first round found, and the failure of either; its setup names no program."""
    own = {name: getattr(candidate.setup, name) for name in LlamaConfig.__struct_fields__}
    candidate = replace(candidate, setup=LlamaConfig(**own))
    failures = [each.failure for each in timings if each.candidate == index and each.failure]
    if failures:
        return replace(candidate, reason=failures[0])
    ratios = _ratios(timings, 1, index)
    times = [each.times_ns for each in timings if each.candidate == index and each.round == 1]
    medians_ms = tuple(statistics.median(column) / 1e6 for column in zip(*times, strict=True))
    return replace(candidate, speed=statistics.geometric_mean(ratios) if ratios else None, times_ms=medians_ms)


def candidates_of(session: Session, file: ModelFile) -> list[TuneCandidate]:
    """Return the defaults and the settings to try, with why those that do not fit are not. Raises DoesNotFit, and
    EngineEnded if llama.cpp crashes.
    """
    from ggbench.show.words import said
    from ggbench.sizing.fit import free_fitter, obstacle

    settings = session.settings(TuneSettings)
    given = LlamaConfig.of(session.setup).holding(settings.n_ctx_needed)
    with free_fitter(lambda: session.context.launch(given, session.cancel), file, given) as fitter:
        defaults, *more = _fitting(fitter, given)
        flash_attn, n_gpus = "off", 0
        if fitter is not None:
            fit = fitter.sized(given)
            flash_attn = "on" if fit is not None and fit.context.flash_attn is False else "off"
            n_gpus = len(fitter.budget.devices)
        others = (replace(defaults, **each) for each in _others(defaults, settings, n_gpus))
        tried = dict.fromkeys((defaults, replace(defaults, flash_attn=flash_attn), *more, *others))
        found = (None if each == defaults else obstacle(fitter, each) for each in tried)
        return [TuneCandidate(each, said(note)) for each, note in zip(tried, found, strict=True)]


def _fitting(fitter: Fitter | None, given: LlamaConfig) -> list[LlamaConfig]:
    """Return the given setup or, if it does not fit, those that keep just enough out of GPU memory. Raises
    DoesNotFit.
    """
    from ggbench.show.words import said
    from ggbench.sizing.fit import obstacle
    from ggbench.sizing.what_helps import placements

    too_large = obstacle(fitter, given)
    if fitter is None or too_large is None:
        return [given]
    smaller = [fit.setup for _, fit in placements(fitter, given) if fit is not None and fit.is_enough]
    if not smaller:
        raise DoesNotFit(said(too_large), "lower --depth, or use another quant; ggbench plan shows what fits")
    return smaller


def _others(defaults: LlamaConfig, settings: TuneSettings, n_gpus: int) -> Iterator[dict[str, Any]]:
    """Yield changes of threads, n_ubatch and split mode."""
    if not n_gpus or defaults.places_tensors:
        n_cores = describe_cpu().n_cores
        yield from ({"threads": n} for n in (logical_cpus(), n_cores, n_cores // 2) if n)
    ubatches = [n for n in (128, 256, 1024, 2048) if n <= settings.n_batch]
    yield from (
        {"n_ubatch": n, "n_batch": max(n, defaults.n_batch)} for n in ubatches
    )  # n_batch makes room for it
    if n_gpus > 1 and defaults.main_gpu is None:
        yield {"split_mode": "none"}


class _Rounds:
    """Measures candidates in turns. One that fails is left out from then on; failed defaults end the search."""

    def __init__(self, session: Session, file: ModelFile, candidates: Sequence[TuneCandidate]) -> None:
        self._session, self._settings = session, session.settings(TuneSettings)
        self._source = Source(file.paths[0])
        self._setups = [each.setup for each in candidates]
        self._failed: set[int] = set()
        self._n_gen, self._began = 3, monotonic()

    def warm_up(self) -> None:
        """Measure the defaults once, and choose how many tokens take 0.4 s, 3 to 64. Raises EngineEnded."""
        self._n_gen = min(MOST_GEN, max(self._n_gen, round(0.4e9 / max(self._times(BASELINE)))))

    def measure(
        self, number: int, members: Sequence[int], fewest: int, most: int, share: float
    ) -> Generator[Progress]:
        """Measure the members in turns, after `fewest` only within this share of the time. Raises EngineEnded."""
        for turn in range(most):
            members = [each for each in members if each not in self._failed]
            is_late = monotonic() - self._began > share * self._settings.within_s
            if len(members) < 2 or (is_late and turn >= fewest):
                return
            for place, member in enumerate(ordered(members, turn)):
                done = (turn + place / len(members)) / most
                yield Working("probe", done, 1.0, f"round {number} of 2, turn {turn + 1} of {most}")
                if number == 2:
                    self._session.engine.close()
                timing = self._timing(number, turn, member)
                self._session.recorder.observe(timing)
                yield PointMeasured(timing.failure, timing)
            self._session.recorder.keep_readings()

    def _timing(self, number: int, turn: int, member: int) -> TuneTiming:
        """Raises EngineEnded for failed defaults and a cancelled run."""
        try:
            return TuneTiming(member, number, turn, self._times(member))
        except EngineEnded as ended:
            if member == BASELINE or isinstance(ended.ending, Cancelled):
                raise
            self._failed.add(member)
            return TuneTiming(member, number, turn, failure=ended.ending.reason)

    def _times(self, member: int) -> tuple[float, ...]:
        """Return the times in ns that `TuneSettings.timed` names. Raises EngineEnded."""
        engine, settings = self._session.engine, self._settings
        self._completed(engine.open(self._source, self._setups[member]))
        n_gen = 0 if settings.objective == "prefill" else self._n_gen
        times, began_ns = list[float](), moment_ns()
        for n_depth in settings.depths:
            decode = DecodeAtDepth(max(1, n_depth), n_gen)
            batch = BatchAtDepth(max(1, n_depth), n_gen, settings.n_batch)
            events = self._completed(engine.run(batch if settings.n_batch else decode))
            steps = [ns for event in events if isinstance(event, Steps) for ns in event.step_ns]
            times += [statistics.median(steps)] if steps else []
            times += [event.elapsed_ns for event in events if isinstance(event, PromptRead)]
        self._session.recorder.recording.add_span("tune", (began_ns, moment_ns()))
        return tuple(times)

    def _completed(self, answers: Iterator[Event | Ending]) -> list[Event | Ending]:
        """Return all answers of the engine. Raises EngineEnded if they do not end well."""
        events = list(answers)
        for event in events:
            if isinstance(event, Ready) and event.pid is not None:
                self._session.recorder.observe(WorkerStarted(event.pid))
            elif isinstance(event, Ending) and not isinstance(event, Completed):
                raise EngineEnded(event)
        return events
