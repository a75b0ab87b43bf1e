"""What the screens call in the rest of ggbench, in one object so that a test can pass fakes.

Imports are inside the functions: the first frame is drawn before any of them is needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from ggbench.engines.llama.config import LlamaConfig
    from ggbench.hub.access import HubAccess
    from ggbench.machine.readings import MachineReader
    from ggbench.machine.records import MachineReading
    from ggbench.models.catalog import Catalog
    from ggbench.models.disk import LocalModel
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import Experiment
    from ggbench.runs.session import RunContext
    from ggbench.runs.store.database import Store
    from ggbench.sizing.plan_record import Budget
    from ggbench.tui.planner import Planner


DEFAULT_N_GEN = 10_000
"""Tokens that a run decodes by default."""


@functools.cache
def _machine_reader() -> MachineReader:
    """Return the one reader, made on first use because it queries the drivers."""
    from ggbench.machine.readings import MachineReader

    return MachineReader()


def _read_machine() -> MachineReading:
    return _machine_reader().read()


def _make_planner(services: Services) -> Planner:
    from ggbench.tui.planner import Planner

    return Planner(services.hub, api_key_env=services.api_key_env)


def _open_store() -> Store:
    from ggbench.runs.store.database import Store

    return Store.open()


def _run_context(store: Store | None, experiment: Experiment) -> RunContext:
    from ggbench.runs.session import run_context

    return run_context(store, timeout_s=experiment.timeout_s, needs_bandwidth=experiment.measures_speed)


def _load_catalog() -> Catalog:
    from ggbench.models.catalog import load_catalog

    return load_catalog()


def _local_models() -> Sequence[LocalModel]:
    from ggbench.models.added_places import added_models
    from ggbench.models.disk import find_local_models

    return (*added_models(), *find_local_models())


def _machine_budget(setup: LlamaConfig) -> Budget:
    from ggbench.machine.host import default_threads
    from ggbench.sizing.budget import devices_budget, machine_budget
    from ggbench.sizing.cluster import device_memories

    if setup.rpc_servers and setup.n_gpu_layers:
        return devices_budget(device_memories(setup), limit_bytes=setup.memory_limit_bytes, reserve_bytes=None)
    return machine_budget(
        n_gpu_layers=setup.n_gpu_layers,
        main_gpu=setup.main_gpu,
        threads=default_threads(),
        reserve_bytes=None,
        bandwidth=None,
        limit_bytes=setup.memory_limit_bytes,
    )


class Services(msgspec.Struct, frozen=True):
    """Each of these may be slow or raise GgbenchError, so call them in threads."""

    hub: HubAccess
    api_key_env: str = ""
    """Name of the environment variable with the API key of servers; empty for none."""
    open_store: Callable[[], Store] = _open_store
    """Open the results for the calling thread. Raises StoreError for a newer version or a locked file."""
    run_context: Callable[[Store | None, Experiment], RunContext] = _run_context
    """Make the context of one job of this experiment."""
    load_catalog: Callable[[], Catalog] = _load_catalog
    local_models: Callable[[], Sequence[LocalModel]] = _local_models
    """List the models of the places that the user added, then those of every program's store."""
    make_planner: Callable[[Services], Planner] = _make_planner
    machine_budget: Callable[[LlamaConfig], Budget] = _machine_budget
    """Return the memory that a model loaded so may use on this machine, as it is free at the moment."""
    read_machine: Callable[[], MachineReading] = _read_machine

    def resolve(self, model: str, quants: Sequence[str] = (), catalog: Catalog | None = None) -> tuple[Target, ...]:
        """Return what MODEL and QUANTS select, as `catalog.selector.resolve` does with this Hub and this key."""
        from ggbench.models.reference import parse_model
        from ggbench.models.served_models import ServerOptions
        from ggbench.models.targets import resolve

        return resolve(
            parse_model(model, *quants), hub=self.hub, catalog=catalog, server=ServerOptions(self.api_key_env)
        )
