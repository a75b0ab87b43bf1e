"""Forecasts that this machine has made, for models of the same tensors."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import replace

from ggbench.errors import StoreError
from ggbench.experiments.forecast import EXPERIMENT
from ggbench.experiments.stored import read_recording
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.cpu import default_threads, describe_cpu
from ggbench.recording.recording import Recording
from ggbench.records.forecast import ForecastModel, ForecastResult, ForecastTwin, TwinTiming
from ggbench.records.machine import Environment
from ggbench.records.outcome import Outcome
from ggbench.records.plan import PlannedForecast, PlanRow
from ggbench.records.setup import LlamaSetup, Setup
from ggbench.sizing.forecast_twins import shape_key
from ggbench.stats.step_forecast import speed_at
from ggbench.store.database import Store
from ggbench.store.runs import StoredRun


def with_forecasts(
    store: Store, rows: Sequence[PlanRow], files: Sequence[ModelFile | None], setup: LlamaSetup
) -> list[PlanRow]:
    """Return the rows with the speed that is expected at their n_ctx, where a forecast of such a model is known."""
    wanted = {shape_key(file) for file in files if file is not None}
    known: dict[str, ForecastResult] = {}
    for stored, recording in _usable(store, setup):
        model, result = recording.last(ForecastModel), EXPERIMENT.reduce(recording)
        if model is not None and model.shape_key in wanted and result is not None and stored.state == Outcome.COMPLETED:
            known.setdefault(model.shape_key, result)
    return [
        replace(row, expected=_at(known.get(shape_key(file)), row.n_ctx)) if file is not None else row
        for row, file in zip(rows, files, strict=True)
    ]


def earlier_timings(
    store: Store | None, setup: Setup, twins: Sequence[ForecastTwin], run_id: int | None
) -> tuple[StoredRun, Recording] | None:
    """Return the newest run that timed the same twins under the same setup on this machine, and what it recorded."""
    if store is None:
        return None
    wanted = [twin.fingerprint for twin in twins]
    for stored, recording in _usable(store, setup):
        measured = [twin.fingerprint for twin in recording.of(ForecastTwin)]
        is_whole = stored.state == Outcome.COMPLETED and bool(recording.of(TwinTiming))
        if is_whole and measured == wanted and stored.run_id != run_id:
            return stored, recording
    return None


def _usable(store: Store, setup: Setup) -> list[tuple[StoredRun, Recording]]:
    """Forecasts of this machine, build and setup, newest first."""
    found = []
    for stored in store.list_runs(kind=EXPERIMENT.kind):
        if not _is_of_this_machine(stored.environment):
            continue
        try:
            recording = read_recording(store, stored)
        except StoreError:
            continue
        if _loaded_alike(recording.head.setup, setup):
            found.append((stored, recording))
    return found


def _is_of_this_machine(environment: Environment | None) -> bool:
    return (
        environment is not None
        and environment.cpu == describe_cpu().name
        and environment.llama_cpp_python == importlib.metadata.version("llama_cpp_python")
    )


def _loaded_alike(one: Setup, other: Setup) -> bool:
    """Whether only n_ctx differs, and threads where one leaves them to the machine."""
    if not isinstance(one, LlamaSetup) or not isinstance(other, LlamaSetup):
        return False

    def decisive(setup: LlamaSetup) -> LlamaSetup:
        return replace(setup, n_ctx=None, threads=setup.threads or default_threads())

    return decisive(one) == decisive(other)


def _at(found: ForecastResult | None, n_ctx: int | None) -> PlannedForecast | None:
    expected = None if found is None or n_ctx is None else speed_at(found, n_ctx)
    if expected is None or found is None:
        return None
    return PlannedForecast(expected.value, (expected.low, expected.high), found.basis)
