"""The stored runs of this machine that say how fast a file will be here."""

from __future__ import annotations

import contextlib
import functools

from ggbench.engines.contract import EngineConfig
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.host import describe_cpu
from ggbench.runs.comparable import ThisMachine, runs_of_file, runs_with_rates
from ggbench.runs.experiment import experiment_of
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.sizing.plan_record import Budget
from ggbench.stats.speed_curve import SpeedCurve

Rates = tuple[float, float]
"""Bytes/s at which weights and KV cache are read."""


class MachineRuns:
    """The stored runs that apply to the machine of a budget: none unless it is this one, and its store can be read."""

    def __init__(self, store: Store | None, budget: Budget, *, only_steady: bool = False) -> None:
        """`only_steady` leaves out the curves of runs that were disturbed."""
        self._budget, self.is_here = budget, budget.is_here
        """Whether it is this machine."""
        self._only_steady = only_steady
        self._store = store if budget.is_here else None
        self._here = ThisMachine.describe() if self._store is not None else None
        self._cache_bytes = 0 if budget.on_gpu else describe_cpu().last_level_cache_bytes or 0
        self._by_file: dict[tuple[str, str], list[Run]] = {}
        self._rates: dict[tuple[object, ...], list[Rates]] = {}

    def decisive(self, setup: EngineConfig, n_layer: int | None) -> EngineConfig | None:
        """Return the parts of a setup that affect speed on this machine, as `ThisMachine.decisive`; None elsewhere."""
        return None if self._here is None else self._here.decisive(setup, n_layer)

    def of(self, file: ModelFile) -> list[Run]:
        """Return the completed runs of a file's tensors on this machine with its llama.cpp, newest first."""
        if self._here is None or self._store is None:
            return []
        key = file.header_sha256, file.shape_key
        if key not in self._by_file:
            found: list[Run] = []
            with contextlib.suppress(StoreError):
                found = runs_of_file(self._store, self._here.key, *key)
            self._by_file[key] = [run for run in found if self._here.made(run.environment)]
        return self._by_file[key]

    def curves(self, file: ModelFile, setup: LlamaConfig, n_seqs: int) -> list[SpeedCurve]:
        """Return the speeds of runs with the same tensors under the same setup, newest first."""
        wanted, found = self.decisive(setup, file.n_layer), []
        for run in self.of(file):
            own = run.setup
            if self.decisive(own, run.subject.n_layer) != wanted:
                continue
            if n_seqs > 1 and own.kv_unified is not setup.kv_unified:
                continue
            curve = experiment_of(run.head.kind).speed_of(run, n_seqs)
            if curve is not None and (curve.is_steady or not self._only_steady):
                found.append(curve)
        return found

    def rates(self, setup: LlamaConfig) -> list[Rates]:
        """Return the rates of each model's newest run under a setup, whose weights were all in the planned memory."""
        asked = self._unplaced(self.decisive(setup, None))
        if asked not in self._rates:
            alike = [run for run in self._with_rates if self._is_alike(run, asked)]
            self._rates[asked] = _of_models(alike)
        return self._rates[asked]

    @functools.cached_property
    def _with_rates(self) -> list[Run]:
        if self._here is None or self._store is None:
            return []
        with contextlib.suppress(StoreError):
            return [
                run for run in runs_with_rates(self._store, self._here.key) if self._here.made(run.environment)
            ]
        return []

    def _unplaced(self, setup: EngineConfig | None) -> tuple[object, ...]:
        """Return a setup without its placement, but for which of several GPUs it uses."""
        is_choice = self._here is not None and len(self._here.gpus) > 1
        return (
            () if setup is None else (setup.without_placement(), is_choice and (setup.main_gpu, setup.devices))
        )

    def _is_alike(self, run: Run, asked: tuple[object, ...]) -> bool:
        """Return whether a run read its weights only from the planned memory, not from the CPU's cache."""
        on_gpu, decisive = self._budget.on_gpu, self.decisive(run.setup, run.subject.n_layer)
        if decisive is None or self._unplaced(decisive) != asked:
            return False
        if (run.subject.weight_bytes or 0) <= self._cache_bytes or run.memory.weights_on_gpu is not on_gpu:
            return False
        return not on_gpu or (
            decisive.n_gpu_layers < 0 and not decisive.tensor_overrides and decisive.kv_offload
        )


def _of_models(runs: list[Run]) -> list[Rates]:
    """Return the rates of the newest run of each model."""
    found: dict[str, Rates] = {}
    for run in runs:
        key = run.subject.shape_key or run.subject.header_sha256
        curve = experiment_of(run.head.kind).speed_of(run)
        if key and curve is not None and curve.rates is not None:
            found.setdefault(key, curve.rates)
    return list(found.values())
