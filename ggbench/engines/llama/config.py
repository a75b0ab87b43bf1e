"""How llama.cpp loads a model and creates its context."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from msgspec.structs import replace

from ggbench.engines.contract import (
    CRASH_HINT,
    BatchAtDepth,
    BatchedDecode,
    Decode,
    DecodeAtDepth,
    DescribedDevice,
    EngineConfig,
    EstimateMemory,
    Prefill,
    ProveContext,
    Request,
    Score,
    Speculate,
    TakeTurn,
    Tokenize,
    Workload,
    check_given,
)
from ggbench.engines.llama.defaults import DRAFT_TOKENS
from ggbench.errors import TESTED_BINDING, UsageError
from ggbench.fields import SIZE, SLOTS, TOKENS, FieldKind, Option, joined
from ggbench.record import Record
from ggbench.text import in_words, shorten
from ggbench.units import KV_CELLS, parse_tokens

FlashAttn = Literal["auto", "on", "off"]
SplitMode = Literal["none", "layer", "row", "tensor"]

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Cache types accepted by llama.cpp's own tools."""

MAX_THREADS = 512
"""GGML_MAX_N_THREADS of ggml.h."""

LARGEST_N_CTX = (1 << 31) - KV_CELLS
"""Positions are signed 32-bit integers in llama.cpp; anything larger would be truncated silently."""

UNQUANTIZED = frozenset(KV_TYPES[:3])

DEFAULT_PORT = 50052
MAX_SERVERS = 16
"""GGML_RPC_MAX_SERVERS of ggml-rpc.h."""

_SERVER = re.compile(r"(?P<host>[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?)(?::(?P<port>\d{1,5}))?")

_OF_THE_LOAD = (
    "n_gpu_layers", "main_gpu", "devices", "tensor_split", "rpc_servers", "split_mode", "cpu_moe", "n_cpu_moe",
    "override_tensor", "mmap", "mlock", "mtp", "memory_limit_bytes",
)  # fmt: skip
"""Fields that llama.cpp takes when loading the model; the others are for the context."""
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""`LLM_FFN_EXPS_REGEX` of llama.cpp's common.h."""

_PLACEMENT = (
    "n_gpu_layers", "main_gpu", "devices", "tensor_split", "split_mode", "cpu_moe", "n_cpu_moe", "override_tensor",
    "kv_offload",
)  # fmt: skip
"""Fields that determine which parts of a model go to a GPU."""
_FAILURE_HINTS = {
    "has no attribute": f"this llama-cpp-python lacks what ggbench calls; pip install {TESTED_BINDING}",
    "which the options need": f"omit the option, or pip install {TESTED_BINDING}",
    "--timeout": "",
    "no output from": "use a longer --timeout",
    "CUDA error": "the driver may be too old for this build of llama.cpp, or the build may not support this GPU",
    "was killed by": CRASH_HINT,
    "ended with exit status": CRASH_HINT,
    "quantized V cache": "use --flash-attn on, or --type-v f16, which works without flash attention",
    "requires flash_attn": "--flash-attn on",
    "no flash attention kernel": "use --flash-attn auto with --type-v f16, or another backend",
    "support split buffers": "use --split-mode layer: llama.cpp no longer splits by rows on CUDA and ROCm",
    "does not support different K": "use one type for both caches, e.g. --type-k q8_0 --type-v q8_0",
    "K cache type": "--type-k f16 works for all head widths",
    "V cache type": "--type-v f16 works for all head widths",
    "base logits contain NaN": "save them again with llama-perplexity",
    "logits contain NaN": "the file may be damaged: download it again, or measure another quant",
    "only on Linux": "omit --memory-limit; ggbench plan computes without allocating",
    "RPC server": "start ggml-rpc-server of the same llama.cpp there, and no other client",
    "shares": "pass at most one --tensor-split share per device",
    "unknown model architecture": "a newer llama-cpp-python may support it; ggbench inspect shows the header",
    "worker": CRASH_HINT,
    "": "this is llama.cpp's own message; another quant or other options may work",
}
"""Source: `llama_init_from_model` in llama-context.cpp, and llama-model.cpp; the score and tokenize workloads."""


def _shares(text: str) -> tuple[float, ...]:
    try:
        shares = tuple(float(part) for part in re.split("[,/]+", text)) if text else ()
    except ValueError:
        raise UsageError(f"{text!r} is not a split", "write a share for each GPU, e.g. 3,1") from None
    if any(not 0 <= share < float("inf") for share in shares) or (shares and sum(shares) == 0):
        raise UsageError(f"{text!r} is not a split", "each share must be zero or more, and one above zero")
    return shares


_MOST_STEPS = 10**6
"""Most steps of a search in the name of a tensor: each repetition in a pattern multiplies them by some 30."""


def _overrides(text: str) -> tuple[str, ...]:
    overrides = tuple(part.strip() for part in text.split(","))
    for override in overrides:
        pattern, _, buffer_type = override.rpartition("=")
        if not pattern or not buffer_type:
            hint = r"write PATTERN=BUFFER_TYPE, e.g. '\.ffn_.*_exps\.=CPU'"
            raise UsageError(f"{override!r} is not a tensor override", hint)
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            hint = "escape literal characters, e.g. \\."
            raise UsageError(f"{pattern!r} is not a regular expression: {error}", hint) from None
    n_steps = sum(30 ** len(re.findall(r"(?<!\()[*+?{]", each)) for each in overrides)
    if n_steps > _MOST_STEPS or re.search(r"\)[*+{]", text):
        raise UsageError(
            f"the patterns {shorten(text, 60)!r} take too long to match",
            "repeat no group, and at most three things in a pattern",
        )
    return overrides


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _server(text: str) -> str:
    """Return `HOST:PORT`, by default with llama.cpp's own port. Raises UsageError."""
    match = _SERVER.fullmatch(text.strip())
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        hint = "write HOST:PORT, e.g. 192.168.1.7:50052; llama.cpp's RPC takes names and IPv4 addresses"
        raise UsageError(f"{text.strip()!r} is not the address of an RPC server", hint)
    return f"{match['host'].lower()}:{port}"


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse `HOST:PORT` separated by commas, in the order given. Raises UsageError."""
    servers = tuple(map(_server, text.split(",")))
    twice = next((server for server in servers if servers.count(server) > 1), None)
    if twice is not None:
        raise UsageError(
            f"the RPC server {twice} is named twice", "name each once, even if it has several devices"
        )
    if len(servers) > MAX_SERVERS:
        raise UsageError(
            f"{len(servers)} RPC servers, but llama.cpp takes at most {MAX_SERVERS}", "omit the slowest"
        )
    return servers


_KV_TYPE = FieldKind(metavar="TYPE", choices=KV_TYPES)
_N_CTX = FieldKind(functools.partial(parse_tokens, least=0), metavar="TOKENS")
"""0, as llama-server takes it, is the training context, which only plans know."""
_GPU_LAYERS = FieldKind(int, metavar="N", least=-2)
"""llama-server's `-1` and `-2` are `auto` and `all`."""
_LAYERS = FieldKind(int, metavar="N", least=0)
_INDEX = FieldKind(int, metavar="INDEX", least=0)
_DRAFTED = FieldKind(int, metavar="N", least=1, most=64)
_SHARES = FieldKind(_shares, joined, "N,N,...", names_option=False)
_OVERRIDES = FieldKind(_overrides, joined, "PATTERN=BUFFER_TYPE,...", names_option=False)
_NAMES = FieldKind(_names, joined, "NAME,...", names_option=False)
_SERVERS = FieldKind(parse_servers, joined, "HOST:PORT,...", names_option=False)
THREADS = FieldKind(int, metavar="N", least=1, most=MAX_THREADS)


class LlamaConfig(EngineConfig, Record):
    """How llama.cpp loads a model and creates its context; names are llama.cpp's own."""

    engine = "llama"
    program = "llama.cpp"
    failure_hints: ClassVar[Mapping[str, str]] = _FAILURE_HINTS
    runs: ClassVar[tuple[type[Workload], ...]] = (
        Prefill, Decode, TakeTurn, BatchedDecode, DecodeAtDepth, BatchAtDepth, Speculate, ProveContext,
        Tokenize, Score, EstimateMemory,
    )  # fmt: skip
    alternative = "use --engine llama-server"

    n_ctx: Annotated[
        int | None,
        Option("-c", "Context length, e.g. 16k or 16,384. Default: just enough for the run.", _N_CTX, "model"),
    ] = None
    """None lets the experiment use just enough for its run."""
    n_batch: Annotated[
        int, Option("-b", "Logical batch size: tokens passed to llama.cpp at once.", TOKENS, "rare")
    ] = 2048
    n_ubatch: Annotated[int, Option("-ub", "Physical batch size: tokens computed at once.", TOKENS, "rare")] = (
        512
    )
    type_k: Annotated[str, Option("-ctk", "Data type of the K cache, e.g. q8_0.", _KV_TYPE, "model")] = "f16"
    type_v: Annotated[
        str,
        Option("-ctv", "Data type of the V cache. A quantized one needs flash attention.", _KV_TYPE, "model"),
    ] = "f16"
    flash_attn: Annotated[
        FlashAttn, Option("-fa", "Use flash attention, which shrinks the compute buffer.", heading="rare")
    ] = "auto"
    n_gpu_layers: Annotated[
        int,
        Option("-ngl", "Number of layers to put on the GPU. Default: all.", _GPU_LAYERS, "memory", shown=""),
    ] = -1
    """Negative means all."""
    main_gpu: Annotated[
        int | None, Option("-mg", "Use only this GPU. Implies -sm none. Default: all GPUs.", _INDEX, "rare")
    ] = None
    """None spreads the model over all, as llama.cpp does."""
    devices: Annotated[
        tuple[str, ...],
        Option("-dev", "Use only these GPUs, by llama.cpp's names, e.g. CUDA0,CUDA2.", _NAMES, "rare"),
    ] = ()
    """Empty for all."""
    tensor_split: Annotated[
        tuple[float, ...],
        Option(
            "-ts",
            "Proportion of the model for each GPU or RPC device, e.g. 3,1. Default: llama.cpp's choice.",
            _SHARES,
            "rare",
        ),
    ] = ()
    """RPC servers come first; empty for llama.cpp's choice."""
    rpc_servers: Annotated[
        tuple[str, ...],
        Option(
            "",
            "Use these RPC servers' devices too, e.g. 192.168.1.7:50052, where ggml-rpc-server runs.",
            _SERVERS,
            "rare",
        ),
    ] = ()
    """`HOST:PORT` each; their devices come before the GPUs of this machine."""
    split_mode: Annotated[
        SplitMode, Option("-sm", "How to split the model across several GPUs.", heading="rare")
    ] = "layer"
    """`none` if `main_gpu` is given."""
    cpu_moe: Annotated[
        bool, Option("-cmoe", "Keep the expert weights of all layers in main memory.", heading="rare")
    ] = False
    n_cpu_moe: Annotated[
        int,
        Option(
            "-ncmoe",
            "Experts of N layers to keep off the GPU. Of the first N layers; they stay in main memory.",
            _LAYERS,
            "memory",
            shown="",
        ),
    ] = 0
    override_tensor: Annotated[
        tuple[str, ...],
        Option(
            "-ot",
            "Place tensors whose names match a regex in a buffer type, e.g. '\\.ffn_up=CPU'.",
            _OVERRIDES,
            "rare",
            is_repeated=True,
        ),
    ] = ()
    threads: Annotated[
        int | None, Option("-t", "CPU threads for decoding. Default: one per core.", THREADS, "model")
    ] = None
    threads_batch: Annotated[
        int | None,
        Option("-tb", "CPU threads for prompts and batches. Default: as --threads.", THREADS, "rare"),
    ] = None
    mmap: Annotated[bool, Option("", "Read the file into memory instead of mapping it.", heading="rare")] = True
    """Map the file instead of reading it; a memory limit of main memory turns it off."""
    mlock: Annotated[
        bool, Option("", "Lock the model in main memory, to prevent swapping.", heading="rare")
    ] = False
    kv_offload: Annotated[
        bool, Option("-nkvo", "Keep the KV cache in main memory, not on the GPU.", heading="rare")
    ] = True
    """Keep the KV cache on the GPU with the layers that use it."""
    swa_full: Annotated[
        bool, Option("", "Cache the whole context, also in sliding-window layers.", heading="rare")
    ] = False
    """llama-server's default is off."""
    n_seq_max: Annotated[
        int,
        Option("-np --parallel", "Slots, each with an equal part of the context.", SLOTS, "model", shown=""),
    ] = 1
    """Sequences that a context can hold; without `kv_unified` n_ctx is shared out among them."""
    kv_unified: Annotated[
        bool,
        Option(
            "-kvu",
            "Let all slots share one KV cache, so that one of them can take the whole context.",
            heading="rare",
        ),
    ] = False
    mtp: Annotated[
        bool,
        Option(
            "",
            "Draft with the model's own MTP layers, as llama-server does with --spec-type draft-mtp.",
            heading="rare",
        ),
    ] = False
    """If off, llama.cpp does not load them."""
    spec_draft_n_max: Annotated[
        int, Option("", "Most tokens to draft at a time, with --draft or --mtp.", _DRAFTED, "rare")
    ] = DRAFT_TOKENS
    """The target has an output for each and, with `mtp`, a copy of each recurrent state."""
    type_k_draft: Annotated[
        str, Option("-ctkd", "Data type of the K cache that drafts, with --draft or --mtp.", _KV_TYPE, "rare")
    ] = "f16"
    type_v_draft: Annotated[str, Option("-ctvd", "Data type of the V cache that drafts.", _KV_TYPE, "rare")] = (
        "f16"
    )
    ctx_type: Literal["default", "mtp"] = "default"
    """`mtp` for the second context, which runs only the MTP layers."""
    n_outputs_max: int | None = None
    """Maximum number of tokens per batch whose logits are computed; None means one per sequence, as in llama-server."""
    memory_limit_bytes: Annotated[
        int | None, Option("", "Emulate a machine with less memory, e.g. 24GiB.", SIZE, "memory")
    ] = None
    """The limit is for model and context together; None for no limit."""

    @property
    def may_use_gpu(self) -> bool:
        return self.n_gpu_layers != 0

    def used_gpus(self, names: Sequence[str]) -> list[str]:
        """Return the `devices`, in any case, and of them the main GPU. Source: `llama_prepare_model_devices`."""
        wanted = [each.lower() for each in self.devices]
        if unknown := set(wanted) - {each.lower() for each in names}:
            raise UsageError(f"there is no GPU {min(unknown)}", f"GPUs: {in_words(names or ['none'])}")
        chosen = [each for each in names if not wanted or each.lower() in wanted]
        return super().used_gpus(chosen)[: 1 if self.split_mode == "none" else None]

    @property
    def load_mode(self) -> str:
        """llama.cpp's `--load-mode`: `mmap`, `mlock`, both joined by a +, or `none`."""
        return "+".join(name for name in ("mmap", "mlock") if getattr(self, name)) or "none"

    @property
    def bench_fields(self) -> dict[str, str | int | float | bool | None]:
        overrides = [f"{pattern}={device}" for pattern, device in self.tensor_overrides] if self.cpu_moe else []
        named_alike = ("n_batch", "n_ubatch", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "load_mode")
        return {name: getattr(self, name) for name in named_alike} | {
            "n_threads": self.threads,
            "devices": "/".join(self.devices) or "auto",
            "split_mode": "none" if self.main_gpu is not None else self.split_mode,
            "main_gpu": self.main_gpu or 0,
            "no_kv_offload": not self.kv_offload,
            "flash_attn": {"auto": -1, "off": 0, "on": 1}[self.flash_attn],
            "tensor_split": "/".join(f"{share:.2f}" for share in self.tensor_split) or "0.00",
            "tensor_buft_overrides": ";".join(overrides or self.override_tensor) or "none",
        }

    def speed_part(self, threads: int, n_layer: int | None, *, has_gpu: bool) -> Self:
        """Return the parts that affect the speed of a model of `n_layer` layers, with `threads` unless they name some:
        not the context length, MTP layers that draft, the source of its memory or, without a GPU, the GPU options.
        """
        threads = self.threads or threads
        batch = self.threads_batch or threads
        decisive = replace(
            self.as_asked().undrafted(),
            mmap=True,
            mlock=False,
            memory_limit_bytes=None,
            threads=threads,
            threads_batch=batch,
        )
        if not has_gpu and not self.rpc_servers:
            return decisive.without_placement()
        is_all = n_layer is not None and self.n_gpu_layers > n_layer
        return replace(decisive, n_gpu_layers=-1) if is_all or self.n_gpu_layers < 0 else decisive

    def undrafted(self) -> Self:
        """Return the setup without MTP layers that draft, and without what is set for a draft."""
        return replace(self, mtp=False, type_k_draft="f16", type_v_draft="f16", spec_draft_n_max=DRAFT_TOKENS)

    def of_target(self) -> Self:
        """Return the setup of a context for which another one drafts, with an output for each drafted token."""
        n_outputs = min(self.n_batch, self.n_seq_max * (1 + self.spec_draft_n_max))
        return replace(self, n_outputs_max=max(n_outputs, self.n_outputs_max or 0))

    def for_draft(self) -> Self:
        """Return the setup of the context that drafts: that of the MTP layers with `mtp`, else of a draft model.

        `-ngl 0` keeps a draft model in main memory too, as --n-gpu-layers-draft 0 does. Source:
        `common_base_params_to_speculative` and `common_speculative_init_result` in llama.cpp's speculative.cpp.
        """
        drafts = replace(self, type_k=self.type_k_draft, type_v=self.type_v_draft, n_outputs_max=None)
        if self.mtp:
            return replace(drafts, ctx_type="mtp")
        n_gpu_layers = 0 if self.n_gpu_layers == 0 else -1
        return replace(drafts, n_gpu_layers=n_gpu_layers, cpu_moe=False, n_cpu_moe=0, override_tensor=())

    def without_placement(self) -> Self:
        same = type(self)()
        return replace(self, **{name: getattr(same, name) for name in _PLACEMENT})

    def less_memory(self, *, has_gpu: bool, has_context: bool) -> str:
        smaller = ["a smaller quant"]
        if self.n_gpu_layers and has_gpu:
            smaller.append("fewer layers on the GPU (-ngl)")
        if has_context and {self.type_k, self.type_v} & UNQUANTIZED:
            needed = " --flash-attn on" if self.flash_attn == "off" else ""
            smaller.append(f"--type-k q8_0 --type-v q8_0{needed}")
        return f"{' or '.join(smaller)} needs less"

    def check(self) -> None:
        """Raise UsageError for a context that llama.cpp enlarges, or a V cache that it refuses once it has loaded.

        Source: `llama_init_from_model` in llama-context.cpp; with `auto` it switches flash attention on.
        """
        check_padding(self.n_ctx, self.n_streams)
        for option, type_v in (("--type-v", self.type_v), ("--type-v-draft", self.type_v_draft)):
            if self.flash_attn == "off" and type_v not in UNQUANTIZED:
                raise UsageError(
                    f"a V cache of {type_v} needs flash attention, which is off",
                    f"use --flash-attn on, or {option} f16",
                )

    def check_program(self) -> None:
        """Raise for RPC servers that llama.cpp cannot use, like `offload_devices_with`."""
        if self.rpc_servers:
            from ggbench.engines.llama.rpc import offload_devices_with

            offload_devices_with(self.rpc_servers)

    def check_holds(self, n_tokens: int) -> None:
        check_given(self.n_ctx, n_tokens)
        n_ctx = self.n_ctx or whole_steps(n_tokens)
        if n_ctx > LARGEST_N_CTX:
            raise UsageError(
                f"this run needs an n_ctx of {n_ctx:,}, but llama.cpp's maximum is {LARGEST_N_CTX:,}",
                "measure fewer tokens" if self.n_ctx is None else "lower --n-ctx",
            )

    def holding(self, n_tokens: int) -> Self:
        return replace(self, n_ctx=self.n_ctx or whole_steps(n_tokens))

    def as_asked(self) -> Self:
        return replace(self, n_ctx=None, n_seq_max=1, kv_unified=False, n_outputs_max=None)

    def with_threads(self, threads: int) -> Self:
        return replace(self, threads=self.threads or threads)

    def with_context(self, n_tokens: int | None, n_seqs: int | None = None) -> Self:
        n_ctx = None if n_tokens is None else (n_seqs or 1) * whole_steps(n_tokens)
        return replace(self, n_ctx=n_ctx, n_seq_max=n_seqs or self.n_seq_max)

    def held(self, limit_bytes: int | None, *, on_gpu: bool) -> Self:
        return replace(self, memory_limit_bytes=limit_bytes)

    @property
    def n_streams(self) -> int:
        return 1 if self.kv_unified else self.n_seq_max

    @property
    def load_part(self) -> Self:
        """The setup with the context's fields at their defaults, equal for setups that load the model the same way."""
        return replace(type(self)(), **{name: getattr(self, name) for name in _OF_THE_LOAD})

    @property
    def places_tensors(self) -> bool:
        """Whether it says what is on a GPU, so that some of the model may be in main memory."""
        return self.n_gpu_layers >= 0 or bool(self.tensor_overrides) or not self.kv_offload

    @property
    def tensor_overrides(self) -> tuple[tuple[str, str], ...]:
        """Pattern and buffer type of every tensor override, in llama.cpp's order: the first match applies.

        The layers of experts share a pattern: llama.cpp compiles each pattern again for each tensor.
        """
        given = [text.rpartition("=") for text in self.override_tensor]
        overrides = [(pattern, device) for pattern, _, device in given]
        if self.cpu_moe:
            overrides.append((EXPERTS, "CPU"))
        elif self.n_cpu_moe:
            layers = "|".join(map(str, range(self.n_cpu_moe)))
            overrides.append((rf"blk\.({layers}){EXPERTS}", "CPU"))
        return tuple(overrides)


def check_padding(n_ctx: int | None, n_streams: int = 1) -> None:
    """Raise UsageError for a context of less than llama.cpp's padding for each slot."""
    least = KV_CELLS * n_streams
    if n_ctx is not None and n_ctx < least:
        raise UsageError(f"llama.cpp makes an n_ctx of {n_ctx} one of {least}", f"use -c {least} or more")


def whole_steps(n_tokens: int) -> int:
    """Return the smallest n_ctx for `n_tokens`, a multiple of llama.cpp's padding."""
    return -(-n_tokens // KV_CELLS) * KV_CELLS


class LoadModel(Request, tag="load_model"):
    """Load a GGUF, replacing the loaded model. Answered by `Loaded`."""

    stage = "load"

    path: str
    setup: LlamaConfig
    """The memory limit covers model and contexts, in addition to the worker's own memory before the load; with GPUs in
    use, it applies to each."""
    reserve_bytes: int = 0
    """Memory to leave free on each GPU in use."""
    dry: bool = False
    """Read only the header and allocate nothing; contexts only report their size. The file may be sparse."""
    n_threads: int = 0
    """CPU threads for computing, to start before a memory limit is set."""
    described: tuple[DescribedDevice, ...] = ()
    """Described devices for a dry load; empty to use this machine's."""
    draft: str = ""
    """Path of a draft model to load as well, which a worker does once; empty for none."""


class MakeContext(Request, tag="make_context"):
    """Create a context, replacing the last one. Answered by `Opened`."""

    stage = "context"

    setup: LlamaConfig
    """Must have `n_ctx` and `threads`."""
    draft: LlamaConfig | None = None
    """Setup of a second context, of the loaded draft model or the MTP layers, with the n_ctx of the first."""


LlamaRequest = LoadModel | MakeContext
