"""Predict the largest context before allocating anything: the theory's bound, narrowed by the dry allocator."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ggbench.engines.contract import Engine, EngineConfig
from ggbench.engines.endings import Cancelled, EngineEnded, Outcome
from ggbench.engines.llama.config import LARGEST_N_CTX, LlamaConfig
from ggbench.errors import UsageError
from ggbench.experiments.maxctx.record import MaxctxSettings, Probe, SearchPlan
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.gpus import find_cuda_gpu, list_gpus
from ggbench.machine.readings import list_gpu_processes
from ggbench.machine.records import Gpu
from ggbench.runs.session import kv_bytes_per_token
from ggbench.show.words import say
from ggbench.sizing.budget import free_budget
from ggbench.sizing.drafts import check_drafts
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.fit import Fit, Fitter
from ggbench.sizing.placement import Placement
from ggbench.sizing.plan_record import Budget
from ggbench.sizing.projectors import Projector
from ggbench.units import KV_CELLS, format_bytes

CEILING_WITHOUT_GROWTH = 1 << 20
"""End of the search for a model whose state has the same size at any length."""

_NEAR, _FAR = 16, 32
"""Steps of the first lengths at which growth is measured.

A context shorter than n_ubatch has smaller compute buffers.
"""


class SearchCancelled(Exception):
    """The user stopped the search while it was using the dry allocator."""


class LookAhead(msgspec.Struct, frozen=True):
    """Expectations for one quant in one budget. None means unknown."""

    plan: SearchPlan
    """`planned_n_ctx` is None if llama.cpp did not load dry."""
    budget: Budget
    gpus: tuple[Gpu, ...]
    """GPUs in use, read before anything was loaded; empty unless NVML knows all of them."""
    ceiling_n_ctx: int
    weight_bytes: int | None
    """Bytes of the weights in the budget's memory, a draft model's included."""
    bytes_per_token: float | None
    """Bytes per additional token near the planned length, for cache and compute buffers together."""
    least_bytes: int = 0
    """What the smallest context and what drafts for it take; 0 if unknown."""
    is_by_theory: bool = False
    """Whether the engine can size a context only by creating it."""
    probes: tuple[Probe, ...] = ()
    versions: Mapping[str, str] | None = None
    """Versions of the dry engine; None if it was never ready."""


class _Sizer:
    """Fits contexts by llama.cpp's allocator run dry; each length that is tried is a probe."""

    def __init__(self, dry: DryAllocator, file: ModelFile, path: Path, setup: LlamaConfig) -> None:
        """`line` has two contexts of which growth follows; None, as `least`, if llama.cpp does not load the model dry.

        Raises SearchCancelled.
        """
        self.dry, self.file, self.path, self._setup = dry, file, path, setup
        self.least: DryContext | None = None
        self.line: tuple[DryContext, DryContext] | None = None
        self.probes: list[Probe] = []
        step = KV_CELLS * setup.n_streams
        with _unless_cancelled():
            dry.load(file, path)
            self.least, self.line = dry.context(step), (dry.context(_NEAR * step), dry.context(_FAR * step))

    @property
    def grows(self) -> bool:
        """Whether a longer context takes more memory, as far as is known."""
        return self.line is None or self.line[1].cache_bytes > self.line[0].cache_bytes

    def longest(self, budget: Budget) -> int | None:
        """Return the longest context that fits, and move the line there; None if unknown. Raises SearchCancelled."""
        if self.line is None or self.file.unknown_types:
            return None
        near, far = self.line
        longest = None
        with _unless_cancelled():
            fitter = _ProbingFitter(self, budget)
            longest = fitter.longest(fitter.fit(replace(self._setup, n_ctx=far.n_ctx))) or None
            if longest is not None and longest > far.n_ctx:
                self.line = self.dry.context(longest - near.n_ctx), self.dry.context(longest)
        return longest


class _ProbingFitter(Fitter):
    """Keeps each length that is sized as a probe."""

    def __init__(self, sizer: _Sizer, budget: Budget) -> None:
        super().__init__(sizer.file, sizer.path, budget, sizer.dry)
        self._probes = sizer.probes

    def sized(self, setup: LlamaConfig) -> Fit | None:
        started = time.perf_counter()
        found = super().sized(setup)
        if found is not None:
            outcome = Outcome.COMPLETED if found.is_enough else Outcome.OUT_OF_MEMORY
            sizes = found.context.cache_bytes, found.placement.compute_bytes(found.context)
            seconds = time.perf_counter() - started
            self._probes.append(Probe(found.context.n_ctx, "dry", outcome, seconds, *sizes))
        return found


@contextlib.contextmanager
def _unless_cancelled() -> Iterator[None]:
    """Leave out what the worker ended at. Raises SearchCancelled."""
    try:
        yield
    except EngineEnded as ended:
        if isinstance(ended.ending, Cancelled):
            raise SearchCancelled from ended


def look_ahead(
    launch: Callable[[], Engine],
    file: ModelFile,
    path: Path,
    setup: LlamaConfig,
    settings: MaxctxSettings,
    projector: Projector | None = None,
    draft: ModelFile | None = None,
) -> LookAhead:
    """Predict by theory, then by llama.cpp's allocator run dry, which takes milliseconds.

    A header at `path` is enough. `setup.n_ctx` is a ceiling. Raises SearchCancelled, UsageError for a GPU search if
    the cache is in main memory, and like `check_drafts`.
    """
    budget = free_budget(setup, settings.reserve_bytes, projector)
    if budget.on_gpu and not setup.kv_offload:
        raise UsageError(
            "with the KV cache in main memory a GPU does not limit the context",
            "omit --no-kv-offload, or search main memory with -ngl 0",
        )
    gpus = list_gpus()  # read before the dry worker uses some of their memory
    with DryAllocator(launch(), setup, budget.devices, draft, launch) as dry:
        sizer = _Sizer(dry, file, path, setup)
        least, gpus = sizer.least, _in_use(budget, gpus, dry.gpu_devices)
        placement = Placement.of(file, setup, budget)
        planned = sizer.longest(budget)
    weight_bytes, theory = placement.weight_bytes, None
    draft_bytes = 0 if least is None else placement.draft_weight_bytes(least)
    if weight_bytes is not None:
        weight_bytes += draft_bytes
        theory = placement.theory_n_ctx(max(0, budget.usable_bytes - weight_bytes)) if sizer.grows else None
    ceiling, warnings = _ceiling(file, setup, grows=sizer.grows, beyond_train=settings.beyond_train)
    least_bytes = 0
    if least is not None:
        least_bytes = placement.needed_bytes(least) - (weight_bytes or 0) + placement.unreserved_bytes(least)
    return LookAhead(
        plan=replace(_plan(budget, gpus, setup, ceiling, warnings), planned_n_ctx=planned, theory_n_ctx=theory),
        budget=budget,
        gpus=gpus,
        ceiling_n_ctx=ceiling,
        weight_bytes=weight_bytes,
        bytes_per_token=_growth(placement, sizer.line),
        least_bytes=least_bytes,
        probes=tuple(sizer.probes),
        versions=dry.versions,
    )


def _growth(placement: Placement, line: tuple[DryContext, DryContext] | None) -> float | None:
    """Return the bytes of a token between two contexts; None without them."""
    if line is None:
        return None
    near, far = line
    return (placement.needed_bytes(far) - placement.needed_bytes(near)) / (far.n_ctx - near.n_ctx)


def look_ahead_by_theory(
    file: ModelFile,
    setup: EngineConfig,
    settings: MaxctxSettings,
    projector: Projector | None = None,
    draft: ModelFile | None = None,
) -> LookAhead:
    """Predict by theory alone, for an engine that cannot size a context without creating it; without MTP layers.

    Raises DoesNotFit, and like `check_drafts`.
    """
    budget = free_budget(setup, settings.reserve_bytes, projector)
    gpus = _in_use(budget, list_gpus(), [(device.device, None) for device in budget.devices])
    if setup.mtp or draft is not None:
        check_drafts(draft, file)
    weight_bytes, per_token = _theory_bytes(file, setup)
    if draft is not None:
        draft_bytes, more = _theory_bytes(draft, setup.for_draft())
        weight_bytes += draft_bytes
        per_token = per_token + more if per_token and more else None
    room_bytes = max(0, budget.usable_bytes - weight_bytes)
    theory = room_bytes // per_token // KV_CELLS * KV_CELLS if per_token else None
    ceiling, warnings = _ceiling(file, setup, grows=True, beyond_train=settings.beyond_train)
    ceiling = min(ceiling, max(CEILING_WITHOUT_GROWTH, file.n_ctx_train or 0))  # the same ceiling as `plan`
    return LookAhead(
        plan=replace(_plan(budget, gpus, setup, ceiling, warnings), theory_n_ctx=theory),
        budget=budget,
        gpus=gpus,
        ceiling_n_ctx=ceiling,
        weight_bytes=None if setup.engine_option else weight_bytes,  # the user's flags may place some elsewhere
        bytes_per_token=per_token,
        is_by_theory=True,
    )


def _theory_bytes(file: ModelFile, setup: EngineConfig) -> tuple[int, int | None]:
    """Return the bytes of the weights, and of a token in the cache, None if unknown."""
    return file.weight_bytes or file.file_bytes, kv_bytes_per_token(file, setup)


def _in_use(budget: Budget, gpus: Sequence[Gpu], devices: Iterable[tuple[str, str | None]]) -> tuple[Gpu, ...]:
    """Return the readings of a budget's GPUs; none unless all of these devices are known."""
    found = [find_cuda_gpu(gpus, *device) for device in devices] if budget.on_gpu else []
    used = tuple(gpu for gpu in found if gpu is not None)
    return used if len(used) == len(found) else ()


def _plan(
    budget: Budget, gpus: Sequence[Gpu], setup: EngineConfig, ceiling_n_ctx: int, warnings: tuple[str, ...]
) -> SearchPlan:
    limit_bytes = setup.memory_limit_bytes
    free_bytes = min((each.free_bytes for each in budget.devices), default=budget.memory_bytes)
    if limit_bytes is not None and free_bytes < limit_bytes:
        said = say("maxctx.less_free", free=format_bytes(free_bytes), limit=format_bytes(limit_bytes))
        warnings = (said, *warnings)
    return SearchPlan(
        ceiling_n_ctx=ceiling_n_ctx,
        budget_bytes=budget.usable_bytes,
        memory_bytes=budget.memory_bytes,
        memory_source=budget.memory_source,
        reserve_bytes=budget.reserve_bytes,
        reserve_source=budget.reserve_source,
        mmproj_bytes=budget.projector_bytes,
        gpu_processes=list_gpu_processes([gpu.index for gpu in gpus]) if gpus else (),
        warnings=warnings,
    )


def _ceiling(
    file: ModelFile, setup: EngineConfig, *, grows: bool, beyond_train: bool
) -> tuple[int, tuple[str, ...]]:
    ceiling, warnings = LARGEST_N_CTX, []
    if not grows:
        ceiling = CEILING_WITHOUT_GROWTH
        warnings.append(say("maxctx.same_at_any_length", ceiling=ceiling))
    if setup.n_ctx is not None:
        ceiling = min(ceiling, setup.n_ctx)
    elif file.n_ctx_train is not None and not beyond_train:
        ceiling = min(ceiling, file.n_ctx_train * setup.n_streams)
    step = KV_CELLS * setup.n_streams
    return max(step, ceiling // step * step), tuple(warnings)
