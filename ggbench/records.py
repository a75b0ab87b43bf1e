"""The frozen records that cross layers: how a model is loaded, what it took, and the row that a person reads."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Literal

from ggbench.machine_records import Gpu, GpuProcess, GpuUse

FlashAttn = Literal["auto", "on", "off"]

N_PROMPT = 25
"""Tokens of prompt before a decode is timed, as in the article (section 6.4)."""

KV_CELLS = 256
"""llama.cpp pads a context to this many cells and reads the KV cache in steps of it."""

LARGEST_N_CTX = (1 << 31) - KV_CELLS
"""Positions are signed 32-bit integers in llama.cpp; what is larger would be cut without a word."""


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """How llama.cpp is asked to load a model and make its context; names are llama.cpp's own."""

    n_ctx: int | None = None
    """Tokens; None lets the experiment take just enough for its run."""
    n_batch: int = 2048
    n_ubatch: int = 512
    type_k: str = "f16"
    type_v: str = "f16"
    flash_attn: FlashAttn = "auto"
    n_gpu_layers: int = -1
    """Layers offloaded to the GPU; negative means all."""
    main_gpu: int | None = None
    """The one GPU to use; None spreads the model over all, as llama.cpp does."""
    tensor_split: tuple[float, ...] = ()
    """Share of the model for each GPU; empty leaves it to llama.cpp."""
    threads: int | None = None
    """CPU threads; None means one for each physical core."""
    memory_limit_bytes: int | None = None
    """What model and context together may take; None means all there is."""


@dataclass(frozen=True, slots=True)
class DeviceBuffers:
    """What llama.cpp allocated on one device, as its log tells; bytes."""

    device: str
    """llama.cpp's name of the buffer type: `CPU`, `CPU_REPACK`, `CUDA0`, `CUDA_Host`."""
    weight_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def is_host(self) -> bool:
        """Whether it lies in main memory."""
        return self.device.startswith(("CPU", "AMX")) or self.device.endswith("_Host")


class Outcome(enum.StrEnum):
    """How a trial ended."""

    COMPLETED = "completed"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    """llama.cpp refused and lives; the reason is its own."""
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    """ggbench itself was killed; what had been stored is kept."""


@dataclass(frozen=True, slots=True)
class LineFit:
    """latency(n) = (n - 1) / W + B, fitted; n is the position, counting the token being decoded."""

    n_samples: int
    w_tokens_per_ms: float | None
    """Tokens until one takes 1 ms longer; None where the slope cannot be told from zero."""
    w_ci95: tuple[float, float | None] | None
    """95 % interval of W; an upper end of None is unbounded, so W is "> lower". None: too few samples, or no bound."""
    b_ms: float | None
    """Latency of a first token, the line's value at n = 1; None where the line is below zero there."""
    b_ci95: tuple[float, float] | None
    """95 % interval of B, cut off at zero. None: too few samples."""
    r2: float | None
    """Share of the variance that the line explains; None where the samples do not vary."""
    robust_w_tokens_per_ms: float | None
    """W from a Theil-Sen slope, to cross-check; None where that slope is not positive."""


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Percentiles and rate of the timed steps."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    tok_s: float
    """Tokens per second over all timed decode steps, sampling left out, as llama-bench counts tg."""
    sample_p50_ms: float | None
    """Median time of the sampler for one token; None where it was not timed."""


@dataclass(frozen=True, slots=True)
class PrefillSpeed:
    """How fast a prompt of one length is read."""

    n_prompt: int
    prefill_ms: float
    """Median over the repeats."""
    tok_s: float
    repeat: int


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Memory bandwidth that a limit is computed from, with where it comes from."""

    bytes_per_s: float
    source: str
    """For people: `measured 2026-11-20 with 2 threads`, `NVML: 384 bit x 10501 MHz x 2`, `given`."""


@dataclass(frozen=True, slots=True)
class DecodeLimit:
    """Bandwidth bound on decode latency."""

    w_tokens_per_ms: float | None
    """None where what a token reads does not grow with the context."""
    b_ms: float
    bandwidth_bytes_per_s: float
    bandwidth_source: str


@dataclass(frozen=True, slots=True)
class Environment:
    """Where and with what a run was measured."""

    ggbench: str
    python: str
    llama_cpp_python: str
    llama_cpp: str
    """llama.cpp's own version line."""
    system_info: str
    """`llama_print_system_info()`: the instruction sets and backends compiled in."""
    os: str
    cpu: str
    n_cores: int
    """Physical cores this process may use."""
    ram_bytes: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One quant of one model, measured: what every table, file and plot is made from. None is unknown, never zero."""

    model: str
    quant: str
    file: str
    provenance: str
    """What the weights are: `file`, `twin` (true shape, no trained weights), `hub`."""
    file_bytes: int | None
    n_params: int | None
    bpw: float | None
    weight_bytes: int | None
    """Bytes of all tensors."""
    kv_bytes_per_token: int | None
    outcome: Outcome
    reason: str = ""
    """Why it did not complete, in one line."""
    buffers: tuple[DeviceBuffers, ...] = ()
    kv_bytes: int | None = None
    compute_bytes: int | None = None
    peak_bytes: int | None = None
    """Most resident memory that the worker had."""
    other_bytes: int | None = None
    """What the buffers do not explain of `peak_bytes`, or with weights on GPUs of what the worker held there; None
    where they explain more, some being untouched."""
    n_ctx: int | None = None
    n_batch: int | None = None
    """As llama.cpp made it, no more than n_ctx; `config` has what was asked for. None without a context, or untold."""
    n_ubatch: int | None = None
    """As llama.cpp made it, no more than n_batch."""
    max_n_ctx: int | None = None
    """The largest that works on this machine; None where none was found, or nobody searched."""
    max_n_ctx_verified: bool | None = None
    """Whether tokens were decoded at its far end; None without a `max_n_ctx`."""
    max_n_ctx_reason: str = ""
    """Why the search found none, or what its answer lacks, in one line; empty where nothing, or nobody searched."""
    n_prompt: int | None = None
    n_gen: int | None = None
    """Tokens decoded and timed."""
    prefill_ms: float | None = None
    prefills: tuple[PrefillSpeed, ...] = ()
    """By rising length, where lengths were asked for."""
    fit: LineFit | None = None
    latency: LatencySummary | None = None
    limit: DecodeLimit | None = None
    unsteady: str = ""
    """Why the samples should not be trusted; empty when the machine held still."""
    gpu_use: GpuUse | None = None
    """None where no GPU was used, or nothing told of one."""
    flash_attn: bool | None = None
    """What `auto` became."""
    config: LoadConfig = field(default_factory=LoadConfig)
    run_id: int | None = None
    header_sha256: str = ""
    """Of the file's header, `ModelFile.header_sha256`; empty when unknown."""
    command: str = ""
    """The line that reproduces this row."""
    environment: Environment | None = None

    def in_run(self, run_id: int | None) -> Row:
        """The same row, as it is kept under that id."""
        return replace(self, run_id=run_id)

    @property
    def w_ratio(self) -> float | None:
        """Measured W over the limit's; 1.0 is the physical limit."""
        if self.fit is None or self.fit.w_tokens_per_ms is None:
            return None
        if self.limit is None or self.limit.w_tokens_per_ms is None:
            return None
        return self.fit.w_tokens_per_ms / self.limit.w_tokens_per_ms

    @property
    def b_ratio(self) -> float | None:
        """The limit's B over the measured; 1.0 is the physical limit."""
        return None if self.fit is None or self.limit is None or not self.fit.b_ms else self.limit.b_ms / self.fit.b_ms

    @property
    def b_w16_ms(self) -> float | None:
        """B as if every weight had 16 bits, to compare quants (article, section 6.4)."""
        return None if self.fit is None or not self.fit.b_ms or not self.bpw else self.fit.b_ms * 16 / self.bpw


@dataclass(frozen=True, slots=True)
class Probe:
    """One question of a search for the largest context, with its answer."""

    n_ctx: int
    kind: Literal["dry", "alloc", "decode"]
    """Asked of llama.cpp's allocator run dry, of a real context, or of a decode at the far end of one."""
    outcome: Outcome
    """Of a dry probe: whether what it told is within the budget."""
    seconds: float
    kv_bytes: int | None = None
    """None where the probe ended before the log told."""
    compute_bytes: int | None = None
    reason: str = ""
    """Why it did not pass, in one line."""

    @property
    def passed(self) -> bool:
        """Whether this n_ctx works as far as this probe tells."""
        return self.outcome is Outcome.COMPLETED

    @property
    def is_answer(self) -> bool:
        """Whether it tells if its n_ctx works; one that was cancelled or took too long tells nothing."""
        return self.outcome not in (Outcome.CANCELLED, Outcome.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The largest context of one quant on this machine, and every question that led to it. None is unknown."""

    model: str
    quant: str
    file: str
    provenance: str
    file_bytes: int | None = None
    n_params: int | None = None
    bpw: float | None = None
    weight_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    n_ctx_train: int | None = None
    outcome: Outcome
    """Completed where a largest context was found, verified or not."""
    reason: str = ""
    """Why none was found, or why the one found is not verified, in one line."""
    max_n_ctx: int | None = None
    """The largest that passed; None where not one did."""
    first_fail_n_ctx: int | None = None
    """256 above `max_n_ctx`; None where the ceiling was reached instead."""
    planned_n_ctx: int | None = None
    """What weights, cache and compute buffers leave room for, told by the dry allocator before anything was loaded."""
    theory_n_ctx: int | None = None
    """What the weights alone leave room for, by the KV of one token; None where KV is not counted from the header."""
    ceiling_n_ctx: int | None = None
    """The search does not go above it."""
    verified_by_decode: bool = False
    """Whether a full n_ubatch and one more token were decoded at the far end of `max_n_ctx`."""
    probes: tuple[Probe, ...] = ()
    """In the order in which they were asked."""
    budget_bytes: int | None = None
    """What weights and context were allowed to take."""
    reserve_bytes: int = 0
    """Kept out of the budget."""
    free_bytes: int | None = None
    """Free memory before anything was loaded: of the GPUs, or of main memory."""
    buffers: tuple[DeviceBuffers, ...] = ()
    """At `max_n_ctx`."""
    kv_bytes: int | None = None
    compute_bytes: int | None = None
    peak_bytes: int | None = None
    """Most resident memory of the worker that proved it; of GPUs, what they had less free while it was there."""
    other_bytes: int | None = None
    """What the buffers do not explain of `peak_bytes`; None where they explain more, some being untouched."""
    gpu_processes: tuple[GpuProcess, ...] = ()
    """Programs that held GPU memory before the search began; empty where none did, or main memory was searched."""
    n_batch: int | None = None
    """As llama.cpp made it at `max_n_ctx`; `config` has what was asked for."""
    n_ubatch: int | None = None
    flash_attn: bool | None = None
    """What `auto` became."""
    warnings: tuple[str, ...] = ()
    """For people, one line each: a context beyond the training's, a state that does not grow."""
    config: LoadConfig = field(default_factory=LoadConfig)
    environment: Environment | None = None
    run_id: int | None = None
    """Of the store; None where nothing is kept."""
    command: str = ""
    """The line that searches again."""

    @property
    def n_allocations(self) -> int:
        """Contexts that were really allocated."""
        return sum(probe.kind == "alloc" for probe in self.probes)

    @property
    def seconds(self) -> float:
        """Spent on all probes; loading is not counted."""
        return sum(probe.seconds for probe in self.probes)
