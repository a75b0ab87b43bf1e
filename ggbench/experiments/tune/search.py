"""The search of `tune.measure`: candidates, a race, combinations of the better ones, and a proof."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Generator, Sequence
from time import monotonic

import msgspec
from msgspec.structs import replace

from ggbench.decisions.known_losses import MeasuredLosses, measured_losses
from ggbench.engines.contract import BatchAtDepth, DecodeAtDepth, Engine, Source
from ggbench.engines.endings import Cancelled, Completed, Ending, EngineEnded
from ggbench.engines.events import PromptRead, Ready, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit
from ggbench.experiments.tune.race import (
    BASELINE,
    BETWEEN_BASELINES,
    Choice,
    Known,
    Race,
    blocks_for,
    choices,
    combined,
    drift_of,
    in_order,
    is_steady,
    singles,
)
from ggbench.experiments.tune.record import (
    MOST_GEN,
    DepthTiming,
    Stage,
    TuneCandidate,
    TuneDropped,
    TuneFailed,
    TuneNoise,
    TuneSegment,
    TuneSettings,
    TuneTimeUp,
    TuneTiming,
    changes,
    changes_text,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import describe_cpu, logical_cpus
from ggbench.machine.readings import BusyPrograms
from ggbench.runs.experiment import Concluded, Conclusion
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.runs.recording import WorkerStarted
from ggbench.runs.session import Session
from ggbench.sizing.what_helps import SetupSizes
from ggbench.units import counted, format_number, format_percent, format_rough_seconds

FEWEST_BLOCKS, MOST_BLOCKS = 5, 16
"""Blocks of the proof; each measures the finalist twice."""
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 50
"""Minimum number of rounds of the race, even when time runs out, and maximum number."""
_TRIES, _WASTED_SHARE = 3, 0.25
"""Attempts at a segment, and share of the time in discarded ones, before the machine counts as too noisy."""
_ALONE_SHARE, _RACE_SHARE = 0.4, 0.6
"""Shares of the time after which races of single changes, and of combinations, end; the rest is for the proof."""
_FEWEST_IN_HASTE = 2
"""Blocks of the proof even if the time is up, as fewer give no interval."""


class _TooNoisy(Exception):
    """The baseline varies too much for a search."""


class _TimeUp(Exception):
    """The next measurement would end too late."""


def search(session: Session) -> Generator[Progress, None, Conclusion]:
    """Find the best settings within the time. Raises like `TuneExperiment.measure`."""
    settings, setup = session.settings(TuneSettings), LlamaConfig.of(session.setup)
    file = yield from session.prepare_file()
    began = monotonic()
    given = setup.holding(settings.n_ctx_needed)
    sizes = SetupSizes(lambda: session.context.launch(given, session.cancel), file, given)
    yield Working("probe", text="sizing")
    (size,) = sizes.of([given])
    placements: Sequence[Choice] = sizes.placements() if size.obstacle else ()
    if size.obstacle and not placements:
        raise DoesNotFit(size.obstacle, "lower --depth, or use another quant; ggbench plan shows what fits")
    baseline = TuneCandidate(BASELINE, replace(given, **placements[0]) if placements else given)
    session.recorder.observe(baseline)
    ending = yield from session.open(baseline.setup)
    if not isinstance(ending, Completed):
        return ending
    known = Known(
        logical_cpus(),
        describe_cpu().n_cores,
        session.allocated.flash_attn if session.allocated else size.context.flash_attn if size.context else None,
        placements[1:],
        sizes.n_devices,
    )
    try:
        return (yield from _Search(session, file, sizes, baseline, known, began).run())
    except EngineEnded as ended:
        return ended.ending


class _Search:
    """A search. A failed candidate is removed; a failed baseline ends the search."""

    def __init__(
        self, session: Session, file: ModelFile, sizes: SetupSizes, baseline: TuneCandidate, known: Known, began: float
    ) -> None:
        self._session, self._sizes, self._known = session, sizes, known
        self._settings = session.settings(TuneSettings)
        self._header = file.header_sha256
        self._losses = (
            measured_losses(session.context.store, {self._header}) if self._settings.kv_types else MeasuredLosses()
        )
        self._timer = TuneTimer(
            session.engine,
            Source(file.paths[0]),
            self._settings,
            lambda pid: session.recorder.observe(WorkerStarted(pid)),
        )
        self._candidates = {BASELINE: baseline}
        self._race = Race()
        self._failed: set[int] = set()
        self._round = 0
        self._began = began
        self._wasted_s = 0.0
        """Seconds in measurements discarded for drift."""
        self._is_fresh = False
        """Whether each measurement has its own worker."""
        self._seconds: dict[int, float] = {}
        """Duration of each candidate's last measurement."""

    def run(self) -> Generator[Progress, None, Conclusion]:
        """Raises EngineEnded if the baseline fails or the run was cancelled."""
        baseline = self._candidates[BASELINE].setup
        dimensions = choices(baseline, self._settings, self._known)
        alone = singles(baseline, dimensions)
        try:
            yield from self._calibrate()
            yield from self._enter(alone)
            yield from self._run_race(_ALONE_SHARE, lambda: self._race.is_sorted)
            together = self._combinations(dimensions, alone)
            if together:
                yield from self._enter(together)
                yield from self._run_race(_RACE_SHARE, lambda: self._race.is_decided)
            yield from self._prove()
        except _TooNoisy:
            return Concluded(reason="the machine is too noisy to decide")
        except _TimeUp:
            self._session.recorder.observe(TuneTimeUp(self._seconds[BASELINE]))
        return Completed()

    def _calibrate(self) -> Generator[Progress, None, None]:
        """Warm up the baseline, and choose how many tokens to time. Raises _TimeUp."""
        yield Working("probe", text="calibrating")
        baseline = self._candidates[BASELINE]
        _completed(self._timed(BASELINE))
        loading_s = self._seconds.pop(BASELINE)  # including first-time costs, such as reading the file
        if self._left_s() < 0:
            self._seconds[BASELINE] = loading_s
            raise _TimeUp
        self._timer = self._timer.calibrated(_completed(self._timed(BASELINE)))
        _completed(self._timed(BASELINE))
        cost = f"a measurement takes {format_number(self._seconds[BASELINE])} s"
        yield PointMeasured(f"{cost}; at most {format_rough_seconds(self._settings.within_s)} in all", baseline)

    def _enter(self, setups: Sequence[LlamaConfig]) -> Generator[Progress, None, None]:
        """Size new candidates, and enter those that fit into the race, as time allows."""
        round_s = _FEWEST_ROUNDS * self._seconds[BASELINE] * (1 + 1 / BETWEEN_BASELINES)
        left_s = self._left_s() - (1 - _RACE_SHARE) * self._settings.within_s
        room = max(1, int(left_s / round_s)) if round_s else len(setups)
        own = self._candidates[BASELINE].setup
        if own.rpc_servers:
            self._session.engine.close()  # a server serves one client, which must be the dry worker
        for setup, size in zip(setups, self._sizes.of(setups), strict=True):
            obstacle, number = size.obstacle, len(self._candidates)
            if not obstacle and not room:
                obstacle = "no time was left to try it"
            cache = setup.type_k, setup.type_v
            loss = None if cache == (own.type_k, own.type_v) else self._losses.of_cache(self._header, cache)
            candidate = TuneCandidate(number, setup, obstacle, loss)
            self._candidates[number] = candidate
            self._session.recorder.observe(candidate)
            yield PointMeasured("", candidate)
            if not obstacle:
                room -= 1
                self._race.enter([number])

    def _run_race(self, share: float, is_done: Callable[[], bool]) -> Generator[Progress, None, None]:
        """Measure all candidates in the race, round by round, until `is_done` or this share of the time is used."""
        for number in range(_MOST_ROUNDS):
            is_over = self._left_s() < (1 - share) * self._settings.within_s
            if number >= _FEWEST_ROUNDS and (is_over or self._race.is_decided or is_done()):
                return
            self._round += 1
            yield from self._run_round()
            leader = self._race.leader
            for candidate, ratio in self._race.look():
                dropped = TuneDropped(candidate, self._round, leader, ratio)
                self._session.recorder.observe(dropped)
                yield PointMeasured(f"{self._name(candidate)}: dropped after round {self._round}", dropped)

    def _run_round(self) -> Generator[Progress, None, None]:
        # equal for candidates between which the model stays loaded
        loads = [self._candidates[each].setup.load_part for each in self._race.alive]
        order = in_order(self._race.alive, self._round, loads)
        first: TuneTiming | None = None
        for start in range(0, len(order), BETWEEN_BASELINES):
            members = [each for each in order[start : start + BETWEEN_BASELINES] if each in self._race.alive]
            leader = self._race.leader
            lead = "" if leader == BASELINE else f", {self._name(leader)} leads"
            yield self._working(f"round {self._round}: {counted(len(self._race.alive), 'candidate')}{lead}")
            segment = yield from self._segment("race", members, first)
            self._race.add(segment)
            first = segment.timings[-1]

    def _segment(
        self, stage: Stage, members: Sequence[int], first: TuneTiming | None = None
    ) -> Generator[Progress, None, TuneSegment]:
        """Measure the baseline, these candidates and the baseline again, until the baseline is steady. Raises
        _TooNoisy.

        `first` is a measurement of the baseline from just before.
        """
        recorder = self._session.recorder
        for _ in range(_TRIES):
            busy, tried_at = BusyPrograms(), monotonic()
            timings = [first or _completed(self._timed(BASELINE))]
            for member in members:
                if member not in self._race.alive:
                    continue
                timing = self._timed(member)
                if isinstance(timing, TuneTiming):
                    timings.append(timing)
                elif isinstance(timing, Cancelled):
                    raise EngineEnded(timing)
                else:
                    self._race.leave(member)
                    self._failed.add(member)
                    failed = TuneFailed(member, timing.reason)
                    recorder.observe(failed)
                    yield PointMeasured(f"{self._name(member)}: {timing.reason}", failed)
            timings.append(_completed(self._timed(BASELINE)))
            drift = drift_of(timings)
            is_kept = is_steady(drift)
            segment = TuneSegment(stage, self._round, tuple(timings), drift, is_kept, () if is_kept else busy.since())
            recorder.observe(segment)
            recorder.keep_readings()
            if is_kept:
                yield PointMeasured("", segment)
                return segment
            yield PointMeasured(
                f"the baseline took {format_percent(drift)} of its previous time: measured again", segment
            )
            self._wasted_s += monotonic() - tried_at
            if self._wasted_s > _WASTED_SHARE * self._settings.within_s:
                break
            first, members = None, [each for each in members if each in self._race.alive]
        recorder.observe(TuneNoise(segment.drift, segment.busy))
        raise _TooNoisy

    def _prove(self) -> Generator[Progress, None, None]:
        """Measure the leader's gain in a fixed number of blocks; if it fails, that of the next candidate."""
        baseline = self._candidates[BASELINE].setup
        n_changes = {each.number: len(changes(baseline, each.setup)) for each in self._candidates.values()}
        while True:
            if self._failed:  # others were dropped because a candidate that failed later was faster
                self._race.enter(self._race.scores.keys() - self._failed - set(self._race.alive))
            finalist = self._race.finalist(n_changes)
            if finalist == BASELINE:
                return
            n_blocks = self._blocks(finalist)
            for number in range(1, n_blocks + 1):
                if self._left_s() < 2 * (self._seconds[BASELINE] + self._seconds[finalist]):
                    raise _TimeUp
                self._round += 1
                yield self._working(f"proof {number} of {n_blocks}: {self._name(finalist)}")
                yield from self._segment("proof", [finalist, finalist])
                if finalist not in self._race.alive:
                    break
            else:
                return

    def _blocks(self, finalist: int) -> int:
        """Return how many blocks to measure, each measurement in its own worker if there is enough time.

        The memory layout of a process varies between starts of llama.cpp and changes its speed by a few percent.
        """
        n_blocks = blocks_for(self._race.noise[0], FEWEST_BLOCKS, MOST_BLOCKS)
        warm_s = 2 * (self._seconds[BASELINE] + self._seconds[finalist])
        self._is_fresh = True
        _completed(self._timed(BASELINE))
        room = int(self._left_s() / (4 * self._seconds[BASELINE])) if self._seconds[BASELINE] else n_blocks
        if room < FEWEST_BLOCKS:
            self._is_fresh = False
            room = int(self._left_s() / warm_s) if warm_s else n_blocks
        return max(_FEWEST_IN_HASTE, min(n_blocks, room))

    def _combinations(self, dimensions: Sequence[Sequence[Choice]], alone: Sequence[LlamaConfig]) -> list[LlamaConfig]:
        """Return the setups to combine: the best value of each setting that was faster, and of each that may be."""
        race, baseline = self._race, self._candidates[BASELINE].setup
        numbers = {each.setup: each.number for each in self._candidates.values()}
        good, may_be = [], []
        for dimension in dimensions:
            tried = [numbers[setup] for setup in singles(baseline, [dimension])]
            values = [number for number in tried if race.scores.get(number) and number not in self._failed]
            best = max(values, key=race.mean, default=BASELINE)
            if race.is_promising(best):
                good.append(best)
            elif race.is_open(best):
                may_be.append(best)
        faster, open_ = (
            [self._candidates[number].setup for number in sorted(found, key=race.mean, reverse=True)]
            for found in (good, may_be)
        )
        return combined(baseline, faster, open_, alone)

    def _timed(self, number: int) -> TuneTiming | Ending:
        """Measure a candidate. Raises _TimeUp if it would end too late, judging by its last time or the baseline's."""
        began = monotonic()
        if self._seconds and self._left_s() < self._seconds.get(number, self._seconds[BASELINE]):
            raise _TimeUp
        found = self._timer.time(self._candidates[number], is_fresh=self._is_fresh)
        self._seconds[number] = monotonic() - began
        return found

    def _left_s(self) -> float:
        return self._settings.within_s - (monotonic() - self._began)

    def _working(self, text: str) -> Working:
        within_s = self._settings.within_s
        return Working("probe", within_s - max(0.0, self._left_s()), within_s, text)

    def _name(self, number: int) -> str:
        return changes_text(changes(self._candidates[BASELINE].setup, self._candidates[number].setup))


def _completed(timing: TuneTiming | Ending) -> TuneTiming:
    """Raises EngineEnded."""
    if isinstance(timing, TuneTiming):
        return timing
    raise EngineEnded(timing)


_FEWEST_GEN = 3
_GEN_S = 0.4
"""Target duration of decoding at each depth, in seconds."""
_WARMUP_GEN = 2


class TuneTimer(msgspec.Struct, frozen=True):
    """Measures candidates on one engine, which keeps the model loaded if only the context differs."""

    engine: Engine
    source: Source
    settings: TuneSettings
    on_started: Callable[[int], object]
    """Called with the process id of each started worker."""
    n_gen: tuple[int, ...] = ()
    """Tokens to time at each depth; empty before the calibration."""

    def calibrated(self, baseline: TuneTiming) -> TuneTimer:
        """Return a timer that times the tokens that take 0.4 s at each depth, 3 to 64."""
        steps_s = [(at.step_ns or 0.0) / 1e9 for at in baseline.at]
        wanted = (round(_GEN_S / each) if each else 0 for each in steps_s)
        return replace(self, n_gen=tuple(min(MOST_GEN, max(_FEWEST_GEN, each)) for each in wanted))

    def time(self, candidate: TuneCandidate, *, is_fresh: bool = False) -> TuneTiming | Ending:
        """Return the candidate's times, or its ending if it did not complete; with `is_fresh`, use a new worker."""
        if is_fresh:
            self.engine.close()
        ending: object = None
        for ending in self.engine.open(self.source, candidate.setup):
            if isinstance(ending, Ready) and ending.pid is not None:
                self.on_started(ending.pid)
        if not isinstance(ending, Completed):
            assert isinstance(ending, Ending)
            return ending
        decodes = self.settings.objective != "prefill"
        n_batch = self.settings.n_prompt if self.settings.objective != "decode" else 0
        found = []
        for index, n_depth in enumerate(self.settings.depths):
            n_gen = (self.n_gen[index] if self.n_gen else _WARMUP_GEN) if decodes else 0
            at = max(1, n_depth)
            *events, ending = self.engine.run(BatchAtDepth(at, n_gen, n_batch) if n_batch else DecodeAtDepth(at, n_gen))
            if not isinstance(ending, Completed):
                assert isinstance(ending, Ending)
                return ending
            steps = [ns for event in events if isinstance(event, Steps) for ns in event.step_ns]
            batch = next((event.elapsed_ns for event in events if isinstance(event, PromptRead)), None)
            found.append(DepthTiming(n_depth, statistics.median(steps) if steps else None, batch))
        return TuneTiming(candidate.number, tuple(found))
