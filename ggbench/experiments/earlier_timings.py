"""Twins that an earlier forecast has timed on this machine, so that they need not be timed again."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.comparable_runs import ThisMachine
from ggbench.experiments.stored import read_recording
from ggbench.recording.recording import Recording
from ggbench.recording.session import Session
from ggbench.records.forecast import ForecastTwin, TwinTiming
from ggbench.records.outcome import Outcome
from ggbench.store.runs import StoredRun


def earlier_timings(session: Session, twins: Sequence[ForecastTwin]) -> tuple[StoredRun, Recording] | None:
    """Return the newest run that timed such twins under the same setup on this machine, and what it recorded.

    They may be those of another model of the same shape. Timings of several runs are not joined: twins are timed by
    turns, so that a machine that slows down does so for all of them.
    """
    store, own = session.rig.store, session.recorder.recording.head
    if store is None:
        return None
    here, wanted = ThisMachine.describe(), [_decisive(twin) for twin in twins]
    for stored in store.list_runs(kind=own.kind, state=Outcome.COMPLETED):
        if stored.run_id == session.recorder.run_id or not here.made(stored.environment):
            continue
        with contextlib.suppress(StoreError, UnknownName):
            found = read_recording(store, stored)
            measured = [_decisive(twin) for twin in found.of(ForecastTwin)]
            is_alike = here.decisive(found.head.setup, None) == here.decisive(own.setup, None)
            if is_alike and found.head.settings == own.settings and measured == wanted and found.of(TwinTiming):
                return stored, found
    return None


def _decisive(twin: ForecastTwin) -> object:
    """What decides the timings of a twin."""
    return twin.shape_key, twin.cost
