"""How fast quants are on this machine, by the best that is known of each without measuring anything.

From the surest: runs of a file of the same tensors, a forecast from twins of its layers, the share of the memory's
bandwidth that other models reach here, the bandwidth alone.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ggbench.decisions.bandwidth_shares import BandwidthShares, bandwidth_shares
from ggbench.decisions.comparable_runs import ThisMachine, without_placement
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import StoreError, Unsupported
from ggbench.experiments.forecast.record import POSITIONS
from ggbench.experiments.registry import experiment_of
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.cpu import describe_cpu
from ggbench.runs.run import Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import listed_run
from ggbench.sizing.plan_record import Budget, PlannedForecast, PlanRow
from ggbench.sizing.theory.kv_cache import kv_cache
from ggbench.sizing.theory.offload import offload
from ggbench.sizing.theory.roofline import decode_read_ms
from ggbench.sizing.theory.weights import file_weights
from ggbench.stats.intervals import Expected
from ggbench.stats.known_speed import KnownSpeed, RunSpeed, tok_s_at


def known_speeds(
    store: Store | None, files: Sequence[ModelFile | None], setup: LlamaConfig, budget: Budget
) -> list[KnownSpeed | None]:
    """Return the best that is known of each file under this setup; None where not even the bound is.

    Of a budget that is not this machine's, and without a store, only the bound is known. Raises StoreError.
    """
    runs = _Runs(store, setup, budget) if store is not None and budget.is_here else None
    return [None if file is None else _known(file, setup, budget, runs) for file in files]


def known_here(files: Sequence[ModelFile | None], setup: LlamaConfig, budget: Budget) -> list[KnownSpeed | None]:
    """Return what `known_speeds` does from a person's own results; as without any where they cannot be read."""
    if budget.is_here:
        with contextlib.suppress(StoreError), Store.open() as store:
            return known_speeds(store, files, setup, budget)
    return known_speeds(None, files, setup, budget)


def with_expected(rows: Sequence[PlanRow], known: Sequence[KnownSpeed | None]) -> list[PlanRow]:
    """Return the rows with the speed that is expected at their n_ctx; the bound alone is no expectation."""
    return [replace(row, expected=expected_at(each, row.n_ctx)) for row, each in zip(rows, known, strict=True)]


def expected_at(known: KnownSpeed | None, n: int | None) -> PlannedForecast | None:
    """Return the speed that is expected at position n; None of a bound."""
    if known is None or known.basis == "bound" or n is None:
        return None
    tok_s = tok_s_at(known, n)
    return PlannedForecast(tok_s.value, (tok_s.low, tok_s.high), known.source, known.basis, known.is_steady)


def shares_here(store: Store, budget: Budget) -> BandwidthShares | None:
    """Return what models reach of the budget's bandwidth with a default setup; None for fewer than two of them."""
    return _Runs(store, LlamaConfig(), budget).shares


class _Runs:
    """The stored runs of this machine, read once."""

    def __init__(self, store: Store, setup: LlamaConfig, budget: Budget) -> None:
        self._here = ThisMachine.describe()
        self._setup = setup
        self._runs = list(self._of_this_machine(store))
        self._by_file: dict[str, list[Run]] = {}
        for run in self._runs:
            for key in {run.subject.shape_key, run.subject.header_sha256} - {""}:
                self._by_file.setdefault(key, []).append(run)
        self.shares: BandwidthShares | None = None
        """That other models reach of the budget's bandwidth, all of their weights in the planned memory."""
        if budget.bandwidth is not None:
            least_bytes = 0 if budget.on_gpu else describe_cpu().last_level_cache_bytes or 0
            alike = (run for run in self._runs if self._is_alike(run, budget.on_gpu, least_bytes))
            self.shares = bandwidth_shares(alike, budget.bandwidth.bytes_per_s)

    def speeds(self, file: ModelFile) -> list[RunSpeed]:
        """Return what the runs of files of the same tensors under the same setup say, the newest first."""
        wanted = self._here.decisive(self._setup, file.n_layer)
        found = {run.run_id: run for key in (file.shape_key, file.header_sha256) for run in self._by_file.get(key, ())}
        same = [run for run in found.values() if self._here.decisive(run.head.setup, run.subject.n_layer) == wanted]
        newest = sorted(same, key=lambda run: run.run_id or 0, reverse=True)
        speeds = (experiment_of(run.head.kind).speed_of(run) for run in newest)
        return [speed for speed in speeds if speed is not None]

    def _of_this_machine(self, store: Store) -> Iterator[Run]:
        for stored in store.list_runs(state=Outcome.COMPLETED):
            if self._here.made(stored.environment):
                with contextlib.suppress(StoreError):  # written by another ggbench
                    yield listed_run(stored)

    def _is_alike(self, run: Run, on_gpu: bool, least_bytes: int) -> bool:
        """Whether a run read its weights from the planned memory alone, and not from the CPU's cache."""
        ran, asked = run.head.setup, self._here.decisive(self._setup, None)
        decisive = self._here.decisive(ran, run.subject.n_layer)
        if decisive is None or asked is None or without_placement(decisive) != without_placement(asked):
            return False
        if (run.subject.weight_bytes or 0) <= least_bytes or run.memory.weights_on_gpu is not on_gpu:
            return False
        return not on_gpu or (decisive.n_gpu_layers < 0 and not decisive.tensor_overrides and decisive.kv_offload)


def _known(file: ModelFile, setup: LlamaConfig, budget: Budget, runs: _Runs | None) -> KnownSpeed | None:
    found = [] if runs is None else runs.speeds(file)
    with_steps = [each for each in found if each.step_ms]
    with_prefills = [each for each in found if each.prefill_ms]
    best = min(with_steps, key=lambda each: (each.basis != "measured", not each.is_steady), default=None)
    prefills = min(with_prefills, key=lambda each: each.basis != "measured", default=None)
    prefill_ms = prefills.prefill_ms if prefills is not None else ()
    if best is not None:
        return KnownSpeed(best.basis, best.source, best.step_ms, prefill_ms, best.is_steady)
    bound = _bound(file, setup, budget, runs.shares if runs is not None else None)
    return None if bound is None else replace(bound, prefill_ms=prefill_ms)


def _bound(file: ModelFile, setup: LlamaConfig, budget: Budget, shares: BandwidthShares | None) -> KnownSpeed | None:
    """What the bandwidth allows, or the share of it that other models reach.

    None without a bandwidth, where a step reads from two memories, and where what it reads is not counted.
    """
    if budget.bandwidth is None or (budget.on_gpu and _has_two_speeds(file, setup)):
        return None
    try:
        weights, cache = file_weights(file, file.name), kv_cache(file, setup.type_k, setup.type_v)
    except Unsupported:
        return None
    positions = sorted({*POSITIONS, *([cache.window] if cache.window else [])})
    latencies = [float(ms) for ms in decode_read_ms(weights, cache, budget.bandwidth.bytes_per_s, positions)]
    if shares is None:
        steps = tuple((n, Expected(ms, ms, math.inf)) for n, ms in zip(positions, latencies, strict=True))
        return KnownSpeed("bound", f"bandwidth: {budget.bandwidth.source}", steps)
    first = latencies[0]
    steps = tuple((n, _at_shares(first, ms - first, shares)) for n, ms in zip(positions, latencies, strict=True))
    return KnownSpeed("other runs", shares.source, steps)


def _at_shares(weights_ms: float, kv_ms: float, shares: BandwidthShares) -> Expected:
    """The latency of two parts, each at its share of the bandwidth."""
    weights, kv = shares.weights, shares.kv_cache
    return Expected(
        weights_ms / weights.value + kv_ms / kv.value,
        weights_ms / weights.high + kv_ms / kv.high,
        weights_ms / weights.low + kv_ms / kv.low,
    )


def _has_two_speeds(file: ModelFile, setup: LlamaConfig) -> bool:
    return not setup.kv_offload or offload(file, setup.n_gpu_layers, setup.tensor_overrides).is_partial
