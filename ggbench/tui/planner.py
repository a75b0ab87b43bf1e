"""Plans for the Library, over and over, as the chosen model, card and context change.

The worker behind a plan takes a while to be ready and headers a while to be read, so both are kept. One plan is made at
a time; whoever wants another first leaves the one that goes on.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ggbench.catalog.planned_variants import PlannedModel, planned_model
from ggbench.engine.process import Engine, WorkerProcess
from ggbench.experiments.dry_allocator import DryAllocator, config_to_load
from ggbench.experiments.plan import PlanRequest, plan
from ggbench.machine.cpu import default_threads
from ggbench.plan_records import Budget, PlanRow
from ggbench.records import LoadConfig

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess

_MODELS_KEPT = 16
"""Whose headers are kept; a header with its tokens is some MB."""


@dataclass(frozen=True, slots=True)
class PlannedQuant:
    """One row of a plan."""

    name: str
    """The QUANT that means it and no other of its model."""
    row: PlanRow


class Planner:
    """Rows of plans. Its methods may be called from any thread."""

    def __init__(self, hub: HubAccess, launch: Callable[[], Engine] = WorkerProcess) -> None:
        """Starts no worker before the first plan."""
        self._hub, self._launch = hub, launch
        self._lock = threading.Lock()
        self._allocator: DryAllocator | None = None
        self._allocates_for: LoadConfig | None = None
        self._models: dict[tuple[str, tuple[str, ...]], PlannedModel] = {}
        """The one used last at the end."""
        self._is_closed = False

    def rows(
        self, model: str, quants: Sequence[str], budget: Budget, config: LoadConfig, first: str | None = None
    ) -> Generator[PlannedQuant]:
        """One row for each quant as it is planned, `first` before the others. Close it to leave early.

        A header that was read is not read again before `forget`. Raises GgbenchError where nothing of the model can be
        planned.
        """
        variants = self._planned(model, tuple(quants)).variants
        ordered = sorted(variants, key=lambda variant: first not in (variant.selector, variant.quant))
        with self._lock:
            if not self._is_closed:
                rows = plan(ordered, PlanRequest(budget, config), self._allocator_for(budget, config))
                for variant, row in zip(ordered, rows, strict=True):
                    yield PlannedQuant(variant.selector or variant.quant, row)

    def forget(self) -> None:
        """Read headers and listings again when they are next wanted."""
        self._models.clear()

    def close(self) -> None:
        """End the worker; nothing is planned any more."""
        self._is_closed = True
        with self._lock:
            self._end_worker()

    def _planned(self, model: str, quants: tuple[str, ...]) -> PlannedModel:
        key = model, quants
        planned = self._models.pop(key, None) or planned_model(model, quants, hub=self._hub)
        self._models[key] = planned
        if len(self._models) > _MODELS_KEPT:
            self._models.pop(next(iter(self._models)), None)
        return planned

    def _allocator_for(self, budget: Budget, config: LoadConfig) -> DryAllocator:
        """The worker that is there, or another where layers or the cache's types are to be other ones."""
        loaded = dataclasses.replace(config_to_load(config, budget), n_ctx=None)
        if self._allocator is None or loaded != self._allocates_for:
            self._end_worker()
            self._allocator = DryAllocator(self._launch, loaded, config.threads or default_threads())
            self._allocates_for = loaded
        return self._allocator

    def _end_worker(self) -> None:
        if self._allocator is not None:
            self._allocator.__exit__(None, None, None)
            self._allocator = None
