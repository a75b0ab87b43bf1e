"""How a model is loaded: one record for each engine, with that engine's own names."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from ggbench.errors import UsageError
from ggbench.units import KV_CELLS

FlashAttn = Literal["auto", "on", "off"]
SplitMode = Literal["layer", "row", "none", "tensor"]
ClockChoice = Literal["auto", "server", "client"]
CacheKind = Literal["dynamic", "static"]
Attention = Literal["sdpa", "eager", "flash_attention_2"]
TorchDevice = Literal["auto", "cpu", "cuda"]

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Those that llama.cpp's own tools take for a cache."""

MAX_THREADS = 512
"""GGML_MAX_N_THREADS of ggml.h."""


LARGEST_N_CTX = (1 << 31) - KV_CELLS
"""Positions are signed 32-bit integers in llama.cpp; anything larger would be truncated silently."""

UNQUANTIZED = frozenset(KV_TYPES[:3])
"""Types of a V cache that need no flash attention."""

_EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"


class Setup:
    """How one engine loads a model. A stored setup is read as the type of its engine."""

    __slots__ = ()
    engine: ClassVar[str]
    """Name of the folder in `ggbench.engines` that runs it."""
    program: ClassVar[str]
    """What runs the model, as texts for people name it."""
    loads_file: ClassVar[bool] = True
    """Whether the engine loads a model file of this machine."""
    loads_gguf: ClassVar[bool] = False
    """Whether that file is a GGUF."""
    sizes_dry: ClassVar[bool] = False
    """Whether the engine can say what a context takes without making it."""
    in_words: ClassVar[frozenset[str]] = frozenset()
    """Fields that MODEL and QUANT of a command line say, so that they are no options."""

    @property
    def n_ctx(self) -> int | None:
        """Tokens that the caches are made for; None where the engine does not say, or takes what a run needs."""
        return None

    @property
    def memory_limit_bytes(self) -> int | None:
        """What model and context together may take; None means all there is."""
        return None

    @property
    def cache_types(self) -> tuple[str, str] | None:
        """Types of the K and the V cache; None where the engine does not say."""
        return None

    def check(self) -> None:
        """Raise UsageError for options that do not go together, which an engine refuses only once it has loaded."""

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError where the given n_ctx is too small for a run, or the run too long for any context."""

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with the n_ctx that was given, else with just enough for this many tokens."""
        return self

    def as_asked(self) -> Self:
        """Return the setup without what a kind of run decides itself: its n_ctx, its sequences and its outputs."""
        return self

    def with_threads(self, threads: int) -> Self:
        """Return the setup with these threads where it names none and the engine takes them."""
        return self


@dataclass(frozen=True, slots=True)
class LlamaSetup(Setup):
    """How llama.cpp loads a model and makes its context; names are llama.cpp's own."""

    engine: ClassVar[str] = "llama"
    program: ClassVar[str] = "llama.cpp"
    loads_gguf: ClassVar[bool] = True
    sizes_dry: ClassVar[bool] = True

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
    """Share of the model for each device, those of RPC servers first; empty leaves it to llama.cpp."""
    rpc_servers: tuple[str, ...] = ()
    """`HOST:PORT` of llama.cpp's RPC servers, whose devices come before the GPUs of this machine."""
    split_mode: SplitMode = "layer"
    """How several GPUs share a model; `none` where `main_gpu` is given."""
    cpu_moe: bool = False
    """Keep the expert tensors of every layer in main memory."""
    n_cpu_moe: int = 0
    """Keep the expert tensors of the first N layers in main memory."""
    override_tensor: tuple[str, ...] = ()
    """`PATTERN=BUFFER_TYPE` each: tensors whose names match the regular expression go into that buffer type."""
    threads: int | None = None
    """CPU threads; None means one for each physical core."""
    threads_batch: int | None = None
    """CPU threads for prompts and batches; None means as many as `threads`."""
    mmap: bool = True
    """Map the file instead of reading it; a memory limit of main memory turns it off."""
    mlock: bool = False
    """Keep the model's pages in main memory."""
    kv_offload: bool = True
    """Keep the KV cache on the GPU with the layers that use it."""
    swa_full: bool = False
    """Keep all of the context in the caches of sliding-window layers; llama-server's default is off."""
    n_seq_max: int = 1
    """Sequences that a context can hold; n_ctx is shared out among them."""
    n_outputs_max: int | None = None
    """Tokens of one batch whose logits are computed; None means one of each sequence, as llama-server reserves."""
    memory_limit_bytes: int | None = None
    """What model and context together may take; None means all there is."""

    @property
    def cache_types(self) -> tuple[str, str]:
        """Types of the K and the V cache."""
        return self.type_k, self.type_v

    def check(self) -> None:
        """Raise UsageError for a V cache that llama.cpp refuses, which it does only once the model is loaded.

        Source: `llama_init_from_model` in llama-context.cpp; with `auto` it switches flash attention on.
        """
        if self.flash_attn == "off" and self.type_v not in UNQUANTIZED:
            raise UsageError(
                f"a V cache of {self.type_v} needs flash attention, which is off",
                "give --flash-attn on, or --type-v f16",
            )

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError where the given n_ctx is too small for a run, or the run too long for any context."""
        _check_given(self.n_ctx, n_tokens)
        n_ctx = self.n_ctx or whole_steps(n_tokens)
        if n_ctx > LARGEST_N_CTX:
            raise UsageError(
                f"this run needs an n_ctx of {n_ctx:,}, and llama.cpp's maximum is {LARGEST_N_CTX:,}",
                "measure fewer tokens" if self.n_ctx is None else "give a smaller --n-ctx",
            )

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with the n_ctx that was given, else just enough in whole steps of llama.cpp's padding."""
        return replace(self, n_ctx=self.n_ctx or whole_steps(n_tokens))

    def as_asked(self) -> Self:
        """Return the setup without what a kind of run decides itself."""
        return replace(self, n_ctx=None, n_seq_max=1, n_outputs_max=None)

    def with_threads(self, threads: int) -> Self:
        """Return the setup with these threads where it names none."""
        return replace(self, threads=self.threads or threads)

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Pattern and buffer type of every tensor override, in llama.cpp's order: the first that matches decides.

        Source of the patterns for experts: llama.cpp's common.h, `LLM_FFN_EXPS_REGEX`.
        """
        given = tuple(tuple(text.rsplit("=", 1)) for text in self.override_tensor)
        layers = [] if self.cpu_moe else [rf"blk\.{layer}" for layer in range(self.n_cpu_moe)]
        experts = tuple((layer + _EXPERTS, "CPU") for layer in (["", *layers] if self.cpu_moe else layers))
        return (*((pattern, device) for pattern, device in given), *experts)


@dataclass(frozen=True, slots=True)
class EndpointSetup(Setup):
    """How a server is asked; it has loaded the model by itself, so nothing of that is here."""

    engine: ClassVar[str] = "server"
    program: ClassVar[str] = "the server"
    loads_file: ClassVar[bool] = False
    in_words: ClassVar[frozenset[str]] = frozenset({"base_url", "model"})

    base_url: str = ""
    """Scheme, host, port and path, without `/v1`."""
    model: str = ""
    """As the server offers it."""
    clock: ClockChoice = "auto"
    """Whose clock times the tokens: `auto` takes the server's own where it has one for each token."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; the key itself is kept nowhere. Empty sends none."""


@dataclass(frozen=True, slots=True)
class TransformersSetup(Setup):
    """How Transformers loads a checkpoint, on one device, and what cache it decodes with."""

    engine: ClassVar[str] = "transformers"
    program: ClassVar[str] = "Transformers"
    in_words: ClassVar[frozenset[str]] = frozenset({"method", "dtype"})

    method: str = "bf16"
    """QUANT: how the weights are stored, one of `ggbench.engines.transformers.storage.METHODS`."""
    dtype: str = "bf16"
    """Of what the method does not convert, of the activations and of the cache: `bf16`, `f16`, `f32`."""
    cache: CacheKind = "dynamic"
    """`dynamic` appends to the cache in every step, as Transformers does by default; `static` allocates n_ctx cells at
    once, and every step attends to all of them."""
    attention: Attention = "sdpa"
    """Transformers' `attn_implementation`."""
    torch_compile: bool = False
    """Compile the steps of a decode; prompts are computed without."""
    device: TorchDevice = "auto"
    """`auto` takes the first GPU that torch sees, else the CPU."""
    n_ctx: int | None = None
    """Tokens; None lets the experiment take just enough for its run."""
    n_seq_max: int = 1
    """Sequences that are decoded at once; n_ctx is shared out among them."""
    threads: int | None = None
    """CPU threads; None means one for each physical core."""
    memory_limit_bytes: int | None = None
    """What model and cache together may take; None means all there is."""
    trust_remote_code: bool = False
    """Run Python code of the checkpoint's own."""

    @property
    def cache_types(self) -> tuple[str, str]:
        """Types of the K and the V cache."""
        return self.dtype, self.dtype

    def check(self) -> None:
        """Raise UsageError for a compiled decode whose cache grows, which torch would compile again and again."""
        if self.torch_compile and self.cache == "dynamic":
            raise UsageError("--torch-compile needs a cache that does not grow", "add --cache static")

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError where the given n_ctx is too small for a run."""
        _check_given(self.n_ctx, n_tokens)

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with the n_ctx that was given, else with just enough for this many tokens."""
        return replace(self, n_ctx=self.n_ctx or n_tokens)

    def as_asked(self) -> Self:
        """Return the setup without what a kind of run decides itself."""
        return replace(self, n_ctx=None, n_seq_max=1)

    def with_threads(self, threads: int) -> Self:
        """Return the setup with these threads where it names none."""
        return replace(self, threads=self.threads or threads)


def _check_given(n_ctx: int | None, n_tokens: int) -> None:
    if n_ctx is not None and n_ctx < n_tokens:
        raise UsageError(
            f"n_ctx {n_ctx} does not hold the {n_tokens} tokens of this run",
            "omit --n-ctx to use just enough, or measure fewer tokens",
        )


def whole_steps(n_tokens: int) -> int:
    """The smallest n_ctx that holds `n_tokens`, in whole steps of llama.cpp's padding."""
    return -(-n_tokens // KV_CELLS) * KV_CELLS
