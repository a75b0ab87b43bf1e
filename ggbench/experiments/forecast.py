"""Where the largest context should lie, before anything is allocated: theory's bound, narrowed by the dry allocator."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ggbench.engine.endings import Cancelled
from ggbench.errors import GgbenchError
from ggbench.experiments.budget import CPU_RESERVE_BYTES
from ggbench.experiments.dry_allocator import DryAllocator, DryContext, DryRunEnded
from ggbench.experiments.largest_n_ctx import largest_n_ctx
from ggbench.experiments.rig import Rig
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import visible_gpus
from ggbench.machine.memory import describe_ram
from ggbench.records import KV_CELLS, LoadConfig, Outcome, Probe
from ggbench.units import format_bytes, format_count

LARGEST_N_CTX = (1 << 31) - KV_CELLS
"""Positions are signed 32-bit integers in llama.cpp."""
CEILING_WITHOUT_GROWTH = 1 << 20
"""Where the search ends for a model whose state is the same at any length."""

_NEAR, _FAR = 16 * KV_CELLS, 32 * KV_CELLS
"""Where the growth is looked at first; a context shorter than n_ubatch has smaller compute buffers."""


class SearchCancelled(Exception):
    """The person stopped the search while it asked the dry allocator."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The memory that weights and context may take."""

    on_gpu: bool
    free_bytes: int
    """Before anything was loaded."""
    budget_bytes: int
    reserve_bytes: int
    worker_limit_bytes: int | None
    """What the worker is held to; None leaves a GPU as it is. Main memory is always held, or overcommit would lie."""
    warning: str = ""

    @property
    def place(self) -> Literal["GPU memory", "main memory"]:
        """For people."""
        return "GPU memory" if self.on_gpu else "main memory"


def search_budget(*, on_gpu: bool, limit_bytes: int | None, reserve_bytes: int | None) -> Budget:
    """What is free at this moment or the limit, whichever is less, without the reserve.

    Unless given, a reserve is kept only of main memory that has no limit: real allocations need no allowance for what
    a GPU's driver takes.
    """
    if on_gpu:
        free_bytes = sum(gpu.free_bytes or gpu.total_bytes or 0 for gpu in visible_gpus())
    else:
        free_bytes = describe_ram().available_bytes
    if reserve_bytes is None:
        reserve_bytes = 0 if on_gpu or limit_bytes is not None else CPU_RESERVE_BYTES
    is_limited = limit_bytes is not None or reserve_bytes > 0
    most = free_bytes if limit_bytes is None else min(limit_bytes, free_bytes or limit_bytes)
    budget_bytes = max(1, most - reserve_bytes)
    warning = ""
    if limit_bytes is not None and most < limit_bytes:
        warning = f"only {format_bytes(free_bytes)} are free, so the limit of {format_bytes(limit_bytes)} is lower here"
    return Budget(
        on_gpu=on_gpu,
        free_bytes=free_bytes,
        budget_bytes=budget_bytes,
        reserve_bytes=reserve_bytes,
        worker_limit_bytes=None if on_gpu and not is_limited else budget_bytes,
        warning=warning,
    )


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of one quant in one budget. None is unknown."""

    budget: Budget
    weight_bytes: int | None
    """Of those that lie in the budget's memory."""
    theory_n_ctx: int | None
    """By the weights and the KV of one token alone."""
    planned_n_ctx: int | None
    """By the weights and what the dry allocator tells; None where llama.cpp would not load dry."""
    ceiling_n_ctx: int
    least_bytes: int | None
    """Cache and compute buffers of the smallest context."""
    bytes_per_token: float | None
    """What one token more takes, cache and compute buffers together, near the planned length."""
    known_at: tuple[int, int] | None
    """An n_ctx near the planned one, and the bytes of its cache and compute buffers."""
    probes: tuple[Probe, ...]
    warnings: tuple[str, ...]

    def n_ctx_within(self, left_bytes: int) -> int | None:
        """The largest n_ctx whose buffers those bytes hold, by a straight line; None where no line is known."""
        if self.known_at is None or not self.bytes_per_token:
            return None
        n_ctx, n_bytes = self.known_at
        return n_ctx + int((left_bytes - n_bytes) / self.bytes_per_token)


def forecast(
    rig: Rig, file: ModelFile, path: Path, config: LoadConfig, reserve_bytes: int | None, *, cap_train: bool = False
) -> Forecast:
    """Ask theory, then llama.cpp's allocator run dry, in milliseconds once its worker is there.

    At `path` the file's header is enough. `config.n_ctx` is a ceiling. Raises SearchCancelled.
    """
    probes: list[Probe] = []
    assert config.threads is not None
    with DryAllocator(lambda: rig.launch(rig.cancel), config, config.threads) as dry:
        least: DryContext | None = None
        line: tuple[DryContext, DryContext] | None = None
        try:
            dry.load(file, path)
            least, line = dry.context(KV_CELLS), (dry.context(_NEAR), dry.context(_FAR))
        except DryRunEnded as ended:
            _raise_if_cancelled(ended)
        on_gpu = least is not None and least.device_compute_bytes > 0
        budget = search_budget(on_gpu=on_gpu, limit_bytes=config.memory_limit_bytes, reserve_bytes=reserve_bytes)
        weight_bytes = _weight_bytes(file, on_gpu=on_gpu)
        grows = line is None or line[1].cache_bytes > line[0].cache_bytes
        theory = _theory(file, config, budget.budget_bytes, weight_bytes) if grows else None
        ceiling, warnings = _ceiling(file, config, grows=grows, cap_train=cap_train)
        if budget.warning:
            warnings = (budget.warning, *warnings)

        def need(n_ctx: int) -> int:
            started = time.perf_counter()
            told = dry.context(n_ctx)
            n_bytes = _need(told, on_gpu=on_gpu)
            fits = weight_bytes is not None and weight_bytes + n_bytes <= budget.budget_bytes
            probes.append(
                Probe(
                    n_ctx,
                    "dry",
                    Outcome.COMPLETED if fits else Outcome.OUT_OF_MEMORY,
                    time.perf_counter() - started,
                    told.cache_bytes,
                    told.device_compute_bytes if on_gpu else told.host_compute_bytes,
                    "" if fits else f"weights, cache and compute buffers exceed {format_bytes(budget.budget_bytes)}",
                )
            )
            return n_bytes

        planned = None
        if line is not None and weight_bytes is not None:
            left = budget.budget_bytes - weight_bytes
            bound = min(ceiling, theory or ceiling)
            first = min(ceiling, theory or _FAR)
            try:
                planned = largest_n_ctx(need, left, bound, first, _slope(line, on_gpu=on_gpu))
                if planned > _FAR:
                    line = dry.context(planned - _NEAR), dry.context(planned)
            except DryRunEnded as ended:
                _raise_if_cancelled(ended)
    return Forecast(
        budget=budget,
        weight_bytes=weight_bytes,
        theory_n_ctx=theory,
        planned_n_ctx=planned,
        ceiling_n_ctx=ceiling,
        least_bytes=None if least is None else _need(least, on_gpu=on_gpu),
        bytes_per_token=None if line is None else _slope(line, on_gpu=on_gpu),
        known_at=None if line is None else (line[1].n_ctx, _need(line[1], on_gpu=on_gpu)),
        probes=tuple(probes),
        warnings=warnings,
    )


def _raise_if_cancelled(ended: DryRunEnded) -> None:
    if isinstance(ended.ending, Cancelled):
        raise SearchCancelled from ended


def _need(told: DryContext, *, on_gpu: bool) -> int:
    return told.cache_bytes + (told.device_compute_bytes if on_gpu else told.host_compute_bytes)


def _slope(line: tuple[DryContext, DryContext], *, on_gpu: bool) -> float:
    rise = _need(line[1], on_gpu=on_gpu) - _need(line[0], on_gpu=on_gpu)
    return rise / (line[1].n_ctx - line[0].n_ctx)


def _weight_bytes(file: ModelFile, *, on_gpu: bool) -> int | None:
    if not on_gpu:
        return file.weight_bytes
    from ggbench.theory.weights import file_weights

    try:
        return round(file_weights(file, file.name).resident_bytes)
    except GgbenchError:
        return file.weight_bytes


def _theory(file: ModelFile, config: LoadConfig, budget_bytes: int, weight_bytes: int | None) -> int | None:
    """Tokens whose KV fits beside the weights; None where either cannot be counted. Source: the article, 5.2.3."""
    from ggbench.theory.kv_cache import kv_cache

    if weight_bytes is None:
        return None
    try:
        kv = kv_cache(file, config.type_k, config.type_v)
    except GgbenchError:
        return None
    return kv.n_that_fit(max(0, budget_bytes - weight_bytes))


def _ceiling(file: ModelFile, config: LoadConfig, *, grows: bool, cap_train: bool) -> tuple[int, tuple[str, ...]]:
    ceiling, warnings = LARGEST_N_CTX, []
    if not grows:
        ceiling = CEILING_WITHOUT_GROWTH
        warnings.append(
            f"the model's state takes the same memory at any length, so the search ends at {format_count(ceiling)}"
        )
    if cap_train:
        if file.n_ctx_train is None:
            warnings.append("the header does not tell the training context, so it is no ceiling")
        else:
            ceiling = min(ceiling, file.n_ctx_train)
    if config.n_ctx is not None:
        ceiling = min(ceiling, config.n_ctx)
    return max(KV_CELLS, ceiling // KV_CELLS * KV_CELLS), tuple(warnings)
