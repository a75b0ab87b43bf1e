"""The measurement of `ggbench.experiments.forecast.measure`: twins of a few layers, timed alternately."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from ggbench.engines.contract import DecodeAtDepth, Source
from ggbench.engines.endings import Completed, Ending, Outcome
from ggbench.engines.events import Memory, PromptRead, Steps
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.forecast.record import (
    ForecastCost,
    ForecastModel,
    ForecastPlacement,
    ForecastResult,
    ForecastSettings,
    ForecastTwin,
    TwinTiming,
)
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.twin import remove_left_twins, twin_folder, twin_of
from ggbench.gguf_file.twin_writer import TwinGroup, group_twins, require_room
from ggbench.machine.gpus import list_gpus
from ggbench.machine.host import describe_cpu
from ggbench.paths import forecasts_dir
from ggbench.runs.comparable import ThisMachine
from ggbench.runs.experiment import Concluded, Conclusion
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
    step_cost,
    twin_layers,
    without_gpu,
)
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit
from ggbench.units import counted, format_bytes, format_rough_seconds

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
    forecasts_dir().mkdir(parents=True, exist_ok=True)
    remove_left_twins(forecasts_dir())
    twins, planned = _plan(session, model, setup)
    placements = _placements(model, twins, setup)
    if earlier := earlier_timings(session, twins, placements):
        stored, timings, limit = earlier
        session.begin(stored.environment)
        for each in (*placements, *timings, *([limit] if limit else [])):
            session.recorder.observe(each)
        yield PointMeasured(f"run {stored.run_id} has timed the same twins", stored.run_id)
        return Concluded(reason=f"the timings are those of run {stored.run_id}")
    group = group_twins(planned)
    yield _announced(session, model, twins, group, len(placements))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(twin_folder(forecasts_dir()))
        paths = []
        for twin, own in zip(twins, group.own, strict=True):
            yield Working("write", 0, own.file_bytes, counted(len(twin.layers), "layer"))
            paths.append(group.write(twin.number, folder))
        workers = _Workers(session, paths, shares_one=bool(setup.rpc_servers))
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


def _announced(
    session: Session, model: ModelFile, twins: Sequence[ForecastTwin], group: TwinGroup, n_placements: int
) -> PointMeasured:
    """Return the cost, shown before anything is written. Raises DoesNotFit if the disk lacks room."""
    context, folder = session.context, forecasts_dir()
    bandwidth = context.given_bandwidth or context.cpu_bandwidth
    in_layers = step_cost(model, range(model.n_layer - model.n_layer_nextn)).layer_bytes
    cost = forecast_cost(
        twins,
        group.file_bytes,
        (model.active_weight_bytes or 0) - in_layers,
        session.settings(ForecastSettings),
        bandwidth,
        n_placements,
    )
    require_room(folder, cost.disk_bytes, "the twins need", "free some space, set XDG_CACHE_HOME to a folder with room")
    seconds, disk = format_rough_seconds(cost.seconds), format_bytes(cost.disk_bytes)
    return PointMeasured(f"about {seconds} and {disk} of disk in {folder}, removed after", cost)


def _plan(session: Session, model: ModelFile, setup: LlamaConfig) -> tuple[list[ForecastTwin], list[ModelFile]]:
    types = setup.type_k, setup.type_v
    n_layer = model.n_layer - model.n_layer_nextn
    session.recorder.observe(ForecastModel(step_cost(model, range(n_layer), *types), model.shape_key))
    twins, planned = [], []
    for number, layers in enumerate(twin_layers(model, describe_cpu().last_level_cache_bytes)):
        file = twin_of(model, model.name, None if len(layers) == n_layer else layers)
        cost = step_cost(model, layers, *types)
        twin = ForecastTwin(number, layers, cost, file.file_bytes, file.shape_key)
        session.recorder.observe(twin)
        twins.append(twin)
        planned.append(file)
    return twins, planned


class _Workers:
    """One worker per twin; a single one for RPC servers, which serve one client at a time."""

    def __init__(self, session: Session, paths: Sequence[Path], *, shares_one: bool) -> None:
        self._session, self._paths, self.shares_one = session, paths, shares_one
        n_own = 0 if shares_one else len(paths) - 1
        self._own = [session.context.launch(session.setup, session.cancel) for _ in range(n_own)]
        self._setup: LlamaConfig | None = None
        self._open_number = 0

    def open(self, setup: LlamaConfig) -> Generator[Progress, None, Ending]:
        """Open the first twin in the session's worker, and the others in their own workers, if any."""
        self._setup, self._open_number = setup, 0
        ending = yield from self._session.open(setup, self._paths[0])
        for engine, path in zip(self._own, self._paths[1:], strict=False):
            if isinstance(ending, Completed):
                ending = _last(engine.open(Source(path), setup))
        return ending

    def run(self, number: int, workload: DecodeAtDepth) -> tuple[list[object], Ending]:
        """Return the events of a twin's workload and how it ended; opens the twin if another one is open."""
        if number and not self.shares_one:
            *events, ending = self._own[number - 1].run(workload)
        else:
            if number != self._open_number:
                assert self._setup is not None
                opened = _last(self._session.engine.open(Source(self._paths[number]), self._setup))
                if not isinstance(opened, Completed):
                    return [], opened
                self._open_number = number
            *events, ending = self._session.engine.run(workload)
        assert isinstance(ending, Ending)
        return list(events), ending

    def close(self) -> None:
        for engine in self._own:
            engine.close()


def _last(events: Iterator[object]) -> Ending:
    *_, ending = events
    assert isinstance(ending, Ending)
    return ending


def _rounds(
    session: Session, workers: _Workers, twins: Sequence[ForecastTwin], placement: ForecastPlacement
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
        events, ending = workers.run(twin.number, DecodeAtDepth(_NEAR, 2, min(_SMALL_BATCH, settings.n_batch)))
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
        events, ending = workers.run(twin.number, DecodeAtDepth(n_depth, n_gen, of_batch))
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


def forecast_cost(
    twins: Sequence[ForecastTwin],
    disk_bytes: int,
    outside_bytes: float,
    settings: ForecastSettings,
    bandwidth: Bandwidth | None,
    n_placements: int = 1,
) -> ForecastCost:
    """Return the cost of writing and timing twins; a step reads `outside_bytes` besides the layers."""
    rate = bandwidth.bytes_per_s if bandwidth is not None else UNKNOWN_BYTES_PER_S
    near_s = [(outside_bytes + twin.cost.layer_bytes) / (WEIGHTS_SHARE * rate) for twin in twins]
    far_s = near_s[-1] + twins[-1].cost.kv_bytes(settings.n_depth) / (_KV_SHARE * rate)
    timed_s = sum((n_gen_of(settings, step_s) + 1) * step_s for step_s in [*near_s, far_s])
    batch_s = (sum(near_s) + far_s) * settings.n_batch / _BATCH_TOKENS_PER_STEP
    fill_s = near_s[-1] * _FILL_TOKENS / _BATCH_TOKENS_PER_STEP
    probed_s = settings.rounds * (timed_s + fill_s) + min(BATCH_ROUNDS, settings.rounds) * batch_s
    warm_s = 6 * sum(near_s)
    made_s = made_seconds(len(twins), disk_bytes)
    return ForecastCost(disk_bytes, made_s + n_placements * (warm_s + probed_s))


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
