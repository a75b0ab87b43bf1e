"""The records of a plan: the memory budget, and the needs of one quant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.flags import changed_flags
from ggbench.hub.repo_records import RepoListing
from ggbench.models.subject import Subject
from ggbench.models.targets import FileToRun
from ggbench.record import Record
from ggbench.sizing.projectors import Projector
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Expected
from ggbench.stats.speed_curve import SessionTime
from ggbench.text import counted_names, in_words

HOST_DEVICE = "CPU"
"""llama.cpp's name of the buffers in main memory."""


class DeviceMemory(Record):
    """The memory of a device, or main memory."""

    device: str
    """llama.cpp's name of its buffers: `RPC0[192.168.1.7:50052]`, `CUDA0`."""
    free_bytes: int
    reserve_bytes: int = 0
    """Memory for the driver, the runtime and everything else outside llama.cpp's buffers."""
    name: str = ""
    """The hardware's, `NVIDIA GeForce RTX 3060`, or `HOST:PORT` of an RPC server."""
    backend: str = ""
    """ggml's name of the backend to plan with; empty for a device that llama.cpp has here itself."""
    bandwidth: Bandwidth | None = None
    """None if it is unknown; there are then no speed limits."""
    is_shared: bool = False
    """Whether it is a part of main memory."""
    projector_bytes: int = 0
    """A projector with its compute buffer."""
    process_bytes: int = 0
    """The part of the reserve for the allocating process itself, which a search for the largest context may use."""
    memory_source: str = ""
    reserve_source: str = ""

    @property
    def ggml_name(self) -> str:
        """The name that `-dev` takes, without the address of an RPC server."""
        return self.device.partition("[")[0]

    @property
    def ggml_backend(self) -> str:
        """Name of its backend in ggml: `CUDA`."""
        return self.ggml_name.rstrip("0123456789")

    def is_used(self, setup: LlamaConfig) -> bool:
        """Return whether the `devices` of a setup include it, in any case; without any, all are used."""
        return not setup.devices or self.ggml_name.lower() in map(str.lower, setup.devices)

    @property
    def usable_bytes(self) -> int:
        """Bytes for weights, cache and compute buffers; never negative."""
        return max(0, self.free_bytes - self.reserve_bytes - self.projector_bytes)

    @property
    def kept_bytes(self) -> int:
        """Memory that even a search leaves free."""
        return self.reserve_bytes - self.process_bytes


class PlannedDevice(Record, kw_only=True):
    """Contents of one device, or of main memory, counting each byte once."""

    device: str
    """llama.cpp's name of its buffers: `CUDA0`, `CPU`."""
    name: str = ""
    """The hardware's name, or `HOST:PORT` of an RPC server."""
    n_layers: int
    """Layers including the output."""
    memory_bytes: int | None
    """None for main memory of an unknown size."""
    weight_bytes: int
    kv_bytes: int
    """The cache, with recurrent states."""
    compute_bytes: int = 0
    """Compute buffers; in main memory with the logits."""
    draft_bytes: int = 0
    """Everything of a draft model, or the second context of MTP layers."""
    projector_bytes: int = 0
    process_bytes: int = 0
    """What llama.cpp's process takes outside its buffers, beyond the reserve."""
    reserve_bytes: int = 0

    @property
    def needed_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.compute_bytes + self.draft_bytes

    @property
    def usable_bytes(self) -> int | None:
        """Bytes for weights, cache, compute buffers and draft; never negative."""
        if self.memory_bytes is None:
            return None
        return max(0, self.memory_bytes - self.projector_bytes - self.reserve_bytes)

    @property
    def left_bytes(self) -> int | None:
        """Bytes left; negative if memory is missing."""
        usable_bytes = self.usable_bytes
        return None if usable_bytes is None else usable_bytes - self.needed_bytes - self.process_bytes


class Budget(Record):
    """A memory budget."""

    devices: tuple[DeviceMemory, ...] = ()
    """GPUs in llama.cpp's order; empty for main memory."""
    host: DeviceMemory | None = None
    """Main memory, planned for or beside these GPUs; None if its size is unknown."""
    is_here: bool = True
    """Whether it is this machine's, so measurements made here apply."""
    projector: Projector | None = None
    """A projector in this memory; None for none."""
    draft: FileToRun | None = None
    """A draft model, whose size depends on the context; None for none."""

    @property
    def on_gpu(self) -> bool:
        """Whether it is GPU memory; the input embedding is then elsewhere."""
        return bool(self.devices)

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of the GPUs' backends in ggml: `CUDA`."""
        return tuple(each.ggml_backend for each in self.devices)

    @property
    def planned(self) -> tuple[DeviceMemory, ...]:
        """The memories that are planned for: the GPUs, or main memory without any."""
        return self.devices or (() if self.host is None else (self.host,))

    @property
    def beside(self) -> DeviceMemory | None:
        """Main memory beside GPUs; None without GPUs, or if its size is unknown."""
        return self.host if self.devices else None

    @property
    def device(self) -> str:
        return counted_names([each.name for each in self.planned])

    @property
    def memory_bytes(self) -> int:
        return sum(each.free_bytes for each in self.planned)

    @property
    def memory_source(self) -> str:
        return in_words(list(dict.fromkeys(each.memory_source for each in self.planned)))

    @property
    def reserve_bytes(self) -> int:
        return sum(each.reserve_bytes for each in self.planned)

    @property
    def reserve_source(self) -> str:
        return self.planned[0].reserve_source

    @property
    def bandwidth(self) -> Bandwidth | None:
        """None if it is unknown, or differs."""
        rates = {each.bandwidth for each in self.planned}
        return rates.pop() if len(rates) == 1 else None

    @property
    def is_unified(self) -> bool:
        """Whether its GPUs share main memory, so that nothing is gained by what lies beside them."""
        return self.on_gpu and all(device.is_shared for device in self.devices)

    @property
    def place(self) -> str:
        return "GPU memory" if self.on_gpu else "main memory"

    @property
    def kept_bytes(self) -> int:
        """Memory that even a search leaves free."""
        return sum(each.kept_bytes for each in self.planned)

    @property
    def held_bytes(self) -> int:
        """Bytes that real allocations may take, those of their process included; never negative."""
        return max(0, self.memory_bytes - self.kept_bytes - self.projector_bytes)

    @property
    def ballast_bytes(self) -> int:
        """What a worker keeps free of each GPU: what stays free of all, and a projector, in equal shares."""
        return -(-(self.kept_bytes + self.projector_bytes) // max(1, len(self.devices)))

    @property
    def usable_bytes(self) -> int:
        """Bytes for weights, cache and compute buffers; never negative."""
        return sum(each.usable_bytes for each in self.planned)

    @property
    def projector_bytes(self) -> int:
        return 0 if self.projector is None else self.projector.needed_bytes

    def used_by(self, setup: LlamaConfig) -> Budget:
        """Return the budget of the GPUs among the `devices` of a setup."""
        used = [each for each in self.devices if each.is_used(setup)]
        if len(used) == len(self.devices):
            return self
        first = replace(used[0], projector_bytes=self.projector_bytes)
        return replace(self, devices=(first, *used[1:]))

    def unreserved(self) -> Budget:
        """Return the budget of GPUs without a reserve, as real allocations there need none for the driver."""
        free = (replace(each, reserve_bytes=0, process_bytes=0) for each in self.devices)
        return replace(self, devices=tuple(free))

    def beside_projector(self, projector: Projector) -> Budget:
        """Return the budget with a projector, which llama.cpp loads to the first device."""
        first, *others = self.planned
        first = replace(first, projector_bytes=projector.needed_bytes)
        if not self.devices:
            return replace(self, projector=projector, host=first)
        return replace(self, projector=projector, devices=(first, *others))


class Note(Record):
    """A sentence by its key in `show/words.toml`, with its values."""

    key: str
    values: dict[str, str]


class PlanRow(Record):
    """The needs of one quant; None means unknown, never zero."""

    model: str
    quant: str
    provenance: str
    """`file`, `twin`, `hub`, or `catalog` for a header generated from the catalog's hyperparameters."""
    engine: str = "llama"
    """The engine that would run it."""
    type_k: str = "f16"
    """Type of K in the planned KV cache."""
    type_v: str = "f16"
    file: str = ""
    """Path of the file or its first shard; empty if there is none."""
    file_bytes: int | None = None
    n_params: int | None = None
    bpw: float | None = None
    weight_bytes: int | None = None
    """All tensors, each counted once."""
    device_weight_bytes: int | None = None
    """Weights in the planned memory."""
    host_weight_bytes: int | None = None
    """Weights that stay in main memory if the plan is for a GPU."""
    is_split: bool = False
    """Whether weights or a cache that could be on a GPU are in main memory."""
    n_gpu_layers: int | None = None
    """Layers on the GPU including the output; None without a GPU."""
    n_ctx: int | None = None
    n_ctx_slot: int | None = None
    """Tokens that one slot can have of `n_ctx`."""
    n_ctx_train: int | None = None
    kv_bytes: int | None = None
    """The whole cache at `n_ctx`, by llama.cpp's allocator."""
    device_kv_bytes: int | None = None
    theory_kv_bytes: int | None = None
    """The same cache by the theory's formula."""
    kv_bytes_per_token: int | None = None
    compute_bytes: int | None = None
    """Compute buffers at `n_ctx` in the planned memory."""
    output_bytes: int | None = None
    """Logits, always in main memory."""
    budget_bytes: int | None = None
    draft_bytes: int | None = None
    """A draft model, or the second context of MTP layers, in the planned memory at `n_ctx`; None without."""
    needed_bytes: int | None = None
    """Weights, cache, compute buffers and draft in the planned memory at `n_ctx`."""
    left_bytes: int | None = None
    """Bytes left of the budget at `n_ctx`; negative if memory is missing."""
    fits: bool | None = None
    changes: tuple[Change, ...] = ()
    """Changes that would help if the quant does not fit, best first."""
    planned_n_ctx: int | None = None
    """The longest context within the budget; None if not even 256 tokens fit, or it was not searched, as by check."""
    reached_ceiling: bool = False
    """Whether contexts longer than `planned_n_ctx` were not tried."""
    limit_tok_s: float | None = None
    """What bandwidth allows one user with a full slot of `n_ctx`."""
    devices: tuple[PlannedDevice, ...] = ()
    """Contents of each memory at `n_ctx`, main memory last; one memory if a GPU may take all of it."""
    expected: Expected | None = None
    """Tokens/s of one user with a full slot of `n_ctx`; None if unknown."""
    expected_together: Expected | None = None
    """Tokens/s of all slots at once, which share `n_ctx` equally; None for a single slot."""
    session: SessionTime | None = None
    """The time of the session that was asked for, else of the longest of the package that `n_ctx_slot` holds."""
    loss: Expected | None = None
    """Loss of weights and cache against the original [nats]; None if unknown."""
    flash_attn: bool | None = None
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None if the model has none, or the engine does not say."""
    outcome: Outcome = Outcome.COMPLETED
    reason: str = ""
    """Why llama.cpp did not size it."""
    notes: tuple[Note, ...] = ()
    """Caveats about the sizes."""
    command: str = ""
    setup: LlamaConfig | None = None
    """The setup that was planned; None if it is another engine's."""

    @property
    def lacks_main_memory(self) -> bool:
        """Whether it does not fit for want of main memory beside the GPUs."""
        return self.fits is False and len(self.devices) > 1 and self.devices[-1].left_bytes == self.left_bytes

    @property
    def subject(self) -> Subject:
        return Subject(
            model=self.model, quant=self.quant, source=self.provenance, file=self.file, n_params=self.n_params
        )

    @property
    def options(self) -> str:
        """llama.cpp's options that leave out GPUs or keep a part of the model in main memory: `-ncmoe 24`."""
        fields = ("devices", "n_cpu_moe", "n_gpu_layers")
        return " ".join(changed_flags(self.setup, fields=fields)) if self.setup else ""

    @property
    def trained_n_ctx(self) -> int | None:
        """The training context in every slot; None if unknown."""
        n_slots = 1 if self.setup is None else self.setup.n_seq_max
        return self.n_ctx_train * n_slots if self.n_ctx_train else None

    def used_of(self, n_ctx: int) -> int:
        """Return how much of a context llama-server uses: at most the training context in each slot."""
        return min(n_ctx, self.trained_n_ctx or n_ctx)


ChangeKind = Literal["KV q8_0", "n_cpu_moe", "quant", "n_ctx", "n_gpu_layers"]
"""Kinds of change, cheapest first: barely any quality; experts read from main memory; quality; context; whole layers
computed by the CPU. Losing more than half of the context is the most expensive."""


class Change(Record):
    """A single change to a plan that does not fit, sized like the plan."""

    kind: ChangeKind
    setup: LlamaConfig | None
    """The setup with the change; None if the setup does not change."""
    needed_bytes: int
    """Bytes needed in the planned memory, at the setup's n_ctx."""
    left_bytes: int
    """Bytes left of the budget; negative if memory is still missing."""
    planned_n_ctx: int | None
    """The longest context with the change; None if none fits or it is unknown."""
    quant: str = ""
    """Name of the other quant."""
    host_bytes: int | None = None
    """Main memory that it takes beside GPUs, if it moves a part of the model there; else None."""
    expected: Expected | None = None
    """Tokens/s of one user with a full slot of the setup's n_ctx; None if unknown."""

    @property
    def fits(self) -> bool:
        return self.left_bytes >= 0


class EnginePlan(Record):
    """A plan of the requested quants: what `plan_model` returns, here or in the module `plan` of an engine's folder."""

    budget: Budget
    rows: tuple[PlanRow, ...]
    sources: Mapping[str, str]
    listing: RepoListing | None = None
    """The repo's files; None if the Hub was not asked."""
    alternative: PlanRow | None = None
    """A smaller quant that was not requested, if no row fits."""
    asked_n_ctx: int | None = None
    """The n_ctx that was asked for; None for the default."""

    @property
    def is_capped(self) -> bool:
        """Whether less context is planned than was asked for, as the model was trained with less."""
        return any(0 < (row.n_ctx or 0) < (self.asked_n_ctx or 0) for row in self.rows)
