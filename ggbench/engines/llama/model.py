"""llama.cpp in the worker: one model and at most one context, through the C functions.

llama-cpp-python's `Llama` class is not used: its defaults differ from llama-server's, and it redirects the process's
stdout and stderr during a load.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ggbench.engines.contract import PROMPT, DescribedDevice, Stage, Workload
from ggbench.engines.llama.build import RPC_HINT, build_flags
from ggbench.engines.llama.c_functions import binding_version, lib, llama_library
from ggbench.engines.llama.config import UNQUANTIZED, LlamaConfig
from ggbench.engines.llama.defaults import CONTEXT, MODEL, Value, set_fields
from ggbench.engines.llama.described_devices import DescribedDevices
from ggbench.engines.llama.ggml_devices import GgmlDevices, NoRpc, add_servers, build_commit
from ggbench.engines.protocol import Refusal
from ggbench.errors import UsageError

_FLASH_ATTN = {"auto": "AUTO", "on": "ENABLED", "off": "DISABLED"}
_GGML_LOG_LEVEL_DEBUG = 1
_GGML_LOG_LEVEL_CONT = 5
_REPORT_EVERY_S = 0.1
_REPORT_PROMPT_NS = 1_000_000_000
"""Rare enough that a message of a few microseconds does not affect the timing."""


class _TensorOverride(ctypes.Structure):
    """llama.h's `llama_model_tensor_buft_override`, which llama_cpp does not bind."""

    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


class LlamaModel:
    def __init__(self, on_log: Callable[[int, str], None], left_bytes: Callable[[], int | None]) -> None:
        """`left_bytes` returns the free part of a memory limit or of the GPUs."""
        self._on_log = on_log
        self.left_bytes = left_bytes
        self._servers: list[str] = []
        self._pending = ""
        self._pending_level = 2
        self._log_callback = lib.llama_log_callback(self._receive_log)  # ctypes frees it when unreferenced
        lib.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self.handle: Any = None
        """llama.cpp's model; None before a load."""
        self._context: Any = None
        self._described: DescribedDevices | None = None
        self._n_outputs_max = 0
        self.draft: LlamaModel | None = None
        """A second model that drafts for this one; None without one."""
        self.sampler: Any = lib.llama_sampler_init_greedy()

    @property
    def versions(self) -> dict[str, str]:
        return {
            "llama_cpp_python": binding_version(),
            "llama_cpp": lib.llama_version().decode(errors="replace"),
            "llama_cpp_commit": build_commit(llama_library()),
            "backends": " ".join(GgmlDevices(llama_library()).backends),
            "build_flags": build_flags(llama_library()),
            "system_info": lib.llama_print_system_info().decode(errors="replace").strip(),
        }

    @property
    def vocab(self) -> Any:  # noqa: ANN401 - ctypes pointers have no useful type
        return lib.llama_model_get_vocab(self.handle)

    @property
    def has_tokenizer(self) -> bool:
        return bool(lib.llama_vocab_type(self.vocab) != lib.LLAMA_VOCAB_TYPE_NONE)

    @property
    def description(self) -> str:
        """llama.cpp's description of the model, as printed by llama-bench: `llama 256M Q4_1`."""
        text = ctypes.create_string_buffer(128)
        lib.llama_model_desc(self.handle, text, len(text))
        return text.value.decode(errors="replace")

    @property
    def architecture(self) -> str:
        """The header's name of it."""
        buffer = ctypes.create_string_buffer(64)
        lib.llama_model_meta_val_str(self.handle, b"general.architecture", buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace")

    @property
    def tensor_bytes(self) -> int:
        return int(lib.llama_model_size(self.handle))

    def add_servers(self, servers: Sequence[str]) -> None:
        """Register the devices of RPC servers, each once. Raises Refusal if llama.cpp was built without RPC.

        llama.cpp aborts the process if one does not answer.
        """
        added = [server for server in servers if server not in self._servers]
        try:
            add_servers(llama_library(), added)
        except NoRpc:
            raise Refusal("load", f"this llama.cpp was built without RPC; {RPC_HINT}") from None
        self._servers.extend(added)

    def load(
        self,
        path: str,
        setup: LlamaConfig,
        devices: GgmlDevices,
        on_progress: Callable[[float], None],
        *,
        dry: bool,
        described: Sequence[DescribedDevice] = (),
    ) -> None:
        """Load a model, replacing the last one; if dry, read only its header. Raises Refusal.

        A dry load is for the `described` devices if there are any.
        """
        self.free_context()
        if self.handle is not None:
            lib.llama_model_free(self.handle)
            self.handle = None
        offloading, buffer_types = devices.offloading, devices.buffer_types
        if described:
            self._described = _describe(devices, described)  # llama.cpp refers to them
            offloading, buffer_types = [*self._described.handles], buffer_types | self._described.buffer_types
        elif setup.devices:
            offloading = chosen_devices(devices, setup)
        wanted = _load_fields(setup, dry=dry)
        if not setup.n_gpu_layers and (dry or setup.memory_limit_bytes is not None):
            # Even without layers on a GPU, llama.cpp computes large batches there. A plan for main memory assumes it
            # does not, and a limit of main memory leaves no address space for a GPU driver.
            wanted["devices"] = _pointers([])
        elif described or setup.devices:
            wanted["devices"] = _pointers(offloading)
        wanted |= _arrays(setup, len(offloading), buffer_types)
        params = _filled("load", lib.llama_model_default_params(), MODEL, wanted)
        params.progress_callback = lib.llama_progress_callback(throttled(on_progress))
        self.handle = lib.llama_model_load_from_file(str(Path(path)).encode(), params)
        if not self.handle:
            self.handle = None
            raise Refusal("load", "llama.cpp could not load the model")

    def make_context(self, setup: LlamaConfig) -> tuple[int, int, int]:
        """Create a context, replacing the last one; return the rounded n_ctx, n_batch and n_ubatch.

        `setup.n_ctx` and `setup.threads` must be set. Raises Refusal.
        """
        if self.handle is None:
            raise Refusal("context", "no model is loaded")
        self.free_context()
        n_outputs_max = setup.n_outputs_max or setup.n_seq_max
        params = _filled(
            "context", lib.llama_context_default_params(), CONTEXT, _context_fields(setup, n_outputs_max)
        )
        if self._described:
            self._described.unsupported.clear()
        self._context = lib.llama_init_from_model(self.handle, params)
        if not self._context:
            self._context = None
            raise Refusal("context", f"llama.cpp could not create a context of {setup.n_ctx} tokens")
        self._check_kernels(setup)
        self._n_outputs_max = n_outputs_max
        return (
            lib.llama_n_ctx(self._context),
            lib.llama_n_batch(self._context),
            lib.llama_n_ubatch(self._context),
        )

    def _check_kernels(self, setup: LlamaConfig) -> None:
        """Raise Refusal if a described device has no kernel for the flash attention that the setup requires.

        llama.cpp would compute it on the CPU, and with `auto` only for a quantized V: else it switches it off.
        """
        is_required = setup.flash_attn == "on" or setup.type_v not in UNQUANTIZED
        if is_required and self._described and "FLASH_ATTN_EXT" in self._described.unsupported:
            self.free_context()
            raise Refusal(
                "context",
                f"no flash attention kernel for these heads and a K of {setup.type_k} and V of {setup.type_v}; "
                "llama.cpp would compute it on the CPU",
            )

    def free_context(self) -> None:
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None

    def context(self, stage: Stage) -> Any:  # noqa: ANN401 - ctypes pointers have no useful type
        """Return llama.cpp's context. Raises Refusal, for that stage, if there is none."""
        if self._context is None:
            raise Refusal(stage, "there is no context")
        return self._context

    def check_outputs(self, workload: Workload) -> None:
        """Raise Refusal for a workload with more outputs than the context has room for: llama.cpp would abort."""
        if self._context is not None and workload.n_outputs > self._n_outputs_max:
            message = f"a batch of {workload.n_outputs} outputs, but the context is for {self._n_outputs_max}"
            raise Refusal(workload.stage, message)

    def clear_cache(self) -> None:
        """Empty the KV cache, its data included."""
        lib.llama_memory_clear(lib.llama_get_memory(self._context), True)

    def keep(self, n_tokens: int) -> int:
        """Cut the cache back to its first `n_tokens`, and return how many of them it has: none if windows or a
        recurrent state have lost what precedes.

        The rule of a window is that of llama-server's `pos_min_thold`.
        """
        memory = lib.llama_get_memory(self.context("prefill"))
        n_cached = lib.llama_memory_seq_pos_max(memory, 0) + 1
        if n_cached <= n_tokens:
            return int(n_cached)
        first = max(0, n_tokens - lib.llama_model_n_swa(self.handle))
        if (
            lib.llama_memory_seq_rm(memory, 0, n_tokens, -1)
            and lib.llama_memory_seq_pos_min(memory, 0) <= first
        ):
            return n_tokens
        self.clear_cache()
        return 0

    def read_prompts(
        self, n_prompt: int, n_seqs: int = 1, on_share: Callable[[float], None] = lambda share: None
    ) -> int:
        """Return the nanoseconds to read a prompt for each sequence into an empty cache, computing its last token's
        logits.

        Each sequence starts one token later in the same text. For a long prompt, `on_share` is called at most once a
        second, with the share of completed batches. Raises Refusal.
        """
        n_batch = lib.llama_n_batch(self.context("prefill"))
        tokens = self.prompt_tokens(n_prompt + n_seqs - 1)
        if n_seqs == 1:
            return self.read(tokens, on_share)
        rows = [
            (tokens[seq + at], at, seq, at == n_prompt - 1) for seq in range(n_seqs) for at in range(n_prompt)
        ]
        with ExitStack() as stack:
            parts = (rows[start : start + n_batch] for start in range(0, len(rows), n_batch))
            return self._read([stack.enter_context(new_batch(part)) for part in parts], on_share)

    def read(
        self,
        tokens: ctypes.Array[Any],
        on_share: Callable[[float], None] = lambda share: None,
        *,
        keeps_cache: bool = False,
    ) -> int:
        """Return the nanoseconds to read one prompt, as `read_prompts` does, or one after what the cache has.

        Raises Refusal.
        """
        n_batch, size = lib.llama_n_batch(self.context("prefill")), ctypes.sizeof(lib.llama_token)
        batches = []
        for start in range(0, len(tokens), n_batch):
            first = ctypes.cast(ctypes.byref(tokens, start * size), lib.llama_token_p)
            batches.append(lib.llama_batch_get_one(first, min(n_batch, len(tokens) - start)))
        return self._read(batches, on_share, keeps_cache=keeps_cache)

    def _read(
        self, batches: Sequence[Any], on_share: Callable[[float], None], *, keeps_cache: bool = False
    ) -> int:
        context = self.context("prefill")
        if not keeps_cache:
            self.clear_cache()
        lib.llama_synchronize(context)
        reported_at = started = time.perf_counter_ns()
        for index, batch in enumerate(batches):
            if time.perf_counter_ns() - reported_at > _REPORT_PROMPT_NS:
                on_share(index / len(batches))
                reported_at = time.perf_counter_ns()
            if status := lib.llama_decode(context, batch):
                raise Refusal("prefill", f"llama_decode returned {status} in batch {index + 1} of a prompt")
        lib.llama_synchronize(context)
        return time.perf_counter_ns() - started

    def tokenize(self, text: str, stage: Stage) -> ctypes.Array[Any]:
        """Return the tokens of a text, with BOS first if the model adds one; names of special tokens are plain text.

        Raises Refusal, for that stage, without a tokenizer.
        """
        vocab, data = self.vocab, text.encode()
        if not self.has_tokenizer:
            raise Refusal(stage, "the model has no tokenizer, so it cannot read a text")
        n_tokens = -lib.llama_tokenize(vocab, data, len(data), None, 0, True, False)
        tokens: ctypes.Array[Any] = (lib.llama_token * max(0, n_tokens))()
        if lib.llama_tokenize(vocab, data, len(data), tokens, n_tokens, True, False) != n_tokens:
            raise Refusal(stage, "the model's tokenizer could not read the text")
        return tokens

    def prompt_tokens(self, n_prompt: int, start: int = 0) -> ctypes.Array[Any]:
        """Return the same text for every model, from `start` on, cut or repeated to length; fixed random ids without a
        tokenizer.
        """
        if self.has_tokenizer:
            text = self.tokenize(PROMPT, "prefill")
            return _array(itertools.islice(itertools.cycle(text), start, n_prompt))
        n_vocab = lib.llama_vocab_n_tokens(self.vocab)
        rng = random.Random(n_vocab)
        return _array([rng.randrange(n_vocab) for _ in range(n_prompt)][start:])

    def _receive_log(self, level: int, text: bytes, _: ctypes.c_void_p) -> None:
        """Collect a line, which may come in pieces; a continuation has its own level."""
        if level != _GGML_LOG_LEVEL_CONT:
            self._pending_level = level
        if self._pending_level == _GGML_LOG_LEVEL_DEBUG:  # thousands of lines per context
            self._pending = ""
            return
        self._pending += text.decode(errors="replace")
        *lines, self._pending = self._pending.split("\n")
        for line in lines:
            self._on_log(self._pending_level, line)


def _array(tokens: Iterable[int]) -> ctypes.Array[Any]:
    ids = tuple(tokens)
    return (lib.llama_token * len(ids))(*ids)  # type: ignore[no-any-return]


@contextmanager
def new_batch(rows: Sequence[tuple[int, int, int, bool]]) -> Iterator[Any]:
    """Yield a batch of tokens, each with position, sequence and whether it needs logits, and free it."""
    batch = lib.llama_batch_init(len(rows), 0, 1)
    batch.n_tokens = len(rows)
    for index, (token, position, seq, has_logits) in enumerate(rows):
        batch.token[index], batch.pos[index], batch.logits[index] = token, position, has_logits
        batch.n_seq_id[index], batch.seq_id[index][0] = 1, seq
    try:
        yield batch
    finally:
        lib.llama_batch_free(batch)


def chosen_devices(devices: GgmlDevices, setup: LlamaConfig) -> list[int]:
    """Return the devices that a setup puts layers on. Raises Refusal for one that is not here."""
    by_name = {devices.name(each): each for each in devices.offloading}
    try:
        return [by_name[name] for name in setup.used_gpus(list(by_name))]
    except UsageError as error:
        raise Refusal("devices", f"{error.message}; {error.hint}") from None


def _load_fields(setup: LlamaConfig, *, dry: bool) -> dict[str, Any]:
    """Return what a setup wants of `llama_model_params`, but for what it points to."""
    split_mode, main_gpu = ("none", setup.main_gpu) if setup.main_gpu is not None else (setup.split_mode, 0)
    wanted = {
        "n_gpu_layers": setup.n_gpu_layers,
        "load_mtp": setup.mtp,
        "split_mode": _number("SPLIT_MODE", split_mode),
        "main_gpu": main_gpu,
        "no_alloc": dry,
    }
    # A mapped file takes address space in addition to copies of it, so a limit would count it twice.
    if setup.memory_limit_bytes is not None:
        setup = replace(setup, mmap=False)
    load_mode = "none" if dry else setup.load_mode  # nothing is mapped dry
    return wanted if load_mode == "mmap" else {**wanted, "load_mode": _number("LOAD_MODE", load_mode)}


def _context_fields(setup: LlamaConfig, n_outputs_max: int) -> dict[str, Any]:
    """Return what a setup wants of `llama_context_params`. Raises Refusal."""
    named_alike = ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "swa_full", "kv_unified")
    wanted = {name: getattr(setup, name) for name in named_alike} | {
        "n_outputs_max": n_outputs_max,
        "n_threads": setup.threads,
        "n_threads_batch": setup.threads_batch or setup.threads,
        "flash_attn_type": _number("FLASH_ATTN_TYPE", _FLASH_ATTN[setup.flash_attn]),
        "type_k": _ggml_type_id(setup.type_k),
        "type_v": _ggml_type_id(setup.type_v),
        "offload_kqv": setup.kv_offload,
    }
    if setup.ctx_type == "mtp":
        wanted["ctx_type"] = _number("CONTEXT_TYPE", "mtp")
    elif setup.mtp:
        wanted["n_rs_seq"] = setup.spec_draft_n_max
    return wanted


def _filled(stage: Stage, params: Any, defaults: Mapping[str, Value], wanted: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Return a structure of llama_cpp's with its fields set. Raises Refusal if one that is wanted is gone."""
    if gone := set_fields(params, defaults, wanted):
        raise Refusal(stage, f"this llama.cpp has no {', '.join(gone)}, which the options need")
    return params


def _number(kind: str, name: str) -> int:
    """Return the number of llama.cpp's enumerator, e.g. `LLAMA_SPLIT_MODE_ROW`."""
    return int(getattr(lib, f"LLAMA_{kind}_{name.upper().replace('+', '_')}"))


def _describe(devices: GgmlDevices, described: Sequence[DescribedDevice]) -> DescribedDevices:
    """Return ggml's devices of that description. Raises Refusal for another version of its private interface."""
    if found := devices.interface_problem:
        raise Refusal("start", f"this llama.cpp cannot plan for a GPU that is not here: it has {found}")
    return DescribedDevices(devices.ggml, described)


def _pointers(addresses: Sequence[int]) -> ctypes.c_void_p:
    """Return a pointer to an array of these and a null pointer, which it keeps alive."""
    return ctypes.cast((ctypes.c_void_p * (len(addresses) + 1))(*addresses, None), ctypes.c_void_p)


def _arrays(setup: LlamaConfig, n_offloading: int, buffer_types: Mapping[str, int]) -> dict[str, Any]:
    """Return pointers to a setup's tensor split and overrides, which they keep alive. Raises Refusal."""
    wanted: dict[str, Any] = {}
    if shares := setup.tensor_split:
        n_devices = lib.llama_max_devices()
        takes = min(n_devices, n_offloading or n_devices)
        if len(shares) > takes:
            raise Refusal("load", f"{len(shares)} shares, but llama.cpp takes at most {takes}")
        array = (ctypes.c_float * n_devices)(*shares)
        wanted["tensor_split"] = ctypes.cast(array, ctypes.POINTER(ctypes.c_float))
    if overrides := setup.tensor_overrides:
        wanted["tensor_buft_overrides"] = ctypes.cast(_overrides(overrides, buffer_types), ctypes.c_void_p)
    return wanted


def _overrides(given: Sequence[tuple[str, str]], known: Mapping[str, int]) -> Any:  # noqa: ANN401 - an array
    """Return llama.cpp's array of tensor overrides, ended by an empty one. Raises Refusal."""
    overrides = (_TensorOverride * (len(given) + 1))()
    for index, (pattern, device) in enumerate(given):
        if device not in known:
            raise Refusal("load", f"no buffer type {device!r} here; known: {', '.join(known)}")
        overrides[index].pattern, overrides[index].buft = pattern.encode(), known[device]
    return overrides


def throttled(report: Callable[[float], None]) -> Callable[..., bool]:
    """Return a progress callback for llama.cpp that reports a share of 0 to 1 at most ten times a second, and 1."""
    reported_at = 0.0

    def report_in_time(share: float, _: object = None) -> bool:
        nonlocal reported_at
        if share >= 1 or time.monotonic() - reported_at > _REPORT_EVERY_S:
            reported_at = time.monotonic()
            report(share)
        return True

    return report_in_time


def _ggml_type_id(name: str) -> int:
    """Return the number of a type in the loaded ggml, without an import in the worker. Raises Refusal."""
    name_of = lib._lib.ggml_type_name
    name_of.restype = ctypes.c_char_p
    for type_id in range(lib.GGML_TYPE_COUNT):
        if (name_of(type_id) or b"").decode().lower() == name.lower():
            return type_id
    raise Refusal("context", f"llama.cpp has no tensor type {name!r}")
