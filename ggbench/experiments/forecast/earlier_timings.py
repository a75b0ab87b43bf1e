"""Twins that an earlier forecast has timed on this machine, so that they need not be timed again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from ggbench.decisions.comparable_runs import ThisMachine
from ggbench.engines.endings import Outcome
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.forecast.record import ForecastPlacement, ForecastResult, ForecastTwin, TwinTiming
from ggbench.machine.records import Environment
from ggbench.runs.recording import Recording
from ggbench.runs.run import Result
from ggbench.runs.session import Session
from ggbench.runs.stored import listed_run, read_recording
from ggbench.stats.decode_timing import DecodeLimit

_STEADY = 0.25
"""Half the interval of B, as a share of it, above which a forecast was disturbed, so that it is better made again."""


class EarlierTimings(msgspec.Struct, frozen=True):
    """What an earlier run says of a model."""

    run_id: int
    environment: Environment | None
    placements: tuple[ForecastPlacement, ...]
    """Of the model, not of that of the earlier run."""
    timings: tuple[TwinTiming, ...]
    limit: DecodeLimit | None
    """None where the earlier run was of a model of other tensors."""


def earlier_timings(
    session: Session, twins: Sequence[ForecastTwin], placements: Sequence[ForecastPlacement]
) -> EarlierTimings | None:
    """Return what the newest run has timed of such twins, in each of these placements, on this machine.

    They may be those of another model of the same shape, or of another number of layers. Timings of several runs are
    not joined: twins are timed by turns, so that a machine that slows down does so for all of them.
    """
    store, own = session.rig.store, session.recorder.recording.head
    if store is None:
        return None
    here = ThisMachine.describe()
    for stored in store.list_runs(kind=own.kind, state=Outcome.COMPLETED):
        if stored.run_id == session.recorder.run_id or not here.made(stored.environment):
            continue
        with contextlib.suppress(StoreError, UnknownName):
            if not _is_steady(listed_run(stored).result):
                continue
            found = read_recording(store, stored)
            if found.head.settings != own.settings or _decisive(found.of(ForecastTwin)) != _decisive(twins):
                continue
            timings = _timings(found, here, placements)
            if timings is not None:
                is_same = bool(own.subject.shape_key) and stored.subject.shape_key == own.subject.shape_key
                limit = found.last(DecodeLimit) if is_same else None
                return EarlierTimings(stored.run_id, stored.environment, tuple(placements), timings, limit)
    return None


def _is_steady(result: Result | None) -> bool:
    b_ms = result.b_ms if isinstance(result, ForecastResult) else None
    return b_ms is not None and b_ms.high - b_ms.low <= 2 * _STEADY * b_ms.value


def _timings(
    found: Recording, here: ThisMachine, placements: Sequence[ForecastPlacement]
) -> tuple[TwinTiming, ...] | None:
    """Those of each placement, by its number here; None where one is missing."""
    timings: list[TwinTiming] = []
    for placement in placements:
        alike = (
            each
            for each in found.of(ForecastPlacement)
            if here.decisive(each.setup, None) == here.decisive(placement.setup, None)
        )
        earlier = next(alike, None)
        if earlier is None:
            return None
        taken = [each for each in found.of(TwinTiming) if each.placement == earlier.number]
        if not taken:
            return None
        timings += [replace(each, placement=placement.number) for each in taken]
    return tuple(timings)


def _decisive(twins: Sequence[ForecastTwin]) -> list[object]:
    """What decides the timings of each."""
    return [(twin.shape_key, twin.cost) for twin in twins]
