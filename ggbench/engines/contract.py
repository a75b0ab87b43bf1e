"""The contract of engines: an engine opens a model under a setup, runs workloads, and returns how each ended as a
value.

An engine is a folder in `ggbench.engines` whose module `engine` has `CONFIGS`, the kinds of its setups, and a function
`launch`. It imports nothing from experiments, and they never check which engine they have: `unsupported` says which
workloads it cannot run.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, Self

from ggbench.errors import StoreError, Unsupported, UsageError
from ggbench.plugins import load_plugin
from ggbench.record import Record
from ggbench.text import in_words

if TYPE_CHECKING:
    from ggbench.engines.endings import Ending
    from ggbench.engines.events import Event


Stage = Literal["start", "devices", "load", "context", "prefill", "decode", "score"]

DEFAULT_TIMEOUT_S = 600.0
"""Longest time without a message before a worker counts as hung: a long prompt on a slow CPU reports nothing."""


CRASH_HINT = (
    "earlier measurements are kept; try another quant: if it works, download this file again; if it crashes too, "
    "report the crash"
)


class EngineConfig:
    """How an engine loads a model. A stored setup is read as its engine's type."""

    __slots__ = ()
    __struct_fields__: ClassVar[tuple[str, ...]]
    """Names of the settings, from msgspec."""
    engine: ClassVar[str]
    """Its name in the store, and that of the folder in `ggbench.engines` unless `_FOLDERS` has another."""
    program: ClassVar[str]
    """Name of the program that runs the model, for display."""
    runs: ClassVar[tuple[type[Workload], ...]]
    """Workloads that it can run."""
    alternative: ClassVar[str]
    """What to do for a workload that it cannot run."""
    failure_hints: ClassVar[Mapping[str, str]] = {}
    """Hints for a run that failed, crashed or timed out, by words in its reason; the first match counts."""
    in_words: ClassVar[frozenset[str]] = frozenset()
    """Fields set by MODEL, QUANT or --engine of a command line, so they are not options."""
    engine_option: str = ""
    """Value of --engine that selects the engine; empty if MODEL does."""

    n_ctx: int | None = None
    n_batch: int | None = None
    n_ubatch: int | None = None
    n_seq_max: int = 1
    """Sequences that a context can hold."""
    kv_unified: bool = False
    """Whether they share one KV cache."""
    n_gpu_layers: int = -1
    kv_offload: bool = True
    threads: int | None = None
    main_gpu: int | None = None
    devices: tuple[str, ...] = ()
    """GPUs to use, by llama.cpp's names; empty for all."""
    flash_attn: str = ""
    memory_limit_bytes: int | None = None
    base_url: str = ""
    """URL of the server; empty for other engines."""
    rpc_servers: tuple[str, ...] = ()
    mtp: bool = False
    """Whether the model's own MTP layers draft."""

    @classmethod
    def unsupported(cls, workload: type[Workload]) -> str:
        """Return why this engine cannot run such a workload, in one line; empty if it can."""
        return "" if workload in cls.runs else f"{cls.program} cannot {workload.purpose}"

    @classmethod
    def require(cls, *workloads: type[Workload]) -> None:
        """Raise UsageError for the first workload that this engine cannot run."""
        for workload in workloads:
            if reason := cls.unsupported(workload):
                raise UsageError(reason, cls.alternative)

    @property
    def may_use_gpu(self) -> bool:
        return False

    def used_gpus(self, names: Sequence[str]) -> list[str]:
        """Return which of the GPUs with these names, in llama.cpp's order, it uses. Raises UsageError for another."""
        if self.main_gpu is None or not names:
            return list(names)
        if self.main_gpu >= len(names):
            raise UsageError(f"there is no GPU {self.main_gpu}", f"GPUs, counted from 0: {in_words(names)}")
        return [names[self.main_gpu]]

    def listed_gpus(self) -> Mapping[str, int] | None:
        """Return the free bytes of each GPU that the engine's program lists and may use, by llama.cpp's name.

        None if NVML's list applies.
        """
        return None

    @property
    def type_k(self) -> str | None:
        return None

    @property
    def type_v(self) -> str | None:
        return None

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Patterns and buffer types of tensors placed apart from their layers."""
        return ()

    @property
    def bench_fields(self) -> dict[str, str | int | float | bool | None]:
        """The settings of the load in llama-bench's terms; empty for another program than llama.cpp."""
        return {}

    @property
    def n_streams(self) -> int:
        """Parts of the KV cache with the same number of cells."""
        return self.n_seq_max

    @property
    def cache_types(self) -> tuple[str, str] | None:
        return None if self.type_k is None or self.type_v is None else (self.type_k, self.type_v)

    def speed_part(self, threads: int, n_layer: int | None, *, has_gpu: bool) -> Self | None:
        """Return the parts that affect the speed of a model of `n_layer` layers, with `threads` unless they name some.

        None if the engine's runs say nothing about others.
        """
        return None

    def without_placement(self) -> Self:
        return self

    def less_memory(self, *, has_gpu: bool, has_context: bool) -> str:
        """Return advice for using less memory; `has_context` means that the weights fitted."""
        return "a smaller quant needs less"

    def check(self) -> None:
        """Raise UsageError for incompatible options, which an engine would refuse only after loading."""

    def check_program(self) -> None:
        """Raise GgbenchError if the user's program is not the engine's, or refuses the user's options."""

    def check_holds(self, n_tokens: int) -> None:
        """Raise UsageError if the given n_ctx is too small for a run, or the run too long for any context."""

    def holding(self, n_tokens: int) -> Self:
        """Return the setup with its n_ctx or, if it has none, with just enough for this number of tokens."""
        return self

    def longest_slot(self, n_ctx_train: int | None) -> int | None:
        """Return the most tokens of one sequence for a model trained to `n_ctx_train`; None if any number."""
        return None

    def as_asked(self) -> Self:
        """Return the setup without the values set by the kind of run: n_ctx, sequences and outputs."""
        return self

    def drafting(self, spec_type: str, n_draft: int | None = None) -> Self:
        """Return the setup with drafts of this type (llama-server's --spec-type), or without drafts for an empty one.

        Raises UsageError for an engine that cannot draft, or flags of the user's that contradict.
        """
        raise UsageError(f"{self.program} does not answer with drafts", "use --engine llama-server")

    def for_draft(self) -> Self:
        """Return the setup of the context that drafts."""
        return self

    def with_threads(self, threads: int) -> Self:
        return self

    def with_context(self, n_tokens: int | None, n_seqs: int | None = None) -> Self:
        """Return the setup with a context for this many tokens of each of `n_seqs` sequences; None for no context.

        If `n_seqs` is None, the sequences stay as they are and divide the tokens.
        """
        return self

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        """Return the setup with this limit of GPU or main memory; None for no limit.

        Raises UsageError if the engine cannot limit it.
        """
        return self

    @classmethod
    def of(cls, config: EngineConfig) -> Self:
        """Return the config, checked to be this engine's. Raises Unsupported for another engine's."""
        if not isinstance(config, cls):
            raise Unsupported(
                f"this needs {cls.program}, but {config.program} runs the model", "give a GGUF file"
            )
        return config


def check_given(n_ctx: int | None, n_tokens: int) -> None:
    if n_ctx is not None and n_ctx < n_tokens:
        raise UsageError(
            f"n_ctx {n_ctx} is too small for the {n_tokens} tokens of this run",
            "omit --n-ctx to use just enough, or measure fewer tokens",
        )


def check_step(config: EngineConfig, n_seqs: int) -> None:
    """Raise UsageError if a token of each sequence is more than one batch: llama.cpp would abort."""
    if config.n_batch is not None and n_seqs > config.n_batch:
        raise UsageError(
            f"a step of {n_seqs} sequences does not fit into an n_batch of {config.n_batch}",
            f"use --n-batch {n_seqs} or more",
        )


def check_users(config: EngineConfig, n_seqs: int) -> None:
    """Raise UsageError for a batch of one step that is too large, or a cache shared by a single sequence."""
    check_step(config, n_seqs)
    if n_seqs == 1 and config.kv_unified:
        raise UsageError("--kv-unified shares one KV cache among several slots", "add --parallel N, or omit it")


class Request(Record):
    stage: ClassVar[Stage]
    """Name of the stage, if it fails."""


class Workload(Request):
    purpose: ClassVar[str]
    """What an engine does that runs it, as a verb."""

    @property
    def n_outputs(self) -> int:
        """Maximum number of tokens per batch whose logits are needed; the setup's `n_outputs_max` must allow them."""
        return 1


class Source(Record):
    path: Path | None = None
    """The GGUF file or its first shard; None if the weights are not a file here."""
    draft: Path | None = None
    """A draft model to load beside it, with a context of its own; only for llama.cpp."""


class DescribedDevice(Record):
    """A GPU to size a context for, which need not be here."""

    name: str
    """ggml's name of its buffers, `CUDA0`."""
    backend: str
    """ggml's name of its backend: `CUDA`, `ROCm`, `Vulkan`, `MTL`, `SYCL`."""
    memory_bytes: int
    """Without a tensor split, llama.cpp gives it layers in proportion."""


class Engine(Protocol):
    """An engine with one model at a time, in a process or a server."""

    def open(self, source: Source, setup: EngineConfig, *, reserve_bytes: int = 0) -> Iterator[Event | Ending]:
        """Load the model and create a context; yield events as they come, then exactly one ending.

        If only n_ctx differs from the open setup, the model may stay loaded. An engine that runs `EstimateMemory`
        leaves `reserve_bytes` of each GPU in use free.
        """
        ...

    def run(self, workload: Workload) -> Iterator[Event | Ending]:
        """Run a workload that the setup does not call unsupported; yield events as they come, then exactly one
        ending.
        """
        ...

    def close(self) -> None:
        """Stop the engine and free its memory; may be called twice."""
        ...


class Launch(Protocol):
    def __call__(self, cancel: threading.Event, *, timeout_s: float) -> Engine:
        """Start the engine; setting `cancel` stops its current work."""
        ...


class EngineModule(Protocol):
    CONFIGS: Mapping[str, type[EngineConfig]]
    """Its kinds of setups by their `engine`."""
    launch: Launch


_FOLDERS = {"server": "http", "llama_server": "http"}
"""Folders of setups that are not named by them."""


def engine_module(name: str) -> EngineModule:
    """Return the module of the engine for setups of this name. Raises StoreError for an unknown one."""
    found: EngineModule = load_plugin("ggbench.engines", _FOLDERS.get(name, name), "engine", "engine")
    return found


def config_type(engine: str) -> type[EngineConfig]:
    """Return the setups of this name. Raises StoreError for an unknown one."""
    found = engine_module(engine).CONFIGS.get(engine)
    if found is None:
        raise StoreError(f"this ggbench has no engine {engine!r}", "upgrade ggbench to read the run")
    return found


def launch_engine(config: EngineConfig) -> Engine:
    return engine_module(config.engine).launch(threading.Event(), timeout_s=DEFAULT_TIMEOUT_S)


PROMPT = (
    "Explain in simple words how a large language model turns a question into an answer, one token after another, and "
    "why the memory of the machine decides how fast it can go. Begin with the tokens, then the weights, then the cache."
)


class EstimateMemory(Workload):
    """Report what `open` would, without allocating: only the header is read, and the file may be sparse."""

    stage = "context"
    purpose = "size a context without creating it"

    source: Source
    setup: EngineConfig
    devices: tuple[DescribedDevice, ...] = ()
    """They take the place of the GPUs that are here."""


class Prefill(Workload, tag="prefill"):
    """Read a prompt `repeat` times, after `warmup` more. Reports any number of `ReadingPrompts`, the share of all of
    them, and a `PromptRead` for each but the warm-ups.
    """

    stage = "prefill"
    purpose = "read a prompt"

    n_prompt: int
    repeat: int = 1
    warmup: int = 0


class Decode(Workload, tag="decode"):
    """Clear the cache, read a prompt, then time `n_gen` tokens. Reports any number of `ReadingPrompts`, a `PromptRead`,
    and any number of `Steps`.
    """

    stage = "decode"
    purpose = "decode"

    n_prompt: int
    n_gen: int


class TakeTurn(Decode, tag="take_turn"):
    """Decode after a prompt whose first `n_kept` tokens the turn before has left in the cache.

    What the cache has lost of them is read again. The first token of the answer comes with the prompt, and its last is
    not in the cache. Without any kept tokens, a session begins. Reports any number of `ReadingPrompts`, a
    `TurnStarted`, and any number of `Steps`.
    """

    purpose = "keep a transcript in the cache"

    n_kept: int


class BatchedDecode(Workload, tag="batched_decode"):
    """Clear the cache, read a separate prompt for each of `n_seqs` sequences, then time `n_gen` steps of all of them.

    As in llama-batched-bench no prompt is shared and the decoded tokens are random, so each sequence is different, as
    are its experts, and no generation ends early. The context needs `n_seq_max` of at least `n_seqs`, and room for
    `n_seqs` x (n_prompt + n_gen) tokens. Reports any number of `ReadingPrompts`, a `PromptRead`, and any number of
    `Steps`, whose positions are those of one sequence.
    """

    stage = "decode"
    purpose = "decode several sequences at once"

    n_prompt: int
    n_gen: int
    n_seqs: int

    @property
    def n_outputs(self) -> int:
        return self.n_seqs


class DecodeAtDepth(Workload, tag="decode_at_depth"):
    """Fill `n_depth` cells and time `n_gen` single tokens after them.

    The cells are copies of a few if llama.cpp allows that: the cost of attention does not depend on their contents. One
    untimed token is decoded first. Reports any number of `Steps`.
    """

    stage = "decode"
    purpose = "decode at a depth without reading a prompt"

    n_depth: int
    n_gen: int


class BatchAtDepth(DecodeAtDepth, tag="batch_at_depth"):
    """Do the same, then time a batch of `n_batch`, unless it is 0. Reports also a `PromptRead`."""

    purpose = "read a batch at a depth"

    n_batch: int


class Continue(Workload, tag="continue"):
    """Continue a text greedily by `n_gen` tokens, past any end of it. Reports a `Continued`."""

    stage = "decode"
    purpose = "continue a text"

    text: str
    n_gen: int


class Speculate(Workload, tag="speculate"):
    """Fill `n_depth` cells of model and draft, then time single tokens of this one, and steps of speculative decoding.

    A step works like llama-server's: the draft decodes k tokens one by one, each chosen from its logits; the model
    verifies k + 1 tokens in one batch; the draft reads that batch too; both forget it. The verified tokens are not the
    drafted ones but always the same, so that the steps of all k are alike. The source needs a draft. Reports a
    `Speculated` for each pass, after an untimed step. The context needs `n_outputs_max` of the largest k + 1.
    """

    stage = "decode"
    purpose = "time a speculative step"

    n_depth: int
    n_drafted: tuple[int, ...]
    """Values of k, each timed once in a pass."""
    n_single: int
    """Single tokens timed in a pass, after an untimed one."""
    n_passes: int = 1

    @property
    def n_outputs(self) -> int:
        return max(self.n_drafted) + 1


class ProveContext(Workload, tag="prove_context"):
    """Decode a full n_ubatch over all sequences and one more token of each at the end of the context, using it up.

    Reports any number of `Proving` and one `ContextProven`.
    """

    stage = "decode"
    purpose = "fill a context and decode at its end"


class Tokenize(Workload, tag="tokenize"):
    """Tokenize a text as llama-perplexity does. Reports a `Tokenized`.

    BOS comes first if the model adds one; names of special tokens are read as plain text.
    """

    stage = "score"
    purpose = "tokenize a text"

    text: str


class RowsFile(Record):
    """Rows of a vocabulary in a file, written by the base and read by the model compared with it.

    The row of position p of the k-th chunk of a request is `first_row` + k x `rows_per_chunk` + p - `first_position`.
    """

    path: str
    format: Literal["f32", "u16"]
    """float32 log-probabilities, or the levels of a base file of llama-perplexity."""
    first_row: int
    rows_per_chunk: int
    first_position: int
    writes: bool


class Score(Workload, tag="score"):
    """Decode positions `start` to `stop` of several chunks of a text at once, and score each that has a target.

    A request with `start` 0 clears the cache; the next one continues where the last stopped. The context needs
    `n_seq_max` of at least the number of chunks, and `n_outputs_max` of the positions scored. Reports a `Scored`.
    """

    stage = "score"
    purpose = "score the tokens of a text"

    chunks: tuple[tuple[int, ...], ...]
    """The tokens of each complete chunk, with BOS first if the model adds one."""
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


AnyWorkload = (
    Prefill
    | Decode
    | TakeTurn
    | DecodeAtDepth
    | BatchAtDepth
    | Speculate
    | BatchedDecode
    | ProveContext
    | Tokenize
    | Score
)
