"""Trials with the search for the largest context after each: what it finds becomes part of the trial's row."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, replace

from ggbench.catalog.selector import Target
from ggbench.errors import StoreError, UnknownName
from ggbench.experiments.maxctx import MaxctxSettings, run_maxctx
from ggbench.experiments.progress import Progress, TrialFinished, TrialStarted
from ggbench.experiments.rig import Rig
from ggbench.experiments.search_progress import SearchFinished, SearchProgress
from ggbench.experiments.settings import TrialSettings
from ggbench.experiments.trial import run_trials
from ggbench.records import Certificate, Outcome, Row
from ggbench.store.database import Store
from ggbench.units import format_count


@dataclass(frozen=True, slots=True)
class RowExtended:
    """The row of the trial that finished last, with what the search after it found; it takes the place of that one."""

    row: Row
    store_error: StoreError | None = None
    """Why the store does not have the row so; the one of the trial it may have."""


BenchProgress = Progress | SearchProgress | RowExtended


def run_bench(rig: Rig, targets: tuple[Target, ...], settings: TrialSettings) -> Generator[BenchProgress]:
    """As `run_trials`, and after each trial the largest n_ctx of the same file and configuration.

    A trial that ended in anything but a row of its own or too little memory is not followed by a search: that would
    meet the same end. The trial's own n_ctx is no ceiling of it. A search that fails leaves the row as it was, with
    the reason.
    """
    for index, target in enumerate(targets):
        row: Row | None = None
        store_error: StoreError | None = None
        with contextlib.closing(run_trials(rig, (target,), settings)) as trial:
            for record in trial:
                if isinstance(record, TrialStarted):
                    record = replace(record, index=index, n_trials=len(targets))
                elif isinstance(record, TrialFinished):
                    row, store_error = record.row, record.store_error
                yield record
        if rig.cancel.is_set() or row is None:
            return
        if row.outcome in (Outcome.COMPLETED, Outcome.OUT_OF_MEMORY):
            found = yield from _search(rig, target, settings)
            if found is not None:
                row = _extended(row, found.certificate)
                yield RowExtended(row, store_error or found.store_error or _keep(rig.store, row))


def _search(
    rig: Rig, target: Target, settings: TrialSettings
) -> Generator[SearchProgress, None, SearchFinished | None]:
    found: SearchFinished | None = None
    config = replace(settings.config, n_ctx=None)
    with contextlib.closing(run_maxctx(rig, (target,), MaxctxSettings(config))) as search:
        for record in search:
            if isinstance(record, SearchFinished):
                found = record
            if not isinstance(record, TrialStarted):
                yield record
    return found


def _extended(row: Row, found: Certificate) -> Row:
    """What was cut short is not the largest, however far it came."""
    if found.max_n_ctx is None or found.outcome is not Outcome.COMPLETED:
        return replace(row, max_n_ctx_reason=found.reason or found.outcome.value.replace("_", " "))
    reason = found.reason
    if not reason and found.first_fail_n_ctx is None:
        reason = f"none above {format_count(found.max_n_ctx)} was tried"
    return replace(row, max_n_ctx=found.max_n_ctx, max_n_ctx_verified=found.verified_by_decode, max_n_ctx_reason=reason)


def _keep(store: Store | None, row: Row) -> StoreError | None:
    if store is None or row.run_id is None:
        return None
    try:
        store.finish(row.run_id, row)
    except UnknownName:
        return None  # the person deleted the run while the search went on
    except StoreError as error:
        return error
    return None
