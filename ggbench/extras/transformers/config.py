"""How Transformers loads a checkpoint."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from msgspec.structs import replace

from ggbench.engines.contract import (
    CRASH_HINT,
    BatchedDecode,
    Decode,
    EngineConfig,
    Prefill,
    ProveContext,
    Request,
    check_given,
)
from ggbench.fields import FieldKind, Option
from ggbench.record import Record

Attention = Literal["sdpa", "eager", "flash_attention_2"]
TorchDevice = Literal["auto", "cpu", "cuda"]


_FAILURE_HINTS = {
    "--timeout": "",
    "no output from": "use a longer --timeout",
    "was killed by": CRASH_HINT,
    "ended with exit status": CRASH_HINT,
    "does not recognize this architecture": "a newer transformers may support it: pip install -U transformers",
    "sees no CUDA": "--device cpu needs no GPU, if the method supports it",
    "sees none": "use bf16, f16 or f32, or run it where torch sees a GPU",
    "only on Linux": "omit --memory-limit; ggbench plan computes without allocating",
    "flash_attn": "use --attention sdpa, which needs no other package",
    "": "this is Transformers' own message; another QUANT or --attention may work",
}


class TransformersConfig(EngineConfig, Record):
    """How Transformers loads a checkpoint on one device."""

    engine = "transformers"
    program = "Transformers"
    runs = (Prefill, Decode, BatchedDecode, ProveContext)
    alternative = "give a GGUF file of the model"
    failure_hints = _FAILURE_HINTS
    in_words = frozenset({"method", "dtype"})

    method: str = "bf16"
    """QUANT: the storage of the weights, one of `ggbench.extras.transformers.storage.METHODS`."""
    dtype: str = "bf16"
    """Type of unconverted tensors, activations and the cache: `bf16`, `f16`, `f32`."""
    attention: Annotated[
        Attention,
        Option(
            "",
            "Attention implementation: sdpa, eager or flash_attention_2.",
            FieldKind(metavar="NAME"),
            "checkpoint",
        ),
    ] = "sdpa"
    """Transformers' `attn_implementation`."""
    device: Annotated[
        TorchDevice,
        Option(
            "",
            "Where to compute. Default: the first CUDA GPU that torch sees, else the CPU.",
            FieldKind(metavar="cpu|cuda"),
            "checkpoint",
            shown="",
        ),
    ] = "auto"
    n_ctx: int | None = None
    """Tokens of context; None lets the experiment use just enough for its run."""
    n_seq_max: int = 1
    """Sequences decoded at once; n_ctx is divided among them."""
    threads: int | None = None
    """CPU threads; None means one per physical core."""
    memory_limit_bytes: int | None = None
    """Memory limit of model and cache together; None for no limit."""
    trust_remote_code: Annotated[
        bool, Option("", "Run the checkpoint's own Python code. Review it first.", heading="checkpoint")
    ] = False

    @property
    def may_use_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def type_k(self) -> str:
        return self.dtype

    @property
    def type_v(self) -> str:
        return self.dtype

    def check_holds(self, n_tokens: int) -> None:
        check_given(self.n_ctx, n_tokens)

    def holding(self, n_tokens: int) -> Self:
        return replace(self, n_ctx=self.n_ctx or n_tokens)

    def as_asked(self) -> Self:
        return replace(self, n_ctx=None, n_seq_max=1)

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=self.threads or threads)

    def with_context(self, n_tokens: int | None, n_seqs: int | None = None) -> Self:
        n_ctx = None if n_tokens is None else (n_seqs or 1) * n_tokens
        return replace(self, n_ctx=n_ctx, n_seq_max=n_seqs or self.n_seq_max)

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        return replace(self, device="cuda" if on_gpu else "cpu", memory_limit_bytes=limit_bytes)


class LoadCheckpoint(Request, tag="load_checkpoint"):
    """Load a checkpoint, replacing the loaded model. Answered by `Allocated` and `Loaded`."""

    stage = "load"

    folder: str
    """Folder with a config.json and safetensors."""
    setup: TransformersConfig
    """The setup's memory limit is for model and caches, in addition to the worker's memory before the load."""


class MakeCache(Request, tag="make_cache"):
    """Replace the cache. Answered by `Allocated` and `Opened`."""

    stage = "context"

    setup: TransformersConfig


CheckpointRequest = LoadCheckpoint | MakeCache
