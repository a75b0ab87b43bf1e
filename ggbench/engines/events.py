"""What an engine reports while it opens a model or carries out a workload; the same for every engine.

They are also the worker's messages, one JSON object a line, so they are msgspec structs with a tag.
"""

from __future__ import annotations

import enum
from typing import Literal

import msgspec

from ggbench.stats.decode_timing import Clock, RequestTiming, ServerFound, TokenChunks


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The engine runs; nothing is loaded yet."""

    pid: int | None
    """Of its process; None where it has none on this machine."""
    versions: dict[str, str]
    """Of the software, by the names of `Environment`: `llama_cpp`, `llama_cpp_python`, `system_info`, `server`."""


class Opening(msgspec.Struct, frozen=True, tag="opening"):
    """Share of the model that is loaded, 0 to 1."""

    share: float


class Allocated(msgspec.Struct, frozen=True, tag="allocated"):
    """What the model, and the context where there is one, took so far; each replaces the one before."""

    buffers: tuple[DeviceBuffers, ...]
    flash_attn: bool | None = None
    """What `auto` became; None before a context, and where the engine does not say."""
    cache_bytes: int | None = None
    """All caches of the context over all devices, also of a dry run, whose KV buffers are empty."""
    device_ids: tuple[tuple[str, str], ...] = ()
    """PCI bus id or UUID of each GPU in use, by the engine's name of it: (`CUDA0`, `0000:01:00.0`). One that the
    engine has no id of is left out."""
    is_all_offloaded: bool = False
    """Whether every layer was offloaded, including those whose experts stay in main memory."""
    tensor_bytes: int | None = None
    """All tensors of the model, each once; None before it is loaded, and where the engine does not say."""
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None where the model has none, or the engine does not say."""
    n_copies: int = 1
    """How often each device has room for what it is sent, so that several devices compute different batches at once."""

    @property
    def gpu_devices(self) -> tuple[tuple[str, str | None], ...]:
        """The engine's names of the GPUs that hold any buffer, each with its id; None where it reported none.

        Before the first buffer was reported: all that have an id.
        """
        ids = dict(self.device_ids)
        holding = [each.device for each in self.buffers if not each.is_host]
        return tuple((device, ids.get(device)) for device in (holding if self.buffers else ids))

    def total(self, field: str) -> int:
        """Sum over the devices of one field of DeviceBuffers; bytes."""
        return sum(getattr(device, field) for device in self.buffers)


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The model is in memory, with no context yet."""

    seconds: float
    left_bytes: int | None = None
    """Of what may be taken: of the memory limit, or of the GPUs in use, each taken for the one with the least; None
    where nothing is limited."""
    tensor_bytes: int | None = None
    """All its tensors, each once; None where the engine does not say."""
    description: str = ""
    """The engine's own words for it; empty where it has none."""


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """Model and context are in memory; sizes as the engine rounded them."""

    seconds: float
    n_ctx: int | None = None
    """None where the engine does not say, as a server may not."""
    n_batch: int | None = None
    n_ubatch: int | None = None
    left_bytes: int | None = None
    """As `Loaded.left_bytes`."""

    def memory(self, allocated: Allocated) -> Memory:
        """As a run keeps it."""
        return Memory(
            buffers=allocated.buffers,
            tensor_bytes=allocated.tensor_bytes,
            n_ctx=self.n_ctx,
            n_batch=self.n_batch,
            n_ubatch=self.n_ubatch,
            flash_attn=allocated.flash_attn,
            swa_cells=allocated.swa_cells,
        )


class ReadingPrompts(msgspec.Struct, frozen=True, tag="reading_prompts"):
    """How far the reading of a long prompt has come."""

    share: float
    """Of all its tokens, 0 to 1."""


class PromptRead(msgspec.Struct, frozen=True, tag="prompt_read"):
    """One prompt, or one for each of several sequences at once, was read from an empty cache."""

    n_prompt: int
    """Tokens of each sequence."""
    elapsed_ns: int
    n_seqs: int = 1
    sample_ns: int | None = None
    """Of sampling one first token from its logits; None where it was not timed."""
    n_asked: int | None = None
    """Tokens of each sequence that were asked for, where a server counts other than `n_prompt`; else None."""


class Steps(msgspec.Struct, frozen=True, tag="steps"):
    """Some consecutive decode steps."""

    first_position: int
    """Tokens in the KV cache of a sequence at the first of these steps, the one being decoded included."""
    step_ns: list[int]
    """Of each step: the whole of it, for all sequences."""
    sample_ns: list[int]
    """The sampler, each step; empty where it was not timed."""
    text: str = ""
    """The tokens as text; empty for a model without a tokenizer."""
    clock: Clock = "engine"
    seq: int | None = None
    """Number of the one sequence that these are of; None where they are of all."""


class ServerAnswered(msgspec.Struct, frozen=True, tag="server_answered"):
    """The server that computes, before anything is asked of its model."""

    found: ServerFound


class TokensTogether(msgspec.Struct, frozen=True, tag="tokens_together"):
    """Decode steps of which only several together were timed."""

    chunks: TokenChunks
    seq: int | None = None
    """As `Steps.seq`."""


class RequestEnded(msgspec.Struct, frozen=True, tag="request_ended"):
    """A request to a server ended, or was ended."""

    timing: RequestTiming
    seq: int | None = None
    """As `Steps.seq`."""


class Proving(msgspec.Struct, frozen=True, tag="proving"):
    """How far a proof has come: the context is filled first, then a batch is computed at its far end."""

    stage: Literal["fill", "batch"]
    share: float
    """Of the stage, 0 to 1."""
    left_s: float | None = None
    """Of the batch, which takes most of the time: estimated by its own speed; None before that is known."""


class ContextProven(msgspec.Struct, frozen=True, tag="context_proven"):
    """The far end of the context was computed with."""

    seconds: float
    n_batch_tokens: int
    """Decoded at once: n_ubatch, or what the context has room for."""
    batch_ns: int
    token_ns: int
    """The single token, at the last position."""
    fill: Literal["copied", "decoded", "none"]
    """How the cells before the far end were filled: copies of a few decoded ones, a real prompt, or there are none."""
    full: bool
    """Whether the engine had no cell left for one token more; always true for a state that does not grow."""
    left_bytes: int | None = None
    """As `Loaded.left_bytes`, with all that the decodes took."""


class Tokenized(msgspec.Struct, frozen=True, tag="tokenized"):
    """A text as the model's tokens."""

    tokens: list[int]
    n_vocab: int
    bos: int | None
    """What the model adds before a text; None where it adds nothing."""


class Scored(msgspec.Struct, frozen=True, tag="scored"):
    """Positions of a text, of one chunk after the other; the lists that compare with a base are empty without one."""

    nll: list[float] = []
    """-ln p of each true next token."""
    base_nll: list[float] = []
    kld: list[float] = []
    """KL divergence of the base's distribution from the model's, in nats."""
    p_diff: list[float] = []
    """p of the true next token less the base's."""
    n_same_top: int = 0
    """Positions at which both give the same token the highest probability."""


Event = (
    Ready
    | Opening
    | Allocated
    | Loaded
    | Opened
    | ReadingPrompts
    | PromptRead
    | Steps
    | ServerAnswered
    | TokensTogether
    | RequestEnded
    | Proving
    | ContextProven
    | Tokenized
    | Scored
)


# llama.cpp copies some matrices into an order that its CPU kernels read faster, a buffer of its own. In a mapped file
# the pages that they came from stay in memory until the kernel needs the room, but nothing reads them again. So weights
# count each tensor once, whether the file is mapped or read, and a plan says the same as a run. Measured with llama.cpp
# 0.5.0-dev on a Xeon with AVX-512, a q4_k_m twin of qwen1.5-0.5b at n_ctx 512: of 382.6 MiB of tensors 140.1 are
# repacked. Mapped, the worker had 382.6 of the pages and 222.0 MiB of its own; read, 465.1. After `clear_refs` a second
# decode touched 161.1 of the pages: not those 140.1, nor embedding rows without a token.
_REPACKED = frozenset({"CPU_REPACK", "AMX", "CPU_KLEIDIAI", "CPU_RISCV64_SPACEMIT"})
"""llama.cpp's buffers of repacked matrices."""
_ROUNDING_BYTES = 1 << 16
"""By which buffers and tensors may differ: what llama.cpp's log rounds, and pads each tensor by."""


class MemoryKind(enum.StrEnum):
    """The kind of memory that a buffer lies in, as the engine reports it."""

    HOST = "host"
    GPU = "gpu"
    REMOTE = "remote"
    """Another machine's, reached over RPC."""


class DeviceBuffers(msgspec.Struct, frozen=True):
    """What was allocated on one device; bytes."""

    device: str
    """The engine's name: llama.cpp's buffer type, `CPU`, `CPU_REPACK`, `CUDA0`, `CUDA_Host`."""
    place: MemoryKind = MemoryKind.HOST
    weight_bytes: int = 0
    kv_bytes: int = 0
    compute_bytes: int = 0
    output_bytes: int = 0

    @property
    def is_host(self) -> bool:
        """Whether it lies in this machine's main memory."""
        return self.place is MemoryKind.HOST

    @property
    def is_mapped(self) -> bool:
        """Whether its weights are pages of the file in main memory."""
        return self.is_host and self.device.endswith("_Mapped")

    @property
    def is_repacked(self) -> bool:
        """Whether its weights are copies in another order."""
        return self.device in _REPACKED

    @property
    def total_bytes(self) -> int:
        """All four together."""
        return self.weight_bytes + self.kv_bytes + self.compute_bytes + self.output_bytes


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """What one loaded model and its context took."""

    buffers: tuple[DeviceBuffers, ...] = ()
    """In the order in which they were allocated; those of a load that failed half-way, too."""
    tensor_bytes: int | None = None
    """All tensors of the model, each once; None before it is loaded, and where the engine does not say."""
    n_ctx: int | None = None
    """As the engine rounded it; None without a context."""
    n_batch: int | None = None
    """As the engine clamped it, at most n_ctx; the setup has what was asked for."""
    n_ubatch: int | None = None
    """As the engine clamped it, at most n_batch."""
    flash_attn: bool | None = None
    """What `auto` became; None where the engine does not say."""
    swa_cells: int | None = None
    """Cells of the caches of sliding-window layers; None where the model has none, or the engine does not say."""
    peak_bytes: int | None = None
    """Most resident memory of the engine's process; of a search on GPUs, what they had less free meanwhile."""
    other_bytes: int | None = None
    """What all buffers do not explain of `peak_bytes`, or with weights on GPUs of what the process held there; None
    where they explain more, some being untouched."""

    @property
    def kv_bytes(self) -> int | None:
        """KV caches over all devices; None without a context, and where no buffer was reported."""
        return None if self.n_ctx is None or not self.buffers else sum(each.kv_bytes for each in self.buffers)

    @property
    def compute_bytes(self) -> int | None:
        """Compute buffers over all devices; None as `kv_bytes`."""
        return None if self.n_ctx is None or not self.buffers else sum(each.compute_bytes for each in self.buffers)

    @property
    def weight_bytes(self) -> int | None:
        """Weights over all devices; None where no buffer was reported."""
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
    def unread_bytes(self) -> int:
        """Of the buffers: pages of a mapped file that repacked copies were made of, which are in none of the totals."""
        unread = sum(each.weight_bytes for each in self.buffers) - (self.weight_bytes or 0)
        return unread if unread > _ROUNDING_BYTES else 0

    @property
    def total_bytes(self) -> int | None:
        """All that model and context hold on all devices; None where no buffer was reported."""
        if self.weight_bytes is None:
            return None
        return self.weight_bytes + sum(each.total_bytes - each.weight_bytes for each in self.buffers)

    @property
    def weights_on_gpu(self) -> bool:
        """Whether any weights lie outside this machine's main memory."""
        return any(each.weight_bytes and not each.is_host for each in self.buffers)
