"""Stored runs as records: as stored at their end, or reduced from their recording."""

from __future__ import annotations

from typing import TypeVar

from msgspec.structs import replace

from ggbench.engines.contract import config_type
from ggbench.engines.endings import Outcome
from ggbench.engines.events import Memory
from ggbench.errors import StoreError
from ggbench.machine.records import ImportedRow, MachineReading
from ggbench.runs.experiment import Concluded, experiment_of
from ggbench.runs.recording import (
    GpusInUse,
    ModelDescribed,
    Observation,
    PromptTiming,
    Recording,
    Series,
    WorkerPeak,
    WorkerStarted,
    kind_of,
)
from ggbench.runs.run import STILL_RUNNING, Result, Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import RUNNING, StoredRun, decode
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow, RequestTiming, ServerFound, TokenChunks

_T = TypeVar("_T")

_OBSERVED: tuple[type, ...] = (
    DecodeLimit, DecodeWindow, GpusInUse, ImportedRow, MachineReading, Memory, ModelDescribed, PromptTiming,
    RequestTiming, ServerFound, TokenChunks, WorkerPeak, WorkerStarted,
)  # fmt: skip
"""Types of observations common to all experiments; an experiment's own types are in its `observed`."""


def head_of(stored: StoredRun) -> RunHead:
    """Return the head of a run. Raises StoreError if this ggbench cannot read its setup or settings."""
    experiment = experiment_of(stored.kind)
    setup = _require(stored, "setup", stored.setup_json, config_type(stored.engine))
    settings = _require(stored, "settings", stored.settings_json, experiment.settings_type)
    return RunHead(
        kind=stored.kind,
        subject=stored.subject,
        setup=setup,
        settings=settings,
        environment=stored.environment,
        command=stored.command,
        started_at=stored.started_at,
    )


def listed_run(stored: StoredRun) -> Run:
    """Return the run for a list, without reducing its samples.

    Raises StoreError like `head_of`. A result that this ggbench cannot read is left out, as the reason says.
    """
    result: Result | None = None
    unreadable = ""
    if stored.result_json is not None:
        result, problem = decode(stored.result_json, experiment_of(stored.kind).result_type)
        unreadable = f"its result was {problem}" if problem else ""
    is_over = stored.state in set(Outcome)
    reason = stored.reason
    if not reason and not (stored.is_finished and is_over):
        reason = STILL_RUNNING if stored.state == RUNNING else "ggbench exited before the run ended"
    return Run(
        head=head_of(stored),
        outcome=Outcome(stored.state) if is_over else Outcome.INTERRUPTED,
        reason="; ".join(filter(None, (reason, unreadable))),
        memory=stored.memory or Memory(),
        gpu_use=stored.gpu_use,
        result=result,
        finished_at=stored.finished_at,
        run_id=stored.run_id,
    )


def read_run(store: Store, stored: StoredRun) -> Run:
    """Return the complete run: the part stored at its end, or else from its samples and observations. Raises
    StoreError.
    """
    run = listed_run(stored)
    if run.result is not None:
        return run
    from ggbench.runs.driver import run_of

    reduced = run_of(experiment_of(stored.kind), read_recording(store, stored), Concluded(run.outcome))
    memory = stored.memory or reduced.memory
    gpu_use = run.gpu_use or reduced.gpu_use
    return replace(run, head=reduced.head, memory=memory, gpu_use=gpu_use, result=reduced.result)


def read_recording(store: Store, stored: StoredRun) -> Recording:
    """Return the recording of a run, as while in progress. Raises StoreError and UnknownName."""
    recording = read_observations(store, stored)
    for chunk in store.load_chunks(stored.run_id):
        recording.series.setdefault(chunk.series, Series()).extend(
            chunk.first_position, chunk.step_ns, chunk.sampler_ns
        )
        if chunk.at_ns:
            elapsed_ns = sum(chunk.step_ns) + sum(chunk.sampler_ns)
            recording.add_span(chunk.series, (chunk.at_ns - elapsed_ns, chunk.at_ns))
    return recording


def read_observations(store: Store, stored: StoredRun) -> Recording:
    """Return the recording of a run without its steps. Raises StoreError and UnknownName."""
    recording = Recording(head_of(stored))
    observed = (*_OBSERVED, *experiment_of(stored.kind).observed)
    types: dict[str, type[object]] = {kind_of(each): each for each in observed}
    for each in store.load_observations(stored.run_id):
        body = decode(each.body_json, types[each.kind])[0] if each.kind in types else None
        if isinstance(body, MachineReading):
            recording.readings.append(body)
        elif body is not None:
            recording.observations.append(Observation(each.at_ns, body))
    return recording


def _require(stored: StoredRun, what: str, text: str, record_type: type[_T]) -> _T:
    record, reason = decode(text, record_type)
    if record is None:
        raise StoreError(f"the {what} of run {stored.run_id} was {reason}", "upgrade ggbench to read it")
    return record
