"""Plans for the Library, renewed when the chosen model, card or context changes.

Starting the worker and reading headers are slow, so both are cached. Only one plan is made at a time: close the current
one before starting another.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import msgspec.structs

from ggbench.decisions.plan import plan_rows
from ggbench.engines.contract import Engine, launch_engine
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import GgbenchError
from ggbench.machine.host import default_threads
from ggbench.models.added_places import typed_server
from ggbench.models.reference import parse_model
from ggbench.models.served_models import ServerOptions
from ggbench.models.targets import Target, resolve, resolve_headers
from ggbench.sizing.dry_allocator import DryAllocator, setup_to_load
from ggbench.sizing.plan import PlanRequest
from ggbench.sizing.plan_record import Budget, DeviceMemory, PlanRow

if TYPE_CHECKING:
    from ggbench.decisions.pick.candidates import PickRequest
    from ggbench.decisions.pick.record import Pick
    from ggbench.hub.access import HubAccess
    from ggbench.runs.store.database import Store


_MODELS_KEPT = 16
"""Models whose headers are cached; a header with its tokens takes several MB."""


class PlannedQuant(msgspec.Struct, frozen=True):
    name: str
    """The QUANT argument that selects only this quant of the model."""
    row: PlanRow


class Planner:
    """Makes plans, row by row. Methods may be called from any thread."""

    def __init__(self, hub: HubAccess, start: Callable[[], Engine] | None = None, *, api_key_env: str = "") -> None:
        """`start` starts an engine for the first plan; `api_key_env` names the variable with the servers' API key."""
        self._server = ServerOptions(api_key_env)
        self._hub, self._start = hub, start or (lambda: launch_engine(LlamaConfig()))
        self._lock = threading.Lock()
        self._allocator: DryAllocator | None = None
        self._allocates_for: tuple[LlamaConfig, tuple[DeviceMemory, ...]] | None = None
        self._models: dict[tuple[str, tuple[str, ...]], tuple[Target, ...]] = {}
        self._is_closed = False

    def rows(
        self, model: str, quants: Sequence[str], budget: Budget, setup: LlamaConfig, first: str | None = None
    ) -> Generator[PlannedQuant]:
        """Yield one row for each quant, `first` before the others. Close the generator to stop early.

        Headers are cached until `forget`. A server's models get rows with the server's data and no plan. Raises
        GgbenchError if no quant of the model can be planned.
        """
        if typed_server(model) is not None:
            yield from _served(model, self._server)
            return
        variants = self._planned(model, tuple(quants))
        ordered = sorted(variants, key=lambda variant: first not in (variant.selector, variant.quant))
        with self._lock:
            if not self._is_closed:
                rows = plan_rows(ordered, PlanRequest(budget, setup), self._allocator_for(budget, setup))
                try:
                    for variant, row in zip(ordered, rows, strict=True):
                        yield PlannedQuant(variant.selector or variant.quant, row)
                finally:
                    self._leave_servers(setup)

    def pick(self, model: str, quants: Sequence[str], request: PickRequest, store: Store) -> Pick:
        """Choose a quant of a model to run; headers are cached as in `rows`.

        Raises GgbenchError if none can be planned, or when closed.
        """
        from ggbench.decisions.pick.candidates import of_planned, pick

        models = of_planned(self._planned(model, tuple(quants)))
        with self._lock:
            if self._is_closed:
                raise GgbenchError("ggbench is closing", "start it again to pick")
            try:
                return pick(models, request, self._allocator_for(request.budget, request.setup), store)
            finally:
                self._leave_servers(request.setup)

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
        loaded = setup_to_load(setup, budget)
        loaded = msgspec.structs.replace(loaded, n_ctx=None, threads=setup.threads or default_threads())
        if self._allocator is None or (loaded, budget.devices) != self._allocates_for:
            self._end_worker()
            self._allocator = DryAllocator(self._start(), loaded, budget.devices)
            self._allocates_for = loaded, budget.devices
        return self._allocator

    def _leave_servers(self, setup: LlamaConfig) -> None:
        """Stop a worker that uses RPC servers, as they serve only one client."""
        if setup.rpc_servers:
            self._end_worker()

    def _end_worker(self) -> None:
        if self._allocator is not None:
            self._allocator.__exit__(None, None, None)
            self._allocator = None


def _served(url: str, options: ServerOptions) -> Iterator[PlannedQuant]:
    """Yield a row for each model of a server, with the server's data. Raises GgbenchError."""
    for target in resolve(parse_model(url), server=options):
        subject = target.subject
        row = PlanRow(
            subject.model,
            subject.quant,
            subject.source,
            file_bytes=subject.file_bytes,
            n_params=subject.n_params,
            bpw=subject.bpw,
            weight_bytes=subject.weight_bytes,
            n_ctx_train=subject.n_ctx_train,
        )
        yield PlannedQuant(target.named[1], row)
