"""The frozen records of a plan: the memory to keep within, and what one quant needs of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import FlashAttn, LlamaConfig
from ggbench.hub.repo_records import RepoListing
from ggbench.machine.readings import Program
from ggbench.models.subject import Subject
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit
from ggbench.stats.speed_estimate import SpeedBasis


class DeviceMemory(msgspec.Struct, frozen=True):
    """The memory of one of several devices."""

    device: str
    """llama.cpp's name of its buffers: `RPC0[192.168.1.7:50052]`, `CUDA0`."""
    server: str
    """`HOST:PORT` of its RPC server; empty for a device of this machine."""
    free_bytes: int
    reserve_bytes: int = 0
    """Of what is free, not for the model."""

    @property
    def usable_bytes(self) -> int:
        """What weights, cache and compute buffers may take; never negative."""
        return max(0, self.free_bytes - self.reserve_bytes)


class PlannedDevice(msgspec.Struct, frozen=True):
    """What one of several devices would hold."""

    device: str
    """As in `DeviceMemory`."""
    server: str
    n_layers: int
    """The output is one."""
    weight_bytes: int
    kv_bytes: int
    compute_bytes: int
    usable_bytes: int

    @property
    def needed_bytes(self) -> int:
        """All three together."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes

    @property
    def left_bytes(self) -> int:
        """Negative is what is missing."""
        return self.usable_bytes - self.needed_bytes


class Budget(msgspec.Struct, frozen=True):
    """One memory, with what of it is not for the model."""

    device: str
    on_gpu: bool
    """Whether it is a GPU's, so that the input embedding lies elsewhere."""
    memory_bytes: int
    memory_source: str
    reserve_bytes: int
    """For the driver, the runtime and whatever else is not in llama.cpp's buffers."""
    reserve_source: str
    bandwidth: Bandwidth | None = None
    """None where it is unknown, so that there are no limits."""
    process_bytes: int = 0
    """Of the reserve, what the process that allocates takes itself; a search for the largest context may use it."""
    mmproj: str = ""
    """Path of a projector; empty for none."""
    mmproj_bytes: int = 0
    """Of a projector that is loaded there beside the model, without its compute buffer."""
    devices: tuple[DeviceMemory, ...] = ()
    """The devices that it is made of, in llama.cpp's order, where any is another machine's; else it is one memory."""
    is_here: bool = True
    """Whether it is this machine's, so that what was measured here is known of it."""

    @property
    def kept_bytes(self) -> int:
        """What is left free, also by a search, which may reach into `process_bytes`."""
        return self.reserve_bytes - self.process_bytes

    @property
    def usable_bytes(self) -> int:
        """What weights, cache and compute buffers may take; never negative."""
        return max(0, self.memory_bytes - self.reserve_bytes - self.mmproj_bytes)


class PlannedSpeed(msgspec.Struct, frozen=True):
    """Decoding at one position, as fast as the memory lets it."""

    n: int
    latency_ms: float
    tok_s: float
    fits: bool | None
    """Whether a context of n tokens does; None where that is unknown."""


class PlannedForecast(msgspec.Struct, frozen=True):
    """The speed that is expected with the context filled, from what this machine has measured."""

    tok_s: float
    tok_s_ci95: tuple[float, float]
    basis: str
    """For people: `run 12`, `twins of 2 and 6 of 32 layers`."""
    speed_basis: SpeedBasis
    """Never the bound alone."""
    is_steady: bool = True
    """Whether the machine was while that was measured."""


class KvCacheTypes(msgspec.Struct, frozen=True):
    """The options that decide how large a KV cache is at a given n_ctx, by llama.cpp's names."""

    type_k: str
    type_v: str
    flash_attn: FlashAttn


class PlanRow(msgspec.Struct, frozen=True):
    """What one quant needs; None is unknown, never zero."""

    model: str
    quant: str
    provenance: str
    """`file`, `twin`, `hub`, or `catalog`: a header drawn from the catalog's hyperparameters."""
    engine: str = "llama"
    """What would run it, as in `EngineConfig.engine`."""
    type_k: str = "f16"
    """Of the KV cache that is planned."""
    type_v: str = "f16"
    file: str = ""
    """Path of the file or its first shard; empty where there is none."""
    file_bytes: int | None = None
    n_params: int | None = None
    bpw: float | None = None
    weight_bytes: int | None = None
    """All tensors, each once."""
    device_weight_bytes: int | None = None
    """What of them lies in the planned memory."""
    host_weight_bytes: int | None = None
    """What stays in main memory where the plan is for a GPU."""
    n_gpu_layers: int | None = None
    """Layers on the GPU as llama.cpp counts them, the output one of them; None without a GPU."""
    n_ctx: int | None = None
    n_ctx_train: int | None = None
    kv_bytes: int | None = None
    """The whole cache at `n_ctx`, as llama.cpp's allocator has it."""
    device_kv_bytes: int | None = None
    theory_kv_bytes: int | None = None
    """The same cache from the theory's formula."""
    kv_bytes_per_token: int | None = None
    compute_bytes: int | None = None
    """Compute buffers at `n_ctx` in the planned memory."""
    host_compute_bytes: int | None = None
    """Compute buffers in main memory where the plan is for a GPU; None where llama.cpp has no GPU here."""
    output_bytes: int | None = None
    """Of the logits, always in main memory."""
    budget_bytes: int | None = None
    needed_bytes: int | None = None
    """Weights, cache and compute buffers in the planned memory at `n_ctx`."""
    left_bytes: int | None = None
    """Of the budget at `n_ctx`; negative is what is missing."""
    fits: bool | None = None
    changes: tuple[Change, ...] = ()
    """What would help where it does not fit, the best first."""
    planned_n_ctx: int | None = None
    """The longest context within the budget; None where not even 256 tokens are."""
    reached_ceiling: bool = False
    """Whether longer ones than `planned_n_ctx` were not looked for."""
    theory_n_ctx: int | None = None
    """What the theory would fit, which knows of no compute buffers."""
    limit: DecodeLimit | None = None
    decode: tuple[PlannedSpeed, ...] = ()
    """At a few fixed positions, the same in every plan."""
    at_n_ctx: PlannedSpeed | None = None
    """With the context filled to `n_ctx`."""
    devices: tuple[PlannedDevice, ...] = ()
    """What each of several devices would hold at `n_ctx`; empty where the budget is one memory."""
    expected: PlannedForecast | None = None
    """At `n_ctx`; None where nothing is known but the bound."""
    flash_attn: bool | None = None
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None where the model has none, or the engine does not say."""
    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""
    """Why llama.cpp would not size it."""
    notes: tuple[str, ...] = ()
    """What to know before trusting the row, a line each."""
    command: str = ""

    @property
    def subject(self) -> Subject:
        """What the row is about."""
        return Subject(
            model=self.model, quant=self.quant, source=self.provenance, file=self.file, n_params=self.n_params
        )

    @property
    def fits_with(self) -> KvCacheTypes | None:
        """The largest cache with which it would fit at `n_ctx`; None where it fits as it is, or with none."""
        caches = ("flash attention", "KV q8_0", "KV q4_0")
        setups = {change.kind: change.setup for change in self.changes if change.setup is not None and change.fits}
        setup = next((setups[kind] for kind in caches if kind in setups), None)
        return None if setup is None else KvCacheTypes(setup.type_k, setup.type_v, setup.flash_attn)

    @property
    def exceeds_training(self) -> bool:
        """Whether the longest context that fits is longer than the model was trained for."""
        return bool(self.planned_n_ctx and self.n_ctx_train and self.planned_n_ctx > self.n_ctx_train)


ChangeKind = Literal[
    "close programs", "n_ubatch", "flash attention", "KV q8_0", "n_cpu_moe", "quant", "n_ctx", "KV q4_0", "n_gpu_layers"
]
"""In the order of what they cost: nothing; slower prompts; at most a trace of quality; experts read from main memory;
quality; context; quality at long contexts; whole layers computed by the CPU. Where less than half of the context would
be left, that costs most."""


class Change(msgspec.Struct, frozen=True):
    """A single change to a plan that does not fit, sized as the plan is."""

    kind: ChangeKind
    setup: LlamaConfig | None
    """The load with the change; None where the load stays as it is."""
    needed_bytes: int
    """In the planned memory, at the setup's n_ctx."""
    left_bytes: int
    """Of the budget; negative is what is still missing."""
    planned_n_ctx: int | None
    """The longest context with the change; None where none fits, or it was not looked for."""
    tok_s: float | None
    """The bound of the memory's bandwidth with the context filled; None where it is unknown."""
    quant: str = ""
    """Of another quant its name."""
    programs: tuple[Program, ...] = ()
    """What to close, the largest first."""

    @property
    def fits(self) -> bool:
        """Whether the change alone is enough."""
        return self.left_bytes >= 0


class EnginePlan(msgspec.Struct, frozen=True):
    """What the module `plan` of an engine's folder plans of its own models, by its function `plan_model`."""

    budget: Budget
    rows: tuple[PlanRow, ...]
    sources: Mapping[str, str]
    """Where each kind of figure comes from."""
    listing: RepoListing | None
    """Of the repo; None where the Hub was not asked."""
    moved_bytes: int = 0
    """Received over the network."""
