"""Events of an engine while it opens a model or runs a workload, the same for all engines.

They are also the worker's messages, one JSON object per line, so they are msgspec structs with a tag.
"""

from __future__ import annotations

import enum

import msgspec

from ggbench.record import Record
from ggbench.stats.decode_timing import Clock, RequestTiming, ServerFound, TokenChunks


class Ready(Record, tag="ready"):
    """The engine runs; nothing is loaded yet."""

    pid: int | None
    """None if it has no process on this machine."""
    versions: dict[str, str]
    """Versions of the software, by the names of `Environment`: `llama_cpp`, `llama_cpp_python`, `system_info`,
    `server`."""


class Opening(Record, tag="opening"):
    """Loaded share of the model, 0 to 1."""

    share: float


class Allocated(Record, tag="allocated"):
    """Memory of the model, and of any context, so far; each replaces the one before."""

    buffers: tuple[DeviceBuffers, ...]
    flash_attn: bool | None = None
    cache_bytes: int | None = None
    """All caches of the context over all devices, also in a dry run, whose KV buffers are empty."""
    device_ids: tuple[tuple[str, str], ...] = ()
    """The engine's name of each GPU in use and its PCI bus id or UUID, if known: (`CUDA0`, `0000:01:00.0`)."""
    is_all_offloaded: bool = False
    tensor_bytes: int | None = None
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None if the model has none, or the engine does not say."""
    n_copies: int = 1
    """Copies of each device's inputs, so that several devices can compute different batches at once."""
    draft_buffers: tuple[DeviceBuffers, ...] = ()
    """Buffers of a draft model, or of the second context of MTP layers."""

    @property
    def gpu_devices(self) -> tuple[tuple[str, str | None], ...]:
        """The engine's names of the GPUs with any buffer, each with its id or None.

        Before the first reported buffer, all GPUs with an id.
        """
        ids = dict(self.device_ids)
        holding = [each.device for each in self.buffers if not each.is_host]
        return tuple((device, ids.get(device)) for device in (holding if self.buffers else ids))

    def total(self, field: str) -> int:
        """Return the sum of one field of DeviceBuffers over the devices; bytes."""
        return sum(getattr(device, field) for device in self.buffers)


class Loaded(Record, tag="loaded"):
    seconds: float
    left_bytes: int | None = None
    """Bytes left of the memory limit, or on the GPUs in use, counting each like the fullest; None if nothing is
    limited."""
    tensor_bytes: int | None = None
    description: str = ""


class Opened(Record, tag="opened"):
    seconds: float
    n_ctx: int | None = None
    """None if the engine does not say, e.g. a server."""
    n_batch: int | None = None
    n_ubatch: int | None = None
    left_bytes: int | None = None

    def memory(self, allocated: Allocated) -> Memory:
        return Memory(
            buffers=allocated.buffers,
            tensor_bytes=allocated.tensor_bytes,
            n_ctx=self.n_ctx,
            n_batch=self.n_batch,
            n_ubatch=self.n_ubatch,
            flash_attn=allocated.flash_attn,
            swa_cells=allocated.swa_cells,
            draft_buffers=allocated.draft_buffers,
        )


class ReadingPrompts(Record, tag="reading_prompts"):
    """The share of the prompts read so far, 0 to 1."""

    share: float
    n_prompt: int | None = None
    """Tokens of each; None if unknown."""


class PromptRead(Record, tag="prompt_read"):
    """One prompt, or one for each of several sequences at once, was read from an empty cache."""

    n_prompt: int
    elapsed_ns: int
    n_seqs: int = 1
    n_asked: int | None = None
    """Requested tokens of each sequence if a server counts differently, otherwise None."""


class TurnStarted(Record, tag="turn_started"):
    """The prompt of a turn was read, and its first token came; a server says so after its answer."""

    n_cached: int | None
    """Tokens of it that were in the cache; None if a server does not say."""
    wait_ns: int
    """Time to read the rest; of a server, until its first token arrives."""
    slot: int | None = None
    """The server's slot; None without slots."""
    is_cut: bool = False
    """Whether the server cut the prompt to fit its context."""


class Steps(Record, tag="steps"):
    first_position: int
    """Tokens in the KV cache of a sequence at the first of these steps, including the one being decoded."""
    step_ns: list[int]
    """Time of each whole step, for all sequences."""
    sampler_ns: list[int]
    """Time of the sampler in each step; empty if not timed."""
    clock: Clock = "engine"
    seq: int | None = None
    """Number of the sequence; None if the steps are for all."""


class ServerAnswered(Record, tag="server_answered"):
    found: ServerFound


class TokensTogether(Record, tag="tokens_together"):
    """Decode steps that were timed only in groups."""

    chunks: TokenChunks
    seq: int | None = None


class RequestEnded(Record, tag="request_ended"):
    timing: RequestTiming
    seq: int | None = None


class Continued(Record, tag="continued"):
    """An answer, with the times and counts of the server's own clock."""

    n_tokens: int
    """Includes the first, which comes with the prompt."""
    decode_ns: int
    """Time of all tokens but the first."""
    n_drafted: int = 0
    n_accepted: int = 0


class Proving(Record, tag="proving"):
    """The share of a context that is filled for a proof, 0 to 1; a batch is then computed at its end."""

    share: float


class ContextProven(Record, tag="context_proven"):
    full: bool
    """Whether the engine had no cell left for another token; always true for a state that does not grow."""
    left_bytes: int | None = None


class Tokenized(Record, tag="tokenized"):
    tokens: list[int]
    n_vocab: int
    bos: int | None
    """Token that the model adds before a text; None if it adds none."""


class Speculated(Record, tag="speculated"):
    """One pass over single tokens and steps of speculative decoding."""

    single_ns: list[int]
    sampler_ns: int
    """Time to choose one token from the model's logits."""
    step_ns: list[int]
    """Times of whole steps, without choosing the model's own tokens, in the order of `Speculate.n_drafted`."""


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """Scores of a text's positions, chunk by chunk; the comparisons with a base are empty without one."""

    nll: list[float] = []
    """-ln p of each true next token."""
    base_nll: list[float] = []
    kld: list[float] = []
    """KL divergence of the base's distribution from the model's, in nats."""
    p_diff: list[float] = []
    """p of the true next token minus the base's."""
    same_top: list[bool] = []
    """Whether both have the same most likely token."""


Event = (
    Ready
    | Opening
    | Allocated
    | Loaded
    | Opened
    | ReadingPrompts
    | PromptRead
    | TurnStarted
    | Steps
    | ServerAnswered
    | TokensTogether
    | RequestEnded
    | Continued
    | Proving
    | ContextProven
    | Tokenized
    | Speculated
    | Scored
)


# llama.cpp copies some matrices into a separate buffer with an order that its CPU kernels read faster. In a mapped file
# the original pages stay in memory until the kernel needs the room, but nothing reads them again (measured: after
# `clear_refs` a second decode touched none of them). So weights count each tensor once, mapped or read, and plan and
# run agree.
_REPACKED = frozenset({"CPU_REPACK", "AMX", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT"})
_ROUNDING_BYTES = 1 << 16
"""Largest difference between buffers and tensors: llama.cpp's log rounds, and each tensor is padded."""


class MemoryKind(enum.StrEnum):
    """The kind of memory of a buffer, as reported by the engine."""

    HOST = "host"
    GPU = "gpu"
    REMOTE = "remote"
    """Another machine's, reached over RPC."""


class DeviceBuffers(Record):
    device: str
    """The engine's name: llama.cpp's buffer type, `CPU`, `CPU_REPACK`, `CUDA0`, `CUDA_Host`."""
    place: MemoryKind = MemoryKind.HOST
    weight_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def is_host(self) -> bool:
        return self.place is MemoryKind.HOST

    @property
    def is_mapped(self) -> bool:
        return self.is_host and self.device.endswith("_Mapped")

    @property
    def is_repacked(self) -> bool:
        return self.device in _REPACKED

    @property
    def total_bytes(self) -> int:
        return self.weight_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes


class Memory(Record, kw_only=True):
    """Memory of one loaded model and its context."""

    buffers: tuple[DeviceBuffers, ...] = ()
    """In order of allocation, also if a load failed halfway."""
    tensor_bytes: int | None = None
    """All tensors of the model, each counted once; None before the load, or if the engine does not say."""
    n_ctx: int | None = None
    """Rounded by the engine; None without a context."""
    n_batch: int | None = None
    """Clamped by the engine to at most n_ctx; the setup has the requested value."""
    n_ubatch: int | None = None
    """Clamped by the engine to at most n_batch."""
    flash_attn: bool | None = None
    """Value that `auto` resolved to; None if the engine does not say."""
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None if the model has none, or the engine does not say."""
    peak_bytes: int | None = None
    """Peak resident memory of the engine's process; in a search on GPUs, the decrease of their free memory."""
    other_bytes: int | None = None
    """`peak_bytes`, or with weights on GPUs the process's memory there, minus all buffers; None if the buffers are
    larger, as some may be untouched."""
    draft_buffers: tuple[DeviceBuffers, ...] = ()
    """Buffers of a draft model, or of the second context of MTP layers; not included in the totals."""

    @property
    def draft_bytes(self) -> int | None:
        """Memory of what drafts, over all devices; None if nothing does."""
        return sum(each.total_bytes for each in self.draft_buffers) or None

    @property
    def kv_bytes(self) -> int | None:
        """KV caches over all devices."""
        return self._of_context("kv_bytes")

    @property
    def compute_bytes(self) -> int | None:
        return self._of_context("compute_bytes")

    def _of_context(self, field: str) -> int | None:
        """Return the sum of one field of DeviceBuffers; None without a context, or if no buffer was reported."""
        return sum(getattr(each, field) for each in self.buffers) if self.n_ctx and self.buffers else None

    @property
    def weight_bytes(self) -> int | None:
        """Weights over all devices; None if no buffer was reported."""
        if not self.buffers:
            return None
        buffered = sum(each.weight_bytes for each in self.buffers)
        mapped = sum(each.weight_bytes for each in self.buffers if each.is_mapped)
        repacked = sum(each.weight_bytes for each in self.buffers if each.is_repacked)
        if self.tensor_bytes is None or self.weights_on_gpu:
            return buffered - min(mapped, repacked)
        is_all = bool(mapped) or abs(buffered - self.tensor_bytes) <= _ROUNDING_BYTES
        return self.tensor_bytes if is_all else buffered

    @property
    def total_bytes(self) -> int | None:
        """Memory of model and context on all devices; None if no buffer was reported."""
        if self.weight_bytes is None:
            return None
        return self.weight_bytes + sum(each.total_bytes - each.weight_bytes for each in self.buffers)

    @property
    def weights_on_gpu(self) -> bool:
        return any(each.weight_bytes and not each.is_host for each in self.buffers)
