"""The measurement of `ggbench.experiments.forecast.measure`: twins of a few layers, timed alternately."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Sequence

from msgspec.structs import replace

from ggbench.engines.contract import BatchAtDepth
from ggbench.engines.endings import Completed, EngineEnded, require_completed
from ggbench.engines.events import PromptRead, Steps
from ggbench.engines.llama.build import gpu_backends
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.forecast.layer_twins import TwinWorkers, plan_twins, planned_files, write_twins
from ggbench.experiments.forecast.record import (
    ForecastModel,
    ForecastPlacement,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.files import temporary_folder
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import require_twin_room
from ggbench.machine.gpus import list_gpus
from ggbench.paths import forecasts_dir
from ggbench.runs.experiment import Conclusion
from ggbench.runs.progress import Measuring, PointMeasured, Working
from ggbench.runs.session import Session
from ggbench.sizing.layer_sample import (
    LayerPlacement,
    layer_placements,
    model_cost,
    step_cost,
    without_gpu,
)
from ggbench.units import format_bytes

_SMALL_BATCH = 64
_SLOW_BATCH_NS = 1_500_000_000
"""If a small batch takes longer than this, no larger one is timed."""
_NEAR = 1
"""Cells in use when a step costs only its weights."""


def time_twins(session: Session) -> Measuring[Conclusion]:
    """Write the twins, time them alternately, remove them. Raises like `ForecastExperiment.measure`."""
    setup, model = LlamaConfig.of(session.setup), session.target.header()
    session.use_file(model)
    twins = plan_twins(model, setup)
    files = planned_files(model, twins)
    for described in (ForecastModel(model_cost(model, setup.type_k, setup.type_v)), *twins):
        session.recorder.observe(described)
    placements = _placements(model, twins, setup)
    n_bytes = sum(file.file_bytes for file in files)
    yield PointMeasured(f"writes {format_bytes(n_bytes)} to {require_twin_room(n_bytes)}", n_bytes)
    with contextlib.ExitStack() as stack:
        paths = yield from write_twins(files, stack.enter_context(temporary_folder(forecasts_dir())))
        workers = TwinWorkers(session, paths)
        stack.callback(workers.close)
        try:
            yield from _time_placements(session, workers, twins, placements)
        except EngineEnded as ended:
            return ended.ending
    return Completed()


def _time_placements(
    session: Session,
    workers: TwinWorkers,
    twins: Sequence[ForecastTwin],
    placements: Sequence[ForecastPlacement],
) -> Measuring[None]:
    """Time the twins in each placement. Raises EngineEnded."""
    settings = session.settings(ForecastSettings)
    for placement in placements:
        require_completed((yield from workers.open(replace(placement.setup, n_ctx=settings.n_ctx_needed))))
        yield from _rounds(session, workers, twins, placement)


def _placements(
    model: ModelFile, twins: Sequence[ForecastTwin], setup: LlamaConfig
) -> tuple[ForecastPlacement, ...]:
    """Return the placements of the model's layers; a twin of all layers is placed like the model."""
    found = layer_placements(model, setup)
    if len(found) > 1 and not (gpu_backends() and list_gpus()):
        found = (without_gpu(model, setup),)
    elif len(found) > 1 and len(twins) == 1:
        found = (LayerPlacement(twins[0].layers, setup, ", ".join(each.name for each in found if each.name)),)
    return tuple(_placed(number, model, each) for number, each in enumerate(found))


def _placed(number: int, model: ModelFile, placement: LayerPlacement) -> ForecastPlacement:
    cost = step_cost(model, placement.layers, placement.setup.type_k, placement.setup.type_v)
    return ForecastPlacement(number, cost, placement.setup, placement.name)


def _rounds(
    session: Session, workers: TwinWorkers, twins: Sequence[ForecastTwin], placement: ForecastPlacement
) -> Measuring[None]:
    """Time each twin near the start, and the largest far into a context, in every round. Raises EngineEnded.

    The twins take turns, so changes of the machine affect all, unless one worker has to load each.
    """
    settings = session.settings(ForecastSettings)
    session.recorder.observe(placement)
    places = [*((twin, _NEAR) for twin in twins), (twins[-1], settings.n_depth)]
    asked = [(number, twin, n_depth) for number in range(settings.rounds) for twin, n_depth in places]
    yield Working("probe", 0, len(asked), "warm-up")
    n_batch, step_s = _warm_up(workers, twins, settings)
    if workers.shares_one:
        asked.sort(key=lambda each: each[1].number)
    for n_done, (number, twin, n_depth) in enumerate(asked):
        yield Working("probe", n_done, len(asked), f"round {number + 1} of {settings.rounds}")
        n_gen = n_gen_of(settings, step_s.get((twin.number, n_depth), step_s[twin.number, _NEAR]))
        workload = BatchAtDepth(n_depth, n_gen, n_batch if number < BATCH_ROUNDS else 0)
        step_ns, batch = _timed(workers, twin, workload)
        step_s[twin.number, n_depth] = statistics.median(step_ns) / 1e9
        batch_ns, n_read = (None, 0) if batch is None else (batch.elapsed_ns, batch.n_prompt)
        timing = TwinTiming(twin.number, number, n_depth, step_ns, batch_ns, n_read, placement.number)
        session.recorder.observe(timing)
        session.recorder.keep_readings()
        yield PointMeasured("", timing)


def _warm_up(
    workers: TwinWorkers, twins: Sequence[ForecastTwin], settings: ForecastSettings
) -> tuple[int, dict[tuple[int, int], float]]:
    """Use the memory of each twin once, as that costs more at first.

    Return the size of the batches to time, and the seconds of a step by twin and depth. Raises EngineEnded.
    """
    small, n_batch, step_s = min(_SMALL_BATCH, settings.n_batch), settings.n_batch, {}
    for twin in twins:
        step_ns, batch = _timed(workers, twin, BatchAtDepth(_NEAR, 2, small))
        step_s[twin.number, _NEAR] = step_ns[-1] / 1e9
        if batch is not None and batch.elapsed_ns > _SLOW_BATCH_NS:
            n_batch = small
    return n_batch, step_s


def _timed(
    workers: TwinWorkers, twin: ForecastTwin, workload: BatchAtDepth
) -> tuple[tuple[int, ...], PromptRead | None]:
    """Return the ns of each step, and the batch if it was timed. Raises EngineEnded."""
    events, ending = workers.run(twin.number, workload)
    require_completed(ending)
    step_ns = tuple(ns for event in events if isinstance(event, Steps) for ns in event.step_ns)
    return step_ns, next((event for event in events if isinstance(event, PromptRead)), None)


BATCH_ROUNDS = 3
"""Rounds that also time a batch: the spread of two would say little."""
_FEWEST_TOKENS = 4
_TIMED_S = 1.0
"""Maximum duration of a timing of slow steps, unless the minimum of tokens takes longer."""


def n_gen_of(settings: ForecastSettings, step_s: float) -> int:
    return min(settings.n_gen, max(_FEWEST_TOKENS, int(_TIMED_S / step_s))) if step_s else settings.n_gen
