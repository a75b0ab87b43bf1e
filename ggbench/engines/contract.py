"""The contract of engines: one opens a model under a setup, carries out workloads, and ends each in a value.

An engine is one folder in `ggbench.engines`, named by its setup's `engine`, whose module `engine` has a function
`launch`. It imports nothing of the experiments, and they never ask which engine they have: `unsupported` says what it
cannot do.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

import msgspec

from ggbench.errors import Unsupported, UsageError
from ggbench.plugins import load_plugin

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.engines.events import Event


Stage = Literal["start", "load", "context", "prefill", "decode", "score"]

DEFAULT_TIMEOUT_S = 600.0
"""Longest time without a message before a worker counts as hung: a long prompt on a slow CPU reports nothing."""


ON_OFF = {True: "on", False: "off"}


class EngineConfig:
    """How one engine loads a model. A stored setup is read as the type of its engine."""

    __slots__ = ()
    engine: ClassVar[str]
    """Name of the folder in `ggbench.engines` that runs it."""
    program: ClassVar[str]
    """Name of the program that runs the model, for display."""
    loads_file: ClassVar[bool] = True
    """Whether the engine loads a model file of this machine."""
    loads_gguf: ClassVar[bool] = False
    survives_failure: ClassVar[bool] = True
    """Whether a loaded model can be used after a decode that failed."""
    sizes_dry: ClassVar[bool] = False
    """Whether the engine can size a context without making it."""
    failure_hints: ClassVar[Mapping[str, str]] = {}
    """Hints for a run that failed, by words in its reason; the first match counts."""
    in_words: ClassVar[frozenset[str]] = frozenset()
    """Fields that MODEL and QUANT of a command line say, so they are no options."""

    n_ctx: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_gpu_layers: int = -1
    kv_offload: bool = True
    threads: int | None = None
    main_gpu: int | None = None
    flash_attn: str = ""
    memory_limit_bytes: int | None = None
    base_url: str = ""
    """URL of the server that is asked; empty for other engines."""

    @property
    def may_use_gpu(self) -> bool:
        return False

    @property
    def type_k(self) -> str | None:
        return None

    @property
    def type_v(self) -> str | None:
        return None

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Pattern and buffer type of tensors that are kept elsewhere than their layer."""
        return ()

    @property
    def described(self) -> Mapping[str, str]:
        """Other settings of the load, in display form, by name."""
        return {}

    @property
    def cache_types(self) -> tuple[str, str] | None:
        return None if self.type_k is None or self.type_v is None else (self.type_k, self.type_v)

    def speed_part(self, threads: int, n_layer: int | None, *, has_gpu: bool) -> Self | None:
        """Return the part that decides the speed of a model of `n_layer` layers, with `threads` unless it names some.

        None if runs of the engine say nothing about others.
        """
        return None

    def without_placement(self) -> Self:
        return self

    def less_memory(self, *, has_gpu: bool, has_context: bool) -> str:
        """Say what would need less memory; `has_context` means that the weights fitted."""
        return "a smaller quant needs less"

    def check(self) -> None:
        """Raise UsageError for incompatible options, which an engine refuses only once it has loaded."""

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError if the given n_ctx is too small for a run, or the run too long for any context."""

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with its n_ctx or, if it has none, with just enough for this number of tokens."""
        return self

    def as_asked(self) -> Self:
        """Return the setup without the values that a kind of run decides: n_ctx, sequences and outputs."""
        return self

    def with_threads(self, threads: int) -> Self:
        return self

    def with_context(self, n_tokens: int | None, n_seqs: int = 1) -> Self:
        """Return the setup with a context for this many tokens of each sequence; None makes none."""
        return self

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        """Return the setup with this limit of a GPU's or of main memory; None is no limit."""
        return self

    @property
    def load_part(self) -> Self:
        """The setup with what concerns the context alone at its default: equal for two that load the same."""
        return self

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Return the config, known to be this engine's. Raises Unsupported for another's."""
        if not isinstance(config, cls):
            raise Unsupported(f"this needs {cls.program}, but {config.program} runs the model", "name a GGUF file")
        return config


def check_given(n_ctx: int | None, n_tokens: int) -> None:
    if n_ctx is not None and n_ctx < n_tokens:
        raise UsageError(
            f"n_ctx {n_ctx} does not hold the {n_tokens} tokens of this run",
            "omit --n-ctx to use just enough, or measure fewer tokens",
        )


class Request(msgspec.Struct, frozen=True):
    stage: ClassVar[Stage]
    """Stage that failed if it fails."""


class Workload(Request, frozen=True):
    @property
    def n_outputs(self) -> int:
        """Most tokens of one of its batches whose logits it asks for; the setup's `n_outputs_max` has to allow them."""
        return 1


class Source(msgspec.Struct, frozen=True):
    path: Path | None = None
    """The GGUF file or its first shard; None if the weights are not a file here."""


class DescribedDevice(msgspec.Struct, frozen=True):
    """A GPU to size a context for, which need not be here."""

    name: str
    """ggml's name of its buffers, `CUDA0`."""
    backend: str
    """ggml's name of its backend: `CUDA`, `ROCm`, `Vulkan`, `MTL`, `SYCL`."""
    memory_bytes: int
    """Without a tensor split, llama.cpp gives it layers in proportion."""


class Engine(Protocol):
    """One model at a time, in whatever process or server runs it."""

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Load the model and make a context; yield events as they come, and last, exactly once, how it ended.

        If only the setup's n_ctx differs from what is open, a loaded model may stay. An engine that `sizes_dry`
        leaves `reserve_bytes` of each GPU in use free.
        """
        ...

    def estimate_memory(
        self, source: Source, setup: EngineConfig, devices: Sequence[DescribedDevice] = ()
    ) -> Iterator[Event | Ending]:
        """Yield as `open`, but only report the memory it would take; Failed unless the config `sizes_dry`.

        `devices` take the place of the GPUs that are here.
        """
        ...

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Carry out a workload; yield events as they come, and last, exactly once, how it ended."""
        ...

    def unsupported(self, workload: type[Workload]) -> str:
        """Return why this engine cannot carry out such a workload, in one line; empty if it can."""
        ...

    def close(self) -> None:
        """End it and free its memory; may be called twice."""
        ...


class Launch(Protocol):
    def __call__(self, cancel: threading.Event, *, timeout_s: float, hold: threading.Event | None) -> Engine:
        """Start it; setting `cancel` ends its current work, and while `hold` is set it pauses between two steps."""
        ...


class EngineModule(Protocol):
    CONFIG: type[EngineConfig]
    launch: Launch


def engine_module(name: str) -> EngineModule:
    """Return the module of an engine. Raises StoreError for one that this ggbench does not have."""
    found: EngineModule = load_plugin("ggbench.engines", name, "engine", "engine")
    return found


def config_type(engine: str) -> type[EngineConfig]:
    return engine_module(engine).CONFIG


def launch_engine(
    config: EngineConfig,
    cancel: threading.Event | None = None,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    hold: threading.Event | None = None,
) -> Engine:
    return engine_module(config.engine).launch(cancel or threading.Event(), timeout_s=timeout_s, hold=hold)


FLUSH_NS = 50_000_000
"""Samples are sent at most this often, so sending them stays out of the measurement."""
PROMPT = (
    "Explain in simple words how a large language model turns a question into an answer, one token after another, and "
    "why the memory of the machine decides how fast it can go. Begin with the tokens, then the weights, then the cache."
)


class Prefill(Workload, frozen=True, tag="prefill"):
    """Read a prompt `repeat` times, after `warmup` that are not reported. Reports one `PromptRead` each."""

    stage: ClassVar[Stage] = "prefill"

    n_prompt: int
    repeat: int = 1
    warmup: int = 0


class Decode(Workload, frozen=True, tag="decode"):
    """Clear the cache, read a prompt, then time `n_gen` tokens. Reports a `PromptRead` and any number of `Steps`."""

    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int


class BatchedDecode(Workload, frozen=True, tag="batched_decode"):
    """Clear the cache, read a separate prompt for each of `n_seqs` sequences, then time `n_gen` steps of all of them.

    As in llama-batched-bench no prompt is shared and the decoded tokens are random, so each sequence goes its own way,
    as do the experts that it asks for, and nothing ends a generation. The context needs `n_seq_max` of at least
    `n_seqs`, and room for `n_seqs` x (n_prompt + n_gen) tokens. Reports any number of `ReadingPrompts`, a `PromptRead`,
    and any number of `Steps`, whose positions are those of one sequence.
    """

    stage: ClassVar[Stage] = "decode"

    n_prompt: int
    n_gen: int
    n_seqs: int

    @property
    def n_outputs(self) -> int:
        return self.n_seqs


class DecodeAtDepth(Workload, frozen=True, tag="decode_at_depth"):
    """Use `n_depth` cells, time `n_gen` single tokens behind them, then a batch of `n_batch`.

    The cells are copies of a few if llama.cpp takes copies: attention costs the same whatever they hold. One more
    token is decoded before, untimed. Reports any number of `Steps`, and a `PromptRead` if there is a batch.
    """

    stage: ClassVar[Stage] = "decode"

    n_depth: int
    n_gen: int
    n_batch: int = 0


class ProveContext(Workload, frozen=True, tag="prove_context"):
    """Decode a full n_ubatch and one more token at the far end of the context. Uses the context up.

    The context has to be for one sequence, since several share its cells out. Reports any
    number of `Proving` and one `ContextProven`.
    """

    stage: ClassVar[Stage] = "decode"


class Tokenize(Workload, frozen=True, tag="tokenize"):
    """Tokenize a text as llama-perplexity does. Reports a `Tokenized`.

    BOS comes first if the model adds one; the name of a special token in the text is read as plain text.
    """

    stage: ClassVar[Stage] = "score"

    text: str


class RowsFile(msgspec.Struct, frozen=True):
    """Rows of a vocabulary in a file that the base writes and the model that is compared with it reads.

    The row of position p of the k-th chunk of a request is `first_row` + k x `rows_per_chunk` + p - `first_position`.
    """

    path: str
    format: Literal["f32", "u16"]
    """float32 log-probabilities, or the levels of a base file of llama-perplexity."""
    first_byte: int
    """Offset of row 0."""
    first_row: int
    rows_per_chunk: int
    first_position: int
    writes: bool


class Score(Workload, frozen=True, tag="score"):
    """Decode positions `start` to `stop` of several chunks of a text at once, and score each that has a target.

    A request with `start` 0 clears the cache; the next one continues where the last stopped. The context needs
    `n_seq_max` of at least the number of chunks, and `n_outputs_max` of the positions scored. Reports a `Scored`.
    """

    stage: ClassVar[Stage] = "score"

    chunks: tuple[tuple[int, ...], ...]
    """The tokens of each whole chunk, with BOS first if the model adds one."""
    targets: tuple[tuple[int, ...], ...]
    """For each chunk, the true next token of each position from `start` on; empty if none is scored."""
    start: int
    stop: int
    threads: int
    """Threads that score the rows; numpy computes outside Python's lock."""
    rows: RowsFile | None = None

    @property
    def n_outputs(self) -> int:
        return len(self.chunks) * len(self.targets[0])


AnyWorkload = Prefill | Decode | DecodeAtDepth | BatchedDecode | ProveContext | Tokenize | Score


@contextlib.contextmanager
def without_gc() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
