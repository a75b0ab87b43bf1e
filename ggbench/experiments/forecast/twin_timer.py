"""The measurement of `ggbench.experiments.forecast.measure`: twins of a few layers, timed alternately."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Sequence

from msgspec.structs import replace

from ggbench.engines.contract import BatchAtDepth
from ggbench.engines.endings import Completed, Ending, Outcome
from ggbench.engines.events import Memory, PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.forecast.record import (
    ForecastModel,
    ForecastPlacement,
    ForecastResult,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import twin_folder
from ggbench.gguf_file.twin_writer import group_twins
from ggbench.machine.gpus import list_gpus
from ggbench.paths import forecasts_dir
from ggbench.runs.comparable import ThisMachine
from ggbench.runs.experiment import Concluded, Conclusion
from ggbench.runs.layer_twins import MeasuringCost, TwinWorkers, announced, plan_layer_twins, write_twins
from ggbench.runs.progress import PointMeasured, Progress, Working
from ggbench.runs.recording import Recording
from ggbench.runs.session import Session
from ggbench.runs.store.runs import StoredRun
from ggbench.runs.stored import listed_run, read_recording
from ggbench.sizing.layer_sample import (
    UNKNOWN_BYTES_PER_S,
    WEIGHTS_SHARE,
    LayerPlacement,
    layer_placements,
    made_seconds,
    model_cost,
    step_cost,
    without_gpu,
)
from ggbench.stats.decode_timing import DecodeLimit

_SMALL_BATCH = 64
_SLOW_BATCH_NS = 1_500_000_000
"""If a small batch takes longer than this, no larger one is timed."""
_NEAR = 1
"""Cells in use when a step costs only its weights."""


def time_twins(session: Session) -> Generator[Progress, None, Conclusion]:
    """Write the twins, time them alternately, remove them. Raises like `ForecastExperiment.measure`."""
    settings, setup = session.settings(ForecastSettings), LlamaConfig.of(session.setup)
    model = session.target.header()
    session.use_file(model)
    planned = plan_layer_twins(model, setup)
    cost = model_cost(model, setup.type_k, setup.type_v)
    twins = [
        ForecastTwin(number, each.layers, each.cost, each.file.file_bytes, each.file.shape_key)
        for number, each in enumerate(planned)
    ]
    for described in (ForecastModel(cost, model.shape_key), *twins):
        session.recorder.observe(described)
    placements = _placements(model, twins, setup)
    if earlier := earlier_timings(session, twins, placements):
        stored, timings, limit = earlier
        session.begin(stored.environment)
        for each in (*placements, *timings, *([limit] if limit else [])):
            session.recorder.observe(each)
        yield PointMeasured(f"run {stored.run_id} has timed the same twins", stored.run_id)
        return Concluded(reason=f"the timings are those of run {stored.run_id}")
    group = group_twins([each.file for each in planned])
    outside_bytes = (model.active_weight_bytes or 0) - cost.layer_bytes
    yield announced(_cost(session, twins, group.file_bytes, outside_bytes, len(placements)))
    with contextlib.ExitStack() as stack:
        paths = yield from write_twins(planned, group, stack.enter_context(twin_folder(forecasts_dir())))
        workers = TwinWorkers(session, paths)
        stack.callback(workers.close)
        for placement in placements:
            ending = yield from workers.open(replace(placement.setup, n_ctx=settings.n_ctx_needed))
            if not isinstance(ending, Completed):
                return ending
            is_split = len(placements) > 1
            buffers = session.allocated.buffers if session.allocated else ()
            if is_split and placement.number == 0 and not Memory(buffers=buffers).weights_on_gpu:
                placement, is_split = _placed(0, model, without_gpu(model, setup)), False
            session.recorder.observe(placement)
            ending = yield from _rounds(session, workers, twins, placement)
            if not isinstance(ending, Completed) or not is_split:
                return ending
        return Completed()


def _placements(model: ModelFile, twins: Sequence[ForecastTwin], setup: LlamaConfig) -> tuple[ForecastPlacement, ...]:
    """Return the placements of the model's layers; a twin of all layers is placed like the model."""
    found = layer_placements(model, setup)
    if len(found) > 1 and not list_gpus():
        found = (without_gpu(model, setup),)
    elif len(found) > 1 and len(twins) == 1:
        found = (LayerPlacement(twins[0].layers, setup, ", ".join(each.name for each in found if each.name)),)
    return tuple(_placed(number, model, each) for number, each in enumerate(found))


def _placed(number: int, model: ModelFile, placement: LayerPlacement) -> ForecastPlacement:
    cost = step_cost(model, placement.layers, placement.setup.type_k, placement.setup.type_v)
    return ForecastPlacement(number, cost, placement.setup, placement.name)


def _rounds(
    session: Session, workers: TwinWorkers, twins: Sequence[ForecastTwin], placement: ForecastPlacement
) -> Generator[Progress, None, Ending]:
    """Time each twin near the start, and the largest far into a context, in every round.

    The twins take turns, so changes of the machine affect all, unless one worker has to load each.
    """
    settings = session.settings(ForecastSettings)
    n_done, n_total = 0, settings.rounds * (len(twins) + 1)
    n_batch = settings.n_batch
    step_s: dict[tuple[int, int], float] = {}  # from the last timing, by twin and depth
    for twin in twins:  # memory costs more at its first use
        yield Working("probe", n_done, n_total, "warm-up")
        events, ending = workers.run(twin.number, BatchAtDepth(_NEAR, 2, min(_SMALL_BATCH, settings.n_batch)))
        if not isinstance(ending, Completed):
            return ending
        if any(isinstance(event, PromptRead) and event.elapsed_ns > _SLOW_BATCH_NS for event in events):
            n_batch = min(_SMALL_BATCH, settings.n_batch)
        step_s[twin.number, _NEAR] = _timing(twin, placement, 0, _NEAR, events).step_ns[-1] / 1e9
    places = [(twin, _NEAR) for twin in twins] + [(twins[-1], settings.n_depth)]
    asked = [(number, twin, n_depth) for number in range(settings.rounds) for twin, n_depth in places]
    if workers.shares_one:
        asked.sort(key=lambda each: each[1].number)
    for number, twin, n_depth in asked:
        of_batch = n_batch if number < BATCH_ROUNDS else 0
        yield Working("probe", n_done, n_total, f"round {number + 1} of {settings.rounds}")
        n_gen = n_gen_of(settings, step_s.get((twin.number, n_depth), step_s[twin.number, _NEAR]))
        events, ending = workers.run(twin.number, BatchAtDepth(n_depth, n_gen, of_batch))
        if not isinstance(ending, Completed):
            return ending
        timing = _timing(twin, placement, number, n_depth, events)
        step_s[twin.number, n_depth] = statistics.median(timing.step_ns) / 1e9
        session.recorder.observe(timing)
        session.recorder.keep_readings()
        n_done += 1
        yield PointMeasured("", timing)
    return Completed()


def _timing(
    twin: ForecastTwin, placement: ForecastPlacement, number: int, n_depth: int, events: Sequence[object]
) -> TwinTiming:
    step_ns = tuple(ns for event in events if isinstance(event, Steps) for ns in event.step_ns)
    batch = next((event for event in events if isinstance(event, PromptRead)), None)
    return TwinTiming(
        twin.number,
        number,
        n_depth,
        step_ns,
        None if batch is None else batch.elapsed_ns,
        0 if batch is None else batch.n_prompt,
        placement.number,
    )


BATCH_ROUNDS = 3
"""Rounds that also time a batch: the spread of two would say little."""
_FEWEST_TOKENS = 4
_TIMED_S = 1.0
"""Maximum duration of a timing of slow steps, unless the minimum of tokens takes longer."""
_KV_SHARE = 0.1
"""Share of the memory bandwidth reached by reading a KV cache."""
_BATCH_TOKENS_PER_STEP = 25
"""Tokens of a batch that take as long as a step."""
_FILL_TOKENS = 32
"""Tokens that are read; the cells after them are copies."""


def n_gen_of(settings: ForecastSettings, step_s: float) -> int:
    return min(settings.n_gen, max(_FEWEST_TOKENS, int(_TIMED_S / step_s))) if step_s else settings.n_gen


def _cost(
    session: Session, twins: Sequence[ForecastTwin], disk_bytes: int, outside_bytes: float, n_placements: int
) -> MeasuringCost:
    """Return the cost of writing and timing twins; a step reads `outside_bytes` besides the layers."""
    settings, context = session.settings(ForecastSettings), session.context
    bandwidth = context.given_bandwidth or context.cpu_bandwidth
    rate = bandwidth.bytes_per_s if bandwidth is not None else UNKNOWN_BYTES_PER_S
    near_s = [(outside_bytes + twin.cost.layer_bytes) / (WEIGHTS_SHARE * rate) for twin in twins]
    far_s = near_s[-1] + twins[-1].cost.kv_bytes(settings.n_depth) / (_KV_SHARE * rate)
    timed_s = sum((n_gen_of(settings, step_s) + 1) * step_s for step_s in [*near_s, far_s])
    batch_s = (sum(near_s) + far_s) * settings.n_batch / _BATCH_TOKENS_PER_STEP
    fill_s = near_s[-1] * _FILL_TOKENS / _BATCH_TOKENS_PER_STEP
    probed_s = settings.rounds * (timed_s + fill_s) + min(BATCH_ROUNDS, settings.rounds) * batch_s
    warm_s = 6 * sum(near_s)
    made_s = made_seconds(len(twins), disk_bytes)
    return MeasuringCost(made_s + n_placements * (warm_s + probed_s), disk_bytes)


_STEADY = 0.25
"""Half-width of the interval of B, relative to B, above which a forecast counts as disturbed and is not reused."""


def earlier_timings(
    session: Session, twins: Sequence[ForecastTwin], placements: Sequence[ForecastPlacement]
) -> tuple[StoredRun, tuple[TwinTiming, ...], DecodeLimit | None] | None:
    """Return the newest run that timed such twins in each of these placements on this machine, and its timings.

    They may be of another model of the same shape, or of another number of layers. Timings of several runs are not
    combined: twins are timed alternately, so that a slowdown of the machine affects all of them.
    """
    store, own = session.context.store, session.recorder.recording.head
    if store is None:
        return None
    here = ThisMachine.describe()
    decisive = [(twin.shape_key, twin.cost) for twin in twins]
    for stored in store.runs_of_kind(own.kind):
        if stored.state != Outcome.COMPLETED or not here.made(stored.environment):
            continue
        with contextlib.suppress(StoreError, UnknownName):
            result = listed_run(stored).result
            b_ms = result.b_ms if isinstance(result, ForecastResult) else None
            if b_ms is None or b_ms.high - b_ms.low > 2 * _STEADY * b_ms.value:
                continue
            found = read_recording(store, stored)
            timed = [(twin.shape_key, twin.cost) for twin in found.of(ForecastTwin)]
            if found.head.settings != own.settings or timed != decisive:
                continue
            timings = _timings(found, here, placements)
            if timings is not None:
                is_same = bool(own.subject.shape_key) and stored.subject.shape_key == own.subject.shape_key
                return stored, timings, found.last(DecodeLimit) if is_same else None
    return None


def _timings(
    found: Recording, here: ThisMachine, placements: Sequence[ForecastPlacement]
) -> tuple[TwinTiming, ...] | None:
    """Return the timings of each placement, by its number here; None if one is missing."""
    timings: list[TwinTiming] = []
    known = {each.number: here.decisive(each.setup, None) for each in found.of(ForecastPlacement)}
    for placement in placements:
        alike = [number for number, setup in known.items() if setup == here.decisive(placement.setup, None)]
        taken = [each for each in found.of(TwinTiming) if each.placement in alike[:1]]
        if not taken:
            return None
        timings += [replace(each, placement=placement.number) for each in taken]
    return tuple(timings)
