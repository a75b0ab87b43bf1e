"""Decisions for the Library, renewed when the chosen model, the machine or the needs change.

Starting the worker and reading headers are slow, so both are cached. Only one plan is made at a time: close the current
one before starting another.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import msgspec.structs

from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.contract import Engine, launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.machine.host import default_threads
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_headers
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan_record import Budget, DeviceMemory

if TYPE_CHECKING:
    from ggbench.decisions.pick.candidates import PickRequest
    from ggbench.hub.access import HubAccess
    from ggbench.runs.store.database import Store


_MODELS_KEPT = 16
"""Models whose headers are cached; a header with its tokens takes several MB."""


class LibraryPlanner:
    """Sizes quants one by one and picks one of them. Methods may be called from any thread."""

    def __init__(self, hub: HubAccess, start: Callable[[], Engine] | None = None) -> None:
        """`start` starts an engine for the first plan."""
        self._hub, self._start = hub, start or (lambda: launch_engine(LlamaConfig()))
        self._lock = threading.Lock()
        self._allocator: DryAllocator | None = None
        self._allocates_for: tuple[LlamaConfig, tuple[DeviceMemory, ...]] | None = None
        self._models: dict[tuple[str, tuple[str, ...]], tuple[Target, ...]] = {}
        self._is_closed = False

    def decide(
        self, model: str, quants: Sequence[str], request: PickRequest, store: Store | None
    ) -> Generator[tuple[Candidate, ...], None, Pick | None]:
        """Yield the candidates of each quant of a model as `decide.decide`, and return the pick. Close the
        generator to stop early.

        Headers are cached until `forget`. Raises GgbenchError if no quant of the model can be planned, or when closed.
        """
        from ggbench.decisions.pick.decide import decide
        from ggbench.decisions.pick.models import Competitors, of_planned

        asked = Competitors(of_planned(self._planned(model, tuple(quants))))
        with self._lock:
            if self._is_closed:
                raise GgbenchError("ggbench is closing", "start it again to pick")
            try:
                return (
                    yield from decide(asked, request, self._allocator_for(request.budget, request.setup), store)
                )
            finally:
                if request.setup.rpc_servers:  # which serve only one client
                    self._end_worker()

    def best_here(self, request: PickRequest, store: Store | None) -> Iterator[Pick | None]:
        """Yield None after each quant that is sized, and at last the pick among the catalog's current models.

        It has a worker of its own, as the chosen model is planned meanwhile, unless that uses RPC servers, which serve
        one client at a time. Raises DoesNotFit if no model can.
        """
        from ggbench.decisions.pick.decide import decide
        from ggbench.decisions.pick.models import Competitors, models_here, of_families

        budget, pick = request.budget, None
        asked = Competitors((), of_families(()), models_here() if budget.is_here else ())

        def decided(allocator: DryAllocator) -> Iterator[tuple[Candidate, ...]]:
            nonlocal pick
            pick = yield from decide(asked, request, allocator, store)

        alone = self._lock if request.setup.rpc_servers else contextlib.nullcontext()
        with alone, DryAllocator(self._start(), _to_load(request.setup, budget), budget.devices) as allocator:
            for _ in decided(allocator):
                yield None
        yield pick

    def forget(self) -> None:
        self._models.clear()

    def close(self) -> None:
        """Stop the worker; later plans yield no rows."""
        self._is_closed = True
        with self._lock:
            self._end_worker()

    def _planned(self, model: str, quants: tuple[str, ...]) -> tuple[Target, ...]:
        key = model, quants
        planned = self._models.pop(key, None) or resolve_headers(parse_model(model, *quants), hub=self._hub)
        self._models[key] = planned
        if len(self._models) > _MODELS_KEPT:
            self._models.pop(next(iter(self._models)), None)
        return planned

    def _allocator_for(self, budget: Budget, setup: LlamaConfig) -> DryAllocator:
        """Return the running worker, or a new one if the placement of layers or the cache types differ."""
        loaded = _to_load(setup, budget)
        if self._allocator is None or (loaded, budget.devices) != self._allocates_for:
            self._end_worker()
            self._allocator = DryAllocator(self._start(), loaded, budget.devices)
            self._allocates_for = loaded, budget.devices
        return self._allocator

    def _end_worker(self) -> None:
        if self._allocator is not None:
            self._allocator.__exit__(None, None, None)
            self._allocator = None


def _to_load(setup: LlamaConfig, budget: Budget) -> LlamaConfig:
    loaded = setup_to_load(setup, budget)
    return msgspec.structs.replace(loaded, n_ctx=None, threads=setup.threads or default_threads())
