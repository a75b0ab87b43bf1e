"""Speculative decoding measured with ggbench's own llama.cpp: both models in one worker, their steps timed in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Iterator, Sequence

from msgspec.structs import replace

from ggbench.engines.contract import Engine, Speculate
from ggbench.engines.endings import Completed, EngineEnded, require_completed
from ggbench.engines.events import Speculated
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, UsageError
from ggbench.experiments.speculate.record import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    DraftedPair,
    SpeculateSettings,
    SpeculationCase,
    SpeculationRound,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.runs.experiment import Conclusion
from ggbench.runs.progress import Measuring, PointMeasured, Progress, Working
from ggbench.runs.session import Session, made_file, subject_of
from ggbench.sizing.budget import machine_budget
from ggbench.sizing.drafts import check_drafts, check_pair, check_rolls_back, check_stands_alone
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.stats.speculation import StepTimes, measured_step
from ggbench.text import sanitize
from ggbench.units import format_bytes, format_count

SERVER_ERROR = 0.10
"""The share by which a server's step may differ from a measured one: nearly all of scripts/EVIDENCE.md do less."""
_N_SINGLE = 2
_REQUEST_S, _MOST_PASSES = 1.0, 8
"""Passes of a request: as many as take about this long."""


def time_pair(session: Session) -> Measuring[Conclusion]:
    """Check the pair by its headers, write missing twins, then time the steps. Raises like `measure`."""
    settings, setup = session.settings(SpeculateSettings), LlamaConfig.of(session.setup)
    target = session.target.header()
    if session.draft is None:
        check_drafts(None, target)
        raise UsageError("ggbench's own llama.cpp does not draft with MTP layers", "add --engine llama-server")
    draft = session.draft.header()
    depths = _checked_depths(target, draft, settings)
    setup = LlamaConfig.of(setup.holding(replace(settings, depths=depths).n_ctx_needed))
    _require_memory(session, target, draft, setup)
    subject = subject_of(session.draft, draft, setup.for_draft())
    session.recorder.observe(DraftedPair(subject))
    draft_path = (yield from made_file(session.draft, session.cancel)).paths[0]
    yield from session.prepare_file()
    loaded = replace(setup, n_outputs_max=settings.most_drafted + 1)
    try:
        require_completed((yield from session.open(loaded, draft=draft_path)))
        yield from _rounds(session, depths)
    except EngineEnded as ended:
        return ended.ending
    return Completed()


def _require_memory(session: Session, target: ModelFile, draft: ModelFile, setup: LlamaConfig) -> None:
    """Raise DoesNotFit if model, draft and both contexts need more than the free memory less a reserve."""
    budget = machine_budget(setup, measures=False)
    loaded = replace(setup_to_load(setup, budget), threads=setup.threads or session.context.threads)

    def engine_of() -> Engine:
        return session.context.launch(loaded, session.cancel)

    with DryAllocator(engine_of(), loaded, budget.devices, draft, engine_of) as allocator:
        *_, row = plan([replace(session.target, file=target)], PlanRequest(budget, setup), allocator)
    if row.fits is False:
        needed, usable = format_bytes(row.needed_bytes), format_bytes(budget.usable_bytes)
        what = f"{sanitize(target.name)} and its draft need {needed}, and {usable} can be used"
        raise DoesNotFit(what, "use a smaller quant, a smaller draft or a smaller --n-depth")


def _checked_depths(target: ModelFile, draft: ModelFile, settings: SpeculateSettings) -> tuple[int, ...]:
    """Return the depths within both training contexts. Raises UsageError for an unsuitable pair, or without any."""
    check_stands_alone(draft)
    check_pair(target, draft)
    for file in (target, draft):
        check_rolls_back(file)
    trained = min(file.n_ctx_train or max(settings.depths) + settings.n_ctx_needed for file in (target, draft))
    depths = tuple(n for n in sorted(settings.depths) if n + settings.most_drafted < trained)
    if not depths:
        what = f"no depth is within the training context of {format_count(trained)} tokens"
        raise UsageError(what, "use a smaller --n-depth")
    return depths


def _rounds(session: Session, depths: Sequence[int]) -> Measuring[None]:
    """Time every depth in every round, after an untimed one, as long as the time allows. Raises EngineEnded."""
    settings, started = session.settings(SpeculateSettings), time.monotonic()
    yield Working("probe", text="warm-up")
    (warm,) = yield from _passes(session, depths[0], 1)
    session.recorder.skip_readings()  # loading reads files that were just written
    pass_s = (sum(warm.single_ns) + sum(warm.step_ns)) / 1e9
    n_passes = min(_MOST_PASSES, max(1, round(_REQUEST_S / max(pass_s, 1e-9))))
    for number in range(MOST_ROUNDS):
        began = time.monotonic()
        for n_depth in depths:
            yield Working("probe", number, MOST_ROUNDS, f"round {number + 1} of {MOST_ROUNDS}")
            passes = yield from _passes(session, n_depth, n_passes)
            timed = SpeculationRound(number, n_depth, _medians(passes, settings.timed_k))
            session.recorder.observe(timed)
            session.recorder.keep_readings()
            yield PointMeasured("", timed)
        now = time.monotonic()
        next_ends_s = now - started + now - began
        if number + 1 >= FEWEST_ROUNDS and next_ends_s > settings.within_s:
            return


def _passes(session: Session, n_depth: int, n_passes: int) -> Generator[Progress, None, list[Speculated]]:
    """Raises EngineEnded."""
    ks = session.settings(SpeculateSettings).timed_k
    events, ending = yield from session.ask(Speculate(n_depth, ks, _N_SINGLE, n_passes))
    require_completed(ending)
    return [each for each in events if isinstance(each, Speculated)]


def _medians(passes: Sequence[Speculated], ks: Sequence[int]) -> tuple[StepTimes, ...]:
    """Return the medians over the passes, for each k."""
    t1_ms = statistics.median(ns for each in passes for ns in each.single_ns) / 1e6
    sampler_ms = statistics.median(each.sampler_ns for each in passes) / 1e6
    of_steps = zip(*(each.step_ns for each in passes), strict=True)
    return tuple(
        StepTimes(k, t1_ms, statistics.median(step_ns) / 1e6, sampler_ms)
        for k, step_ns in zip(ks, of_steps, strict=True)
    )


def timed_cases(rounds: Sequence[SpeculationRound]) -> Iterator[SpeculationCase]:
    """Yield each k of each depth that was timed in at least two rounds."""
    timed: dict[tuple[int, int], list[StepTimes]] = {}
    for each in rounds:
        for step in each.steps:
            timed.setdefault((each.n_depth, step.k), []).append(step)
    for (n_depth, _), steps in sorted(timed.items(), key=lambda item: item[0]):
        if len(steps) > 1:
            yield SpeculationCase(n_depth, measured_step(steps, SERVER_ERROR))
