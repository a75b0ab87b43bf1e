"""The measurement of `ggbench.experiments.speculate.measure`: both models in one worker, timed in turn."""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import DraftText, Speculate
from ggbench.engines.endings import Completed, EngineEnded
from ggbench.engines.events import Speculated, TextDrafted
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import DoesNotFit, Unsupported, UsageError
from ggbench.expect.drafts import expected_acceptance
from ggbench.experiments.speculate.pair_memory import pair_memory
from ggbench.experiments.speculate.record import (
    FEWEST_ROUNDS,
    MOST_ROUNDS,
    DraftedPair,
    SpeculateSettings,
    SpeculationRound,
)
from ggbench.experiments.speculate.steps import measured_steps
from ggbench.experiments.speculate.texts import TEXTS, answers_of, is_trained
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_folder
from ggbench.gguf_file.twin_writer import TwinGroup, group_twins
from ggbench.machine.gpus import list_gpus
from ggbench.models.targets import Target
from ggbench.paths import forecasts_dir
from ggbench.runs.experiment import Conclusion
from ggbench.runs.layer_twins import (
    LayerTwin,
    MeasuringCost,
    TwinWorkers,
    announced,
    plan_layer_twins,
    weights_bytes_per_s,
    write_twins,
)
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.runs.session import Session, made_file, subject_of
from ggbench.sizing.drafts import check_drafts, check_pair, check_rolls_back, check_stands_alone
from ggbench.sizing.layer_sample import layer_placements, made_seconds, model_cost
from ggbench.stats.speculation import StepParts, StepTimes, best_step
from ggbench.text import sanitize
from ggbench.units import format_count

_N_SINGLE = 2
_REQUEST_S, _MOST_PASSES = 1.0, 8
"""Passes of a request: as many as take about this long."""
_TEXTS_SHARE = 0.5
"""Time for texts, as a share of that for steps."""
_FEWEST_GEN, _MOST_GEN = 16, 192
"""Tokens of a text; a model too slow for the fewest generates none."""
_BATCH_TOKENS_PER_STEP = 8
"""Tokens of a batch that take as long as a step."""
_FILL_STEPS = 5
"""Steps that take as long as filling the cache before each request, mostly with copies."""


def time_pair(session: Session) -> Generator[Progress, None, Conclusion]:
    """Check the pair by its headers, write missing twins, then time the steps. Raises like `measure`."""
    settings, setup = session.settings(SpeculateSettings), LlamaConfig.of(session.setup)
    target = session.target.header()
    if session.draft is None:
        check_drafts(None, target)
        raise UsageError("ggbench's own llama.cpp does not draft with MTP layers", "add --engine llama-server")
    draft = session.draft.header()
    depths = _checked_depths(target, draft, settings)
    session.use_file(target)
    twins = _twins(session.target, target, setup)
    layers = (*(each.cost for each in twins), model_cost(target, setup.type_k, setup.type_v)) if twins else ()
    has_random_router = bool(target.n_expert) and not is_trained(session.target)
    subject = subject_of(session.draft, draft, setup.for_draft())
    session.recorder.observe(DraftedPair(subject, layers, has_random_router))
    setup = LlamaConfig.of(setup.holding(replace(settings, depths=depths).n_ctx_needed))
    _size(session, twins[-1].file if twins else target, setup)
    group = group_twins([each.file for each in twins]) if twins else None
    yield announced(_cost(session, twins, len(depths), group))
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        draft_path = (yield from made_file(session.draft, session.cancel)).paths[0]
        paths = yield from _made(session, twins, group, stack)
        workers = TwinWorkers(session, paths, draft_path)
        stack.callback(workers.close)
        ending = yield from workers.open(replace(setup, n_outputs_max=settings.most_drafted + 1))
        if not isinstance(ending, Completed):
            return ending
        try:
            yield from _rounds(session, workers, len(paths), depths, started)
            if _has_texts(session):
                yield from _texts(session)
        except EngineEnded as ended:
            return ended.ending
    return Completed()


def _made(
    session: Session, twins: Sequence[LayerTwin], group: TwinGroup | None, stack: contextlib.ExitStack
) -> Generator[Progress, None, list[Path]]:
    """Return the files to time, after making them: twins, which the stack removes, or the model's own."""
    if group is None:
        return [(yield from session.prepare_file()).paths[0]]
    return (yield from write_twins(twins, group, stack.enter_context(twin_folder(forecasts_dir()))))


def _has_texts(session: Session) -> bool:
    """Return whether both models have trained weights here, so that what they generate says what is accepted."""
    return session.draft is not None and is_trained(session.target) and is_trained(session.draft)


def _size(session: Session, loaded: ModelFile, setup: LlamaConfig) -> None:
    """Record what the pair takes. Raises DoesNotFit if the file that is loaded, maybe a twin's, and the draft do not
    fit.
    """
    assert session.draft is not None
    target, draft = session.target.header(), session.draft.header()
    memory = pair_memory(session, target, draft, setup)
    if memory is None:
        return
    session.recorder.observe(memory)
    is_whole = loaded.n_layer == target.n_layer
    if memory.lack and (is_whole or loaded.file_bytes + draft.file_bytes > memory.usable_bytes):
        hint = "use a smaller quant, a smaller draft or a smaller --n-depth"
        raise DoesNotFit(f"{sanitize(target.name)} and its draft {memory.lack}", hint)


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


def _twins(target: Target, model: ModelFile, setup: LlamaConfig) -> tuple[LayerTwin, ...]:
    """Return twins of some layers, fewest first; nothing for a file that is here or a twin that is measured whole."""
    if target.path is not None or is_trained(target):
        return ()
    twins = plan_layer_twins(model, setup)
    if len(twins) == 1:
        return ()
    if len(layer_placements(model, setup)) > 1 and list_gpus():
        raise Unsupported(
            f"{sanitize(model.name)} is split between GPU and main memory, and is not on this disk",
            "omit -ngl and the tensor overrides, or give the file",
        )
    return twins


def _rounds(
    session: Session, workers: TwinWorkers, n_twins: int, depths: Sequence[int], started: float
) -> Generator[Progress, None, None]:
    """Time every depth in every round, after an untimed one, as long as the time since `started` allows.

    Raises EngineEnded.
    """
    settings = session.settings(SpeculateSettings)
    yield Working("probe", text="warm-up")
    warm = [each for twin in range(n_twins) for each in _passes(workers, settings, depths[0], twin, 1)]
    session.recorder.skip_readings()  # loading reads files that were just written
    pass_s = sum(sum(each.single_ns) + sum(step.step_ns for step in each.steps) for each in warm[-1:]) / 1e9
    n_passes = min(_MOST_PASSES, max(1, round(_REQUEST_S / max(pass_s, 1e-9))))
    began = started
    for number in range(MOST_ROUNDS):
        now = time.monotonic()
        ends_at, began = 2 * now - began, now  # if it takes as long as the one before
        if number >= FEWEST_ROUNDS and ends_at - started > settings.within_s:
            return
        twins = range(n_twins)
        for twin in twins if number % 2 else reversed(twins):  # begin with the one that is open
            for n_depth in depths:
                yield Working("probe", number, MOST_ROUNDS, f"round {number + 1} of {MOST_ROUNDS}")
                found = _medians(_passes(workers, settings, n_depth, twin, n_passes))
                timed = SpeculationRound(number, n_depth, found, twin)
                session.recorder.observe(timed)
                session.recorder.keep_readings()
                yield PointMeasured("", timed)


def _passes(
    workers: TwinWorkers, settings: SpeculateSettings, n_depth: int, twin: int, n_passes: int
) -> list[Speculated]:
    """Raises EngineEnded."""
    events, ending = workers.run(twin, Speculate(n_depth, settings.timed_k, _N_SINGLE, n_passes))
    if not isinstance(ending, Completed):
        raise EngineEnded(ending)
    return [each for each in events if isinstance(each, Speculated)]


def _medians(passes: Sequence[Speculated]) -> tuple[StepTimes, ...]:
    """Return the median of each part over the passes, for each k."""
    t1_ms = statistics.median(ns for each in passes for ns in each.single_ns) / 1e6
    sampler_ms = statistics.median(each.sampler_ns for each in passes) / 1e6
    found = []
    for steps in zip(*(each.steps for each in passes), strict=True):
        draft, verify, reread, whole = (
            statistics.median(getattr(step, name) for step in steps) / 1e6
            for name in ("draft_ns", "verify_ns", "reread_ns", "step_ns")
        )
        k = steps[0].n_drafted
        host_ms = max(0.0, whole - draft - verify - reread)
        parts = StepParts(verify, draft / k, reread, host_ms, sampler_ms)
        found.append(StepTimes.of_parts(k, t1_ms, parts))
    return tuple(found)


def _texts(session: Session) -> Generator[Progress, None, None]:
    """Generate each text with the k that is fastest at a typical acceptance, alternating with none.

    Raises EngineEnded.
    """
    timed = session.recorder.recording.of(SpeculationRound)
    n_depth = min(each.n_depth for each in timed)
    steps = [step for depth, step in measured_steps(timed, ()) if depth == n_depth]
    best = best_step(steps, expected_acceptance("draft").value).times
    n_gen = _n_gen(best.t1_ms / 1e3, session.settings(SpeculateSettings).within_s)
    if not n_gen:
        yield PointMeasured("no text is generated, as that would take longer than --within", best)
        return
    for number in range(FEWEST_ROUNDS):
        for name, text in TEXTS.items():
            yield Working("decode", number, FEWEST_ROUNDS, f"{name}, round {number + 1} of {FEWEST_ROUNDS}")
            events, ending = yield from session.ask(
                DraftText(text, n_gen - 1, best.k, drafts_first=number % 2 == 1)
            )
            if not isinstance(ending, Completed):
                raise EngineEnded(ending)
            drafted = next(event for event in events if isinstance(event, TextDrafted))
            for found in answers_of(name, number, best.k, drafted):
                session.recorder.observe(found)
                yield PointMeasured("", found)


def _n_gen(token_s: float, within_s: float) -> int:
    """Return the tokens of each text, given the time of one; 0 if there is no time for any."""
    n_gen = int(_TEXTS_SHARE * within_s / (2 * token_s * FEWEST_ROUNDS * len(TEXTS)))
    return min(n_gen, _MOST_GEN) if n_gen >= _FEWEST_GEN else 0


def _cost(
    session: Session, twins: Sequence[LayerTwin], n_depths: int, group: TwinGroup | None
) -> MeasuringCost:
    """Return the cost of a measurement of these twins in a group, or of the whole file without any."""
    assert session.draft is not None
    settings, rate = session.settings(SpeculateSettings), weights_bytes_per_s(session.context)
    target, draft = session.target.header(), session.draft.header()
    read_bytes: list[float] = [target.active_weight_bytes or 0]
    if twins:
        outside_bytes = read_bytes[0] - model_cost(target).layer_bytes
        read_bytes = [outside_bytes + each.cost.layer_bytes for each in twins]
    token_s, draft_s = sum(read_bytes) / rate, (draft.active_weight_bytes or 0) / rate
    verify = [1 + (k + 1) / _BATCH_TOKENS_PER_STEP for k in settings.timed_k]
    pass_s = token_s * (1 + _N_SINGLE + sum(verify)) + draft_s * (sum(settings.timed_k) + sum(verify))
    untimed_s = token_s * (max(verify) + _FILL_STEPS) + draft_s * (settings.most_drafted + max(verify))
    request_s = untimed_s + max(pass_s, min(_REQUEST_S, _MOST_PASSES * pass_s))
    fewest_s, most_s = (n * n_depths * request_s for n in (FEWEST_ROUNDS, MOST_ROUNDS))
    seconds = untimed_s + pass_s + max(fewest_s, min(most_s, settings.within_s))
    if _has_texts(session):
        seconds += FEWEST_ROUNDS * len(TEXTS) * 2 * token_s * _n_gen(token_s, settings.within_s)
    kept_bytes = _kept_bytes(session, twins)
    disk_bytes = 0 if group is None else group.file_bytes
    return MeasuringCost(
        made_seconds(len(read_bytes), disk_bytes + kept_bytes) + seconds, disk_bytes, kept_bytes
    )


def _kept_bytes(session: Session, twins: Sequence[LayerTwin]) -> int:
    """Return the bytes of the files to write that are kept: those that are not here, and not measured by twins."""
    whole = [session.draft] if twins else [session.draft, session.target]
    return sum(each.header().file_bytes for each in whole if each is not None and each.path is None)
