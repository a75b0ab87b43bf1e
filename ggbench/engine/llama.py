"""The only user of llama_cpp in the engine: load, make a context, and time what it does.

Uses llama.cpp's C functions and not the `Llama` class, whose defaults differ from llama-bench's and which points the
process's stdout and stderr elsewhere while it loads. Nothing but the call and the clock is inside a timed region.
"""

from __future__ import annotations

import codecs
import ctypes
import random
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llama_cpp
from llama_cpp import llama_cpp as lib

from ggbench.engine.memory_limit import beside_the_limit
from ggbench.engine.protocol import Fill, LoadModel, MakeContext, Stage
from ggbench.errors import UnknownName

FLUSH_NS = 50_000_000
"""Samples go out at most this often, so that telling of them stays out of the measurement."""

_PROMPT = (
    "Explain in simple words how a large language model turns a question into an answer, one token after another, and "
    "why the memory of the machine decides how fast it can go. Begin with the tokens, then the weights, then the cache."
)
_FLASH_ATTN = {
    "auto": lib.LLAMA_FLASH_ATTN_TYPE_AUTO,
    "on": lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    "off": lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}
_NO_CELL_LEFT = 1
"""What llama_decode returns where it finds no free cell for a batch."""
_COPY = 1
"""The sequence that copied cells arrive as."""
_COPIED_CELLS, _COPIES = 32, 1024
"""Cells that are copied at once at least, and copies at most: each costs a walk over all cells."""
_MMAP_SLACK = 1 << 16
"""For what malloc adds to a block, and a page at its end."""
_GGML_LOG_LEVEL_DEBUG = 1
_GGML_LOG_LEVEL_CONT = 5


class LlamaRefused(Exception):
    """llama.cpp returned a failure from a call; its log has the reason."""

    def __init__(self, stage: Stage, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class Llama:
    """One model and at most one context."""

    def __init__(self, on_log: Callable[[int, str], None]) -> None:
        self._on_log = on_log
        self._pending = ""
        self._pending_level = 2
        self._log_callback = lib.llama_log_callback(self._receive_log)  # ctypes frees it when nothing refers to it
        lib.llama_log_set(self._log_callback, ctypes.c_void_p(0))
        lib.llama_backend_init()
        self._model: Any = None
        self._context: Any = None
        self._sampler: Any = lib.llama_sampler_init_greedy()

    @property
    def versions(self) -> tuple[str, str, str]:
        """llama-cpp-python's version, llama.cpp's, and its system info."""
        return (
            str(llama_cpp.__version__),
            lib.llama_version().decode(errors="replace"),
            lib.llama_print_system_info().decode(errors="replace").strip(),
        )

    def load(self, request: LoadModel, on_progress: Callable[[float], None]) -> None:
        """Load a model in place of the one there is. Raises LlamaRefused."""
        self.free_context()
        if self._model is not None:
            lib.llama_model_free(self._model)
            self._model = None
        params = lib.llama_model_default_params()
        params.n_gpu_layers = request.n_gpu_layers
        if request.main_gpu is not None:
            params.split_mode, params.main_gpu = lib.LLAMA_SPLIT_MODE_NONE, request.main_gpu
        if request.tensor_split:
            n_devices = lib.llama_max_devices()
            if len(request.tensor_split) > n_devices:
                raise LlamaRefused("load", f"{len(request.tensor_split)} shares, but llama.cpp takes {n_devices}")
            shares = (ctypes.c_float * n_devices)(*request.tensor_split)
            params.tensor_split = shares
        if not request.n_gpu_layers and (request.dry or request.memory_limit_bytes is not None):
            # With no layer on a GPU llama.cpp still computes large batches there. A plan for main memory does not count
            # on that, and a limit of it leaves a GPU's driver no address space.
            no_devices = (ctypes.c_void_p * 1)(None)
            params.devices = ctypes.addressof(no_devices)
        if request.memory_limit_bytes is not None:
            # A mapped file takes address space beside the copies that are made of it, so a limit would count it twice.
            params.load_mode = lib.LLAMA_LOAD_MODE_NONE
        if request.dry:
            params.no_alloc = True
            params.load_mode = lib.LLAMA_LOAD_MODE_NONE  # nothing is mapped either
        progress = lib.llama_progress_callback(_progress_callback(on_progress))
        params.progress_callback = progress
        self._model = lib.llama_model_load_from_file(str(Path(request.path)).encode(), params)
        if not self._model:
            self._model = None
            raise LlamaRefused("load", "llama.cpp could not load the model")

    @property
    def model_facts(self) -> tuple[int, int, int, int]:
        """Parameters, bytes of all tensors, training context and vocabulary of the loaded model."""
        vocab = lib.llama_model_get_vocab(self._model)
        return (
            lib.llama_model_n_params(self._model),
            lib.llama_model_size(self._model),
            lib.llama_model_n_ctx_train(self._model),
            lib.llama_vocab_n_tokens(vocab),
        )

    def make_context(self, request: MakeContext) -> tuple[int, int, int]:
        """Make a context in place of the one there is; returns n_ctx, n_batch and n_ubatch as rounded.

        Raises LlamaRefused.
        """
        if self._model is None:
            raise LlamaRefused("context", "no model is loaded")
        self.free_context()
        params = lib.llama_context_default_params()
        params.n_ctx = request.n_ctx
        params.n_batch = request.n_batch
        params.n_ubatch = request.n_ubatch
        params.n_threads = params.n_threads_batch = request.threads
        params.type_k = _ggml_type_id(request.type_k)
        params.type_v = _ggml_type_id(request.type_v)
        params.flash_attn_type = _FLASH_ATTN[request.flash_attn]
        self._context = lib.llama_init_from_model(self._model, params)
        if not self._context:
            self._context = None
            raise LlamaRefused("context", f"llama.cpp could not make a context of {request.n_ctx} tokens")
        return lib.llama_n_ctx(self._context), lib.llama_n_batch(self._context), lib.llama_n_ubatch(self._context)

    def free_context(self) -> None:
        """Give the context's memory back; nothing happens without one."""
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None

    def prefill(self, n_prompt: int) -> int:
        """Nanoseconds to read a prompt into an empty cache, logits of the last token included. Raises LlamaRefused."""
        context = self._require_context("prefill")
        lib.llama_memory_clear(lib.llama_get_memory(context), True)
        lib.llama_synchronize(context)
        tokens = self._prompt_tokens(n_prompt)
        n_batch = lib.llama_n_batch(context)
        batches = []
        for start in range(0, n_prompt, n_batch):
            first = ctypes.cast(ctypes.byref(tokens, start * ctypes.sizeof(lib.llama_token)), lib.llama_token_p)
            batches.append(lib.llama_batch_get_one(first, min(n_batch, n_prompt - start)))
        started = time.perf_counter_ns()
        for batch in batches:
            status = lib.llama_decode(context, batch)
            if status:
                raise LlamaRefused("prefill", f"llama_decode returned {status} for a prompt of {n_prompt} tokens")
        lib.llama_synchronize(context)
        return time.perf_counter_ns() - started

    def decode(self, n_gen: int, on_samples: Callable[[int, list[int], list[int], str], None]) -> None:
        """Decode after a prefill, greedily and past any end of generation, timing each step and each sampling.

        `on_samples` gets the index of its first step, nanoseconds of the steps, nanoseconds of the sampler, and text.
        Raises LlamaRefused.
        """
        context = self._require_context("decode")
        llama_decode, llama_synchronize, llama_sampler_sample = (
            lib.llama_decode,
            lib.llama_synchronize,
            lib.llama_sampler_sample,
        )
        clock, sampler = time.perf_counter_ns, self._sampler
        token = (lib.llama_token * 1)(llama_sampler_sample(sampler, context, -1))
        batch = lib.llama_batch_get_one(token, 1)
        step_ns, sample_ns, tokens = (array(code, bytes(size * n_gen)) for code, size in (("q", 8), ("q", 8), ("i", 4)))
        text = _TextStream(self._model)
        sent, sent_at = 0, clock()
        for i in range(n_gen):
            tokens[i] = token[0]
            before = clock()
            status = llama_decode(context, batch)
            llama_synchronize(context)
            decoded = clock()
            if status:
                on_samples(sent, step_ns[sent:i].tolist(), sample_ns[sent:i].tolist(), text.add(tokens[sent:i]))
                raise LlamaRefused("decode", f"llama_decode returned {status} at token {i + 1} of {n_gen}")
            token[0] = llama_sampler_sample(sampler, context, -1)
            sampled = clock()
            step_ns[i] = decoded - before
            sample_ns[i] = sampled - decoded
            if sampled - sent_at > FLUSH_NS or i + 1 == n_gen:
                end = i + 1
                on_samples(sent, step_ns[sent:end].tolist(), sample_ns[sent:end].tolist(), text.add(tokens[sent:end]))
                sent, sent_at = end, clock()

    def prove(self, on_filled: Callable[[float], None]) -> tuple[int, int, int, Fill, bool]:
        """Decode a full n_ubatch and one more token in the last cells of the context, with every cell before them used.

        Returns the tokens of the batch, its nanoseconds, those of the single token, how the cells were filled, and
        whether llama.cpp had no cell left afterwards. Attention runs over as many cells as lie below the last one in
        use, and tokens go into the first free cells whatever their position, so the cells before have to be used. A
        real prompt would cost the square of n_ctx; a few cells are decoded and copied through the state functions
        instead, which leaves the last batch and the last token the work that they have in a real context, and takes
        what llama.cpp keeps of every cell in use. Not shown is what only the batches between would do, and the some
        50 bytes that llama.cpp keeps of every distinct position. Raises LlamaRefused.
        """
        context = self._require_context("decode")
        n_ctx = lib.llama_n_ctx(context)
        n_batch_tokens = min(lib.llama_n_ubatch(context), n_ctx - 2)
        n_before = n_ctx - n_batch_tokens - 1
        fill: Fill = "copied"
        if lib.llama_model_is_recurrent(self._model):
            fill = "none"
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
        elif not self._fill_with_copies(n_before, on_filled):
            fill = "decoded"
            lib.llama_memory_clear(lib.llama_get_memory(context), True)
            step = lib.llama_n_batch(context)
            for start in range(0, n_before, step):
                self._decode_at(start, min(step, n_before - start))
                on_filled(min(start + step, n_before) / n_before)
        batch_ns = self._decode_at(n_before, n_batch_tokens)
        token_ns = self._decode_at(n_ctx - 1, 1)
        full = fill == "none" or self._try_decode_at(n_ctx, 1)[0] == _NO_CELL_LEFT
        return n_batch_tokens, batch_ns, token_ns, fill, full

    def _fill_with_copies(self, n_cells: int, on_filled: Callable[[float], None]) -> bool:
        """Use the first `n_cells` of an empty cache; False where llama.cpp does not take even one copy.

        A copy arrives as a sequence of its own, gives its cells to the first sequence too, and loses them when the next
        one arrives. The last cells' positions come before those of what is decoded next, because llama.cpp asks
        that a sequence goes on where it ended; they also let a cache with a window reuse what has left it.
        """
        context, memory = self._context, lib.llama_get_memory(self._context)
        n_copied = min(lib.llama_n_batch(context), max(_COPIED_CELLS, n_cells // _COPIES))
        n_copies, n_rest = divmod(n_cells - 1, n_copied)
        lib.llama_memory_clear(memory, True)
        if not n_copies:
            self._decode_at(0, n_cells)
            return True
        self._decode_at(0, n_copied)
        size = lib.llama_state_seq_get_size(context, 0)
        with beside_the_limit(size + _MMAP_SLACK):
            state = (ctypes.c_uint8 * size)()
            if lib.llama_state_seq_get_data(context, state, size, 0) != size:
                return False
            lib.llama_memory_clear(memory, True)
            self._decode_at(n_cells - n_rest - 1, n_rest + 1)
            for done in range(n_copies):
                if lib.llama_state_seq_set_data(context, state, size, _COPY) != size:
                    if done:
                        raise LlamaRefused("decode", f"no cells for copy {done + 1} of {n_copies}")
                    return False
                lib.llama_memory_seq_cp(memory, _COPY, 0, -1, -1)
                on_filled((done + 1) / n_copies)
            lib.llama_memory_seq_rm(memory, _COPY, -1, -1)
            del state
        return True

    def _decode_at(self, position: int, n_tokens: int) -> int:
        status, elapsed_ns = self._try_decode_at(position, n_tokens)
        if status:
            raise LlamaRefused("decode", f"llama_decode returned {status} for {n_tokens} tokens at {position}")
        return elapsed_ns

    def _try_decode_at(self, position: int, n_tokens: int) -> tuple[int, int]:
        """llama_decode's status for tokens of the first sequence from that position on, and its nanoseconds."""
        batch = lib.llama_batch_init(n_tokens, 0, 1)
        try:
            batch.n_tokens = n_tokens
            for index, token in enumerate(self._prompt_tokens(n_tokens)):
                batch.token[index], batch.pos[index] = token, position + index
                batch.n_seq_id[index], batch.seq_id[index][0] = 1, 0
                batch.logits[index] = index == n_tokens - 1
            started = time.perf_counter_ns()
            status = lib.llama_decode(self._context, batch)
            lib.llama_synchronize(self._context)
            return int(status), time.perf_counter_ns() - started
        finally:
            lib.llama_batch_free(batch)

    def _require_context(self, stage: Stage) -> Any:  # noqa: ANN401 - ctypes pointers have no useful type
        if self._context is None:
            raise LlamaRefused(stage, "no context is made")
        return self._context

    def _prompt_tokens(self, n_prompt: int) -> ctypes.Array[Any]:
        """The same text for every model, cut or repeated to length; fixed random ids where there is no tokenizer."""
        vocab = lib.llama_model_get_vocab(self._model)
        n_vocab = lib.llama_vocab_n_tokens(vocab)
        if lib.llama_vocab_type(vocab) == lib.LLAMA_VOCAB_TYPE_NONE:
            rng = random.Random(n_vocab)
            ids = [rng.randrange(n_vocab) for _ in range(n_prompt)]
        else:
            text = _PROMPT.encode()
            buffer = (lib.llama_token * (len(text) + 8))()
            count = lib.llama_tokenize(vocab, text, len(text), buffer, len(buffer), True, False)
            if count <= 0:
                raise LlamaRefused("prefill", "the model's tokenizer could not read the prompt")
            ids = [buffer[i % count] for i in range(n_prompt)]
        tokens: ctypes.Array[Any] = (lib.llama_token * n_prompt)(*ids)
        return tokens

    def _receive_log(self, level: int, text: bytes, _: ctypes.c_void_p) -> None:
        """Lines may come in pieces; a piece that continues the last one has a level of its own."""
        if level != _GGML_LOG_LEVEL_CONT:
            self._pending_level = level
        self._pending += text.decode(errors="replace")
        *lines, self._pending = self._pending.split("\n")
        if self._pending_level > _GGML_LOG_LEVEL_DEBUG:
            for line in lines:
                self._on_log(self._pending_level, line)


def _progress_callback(on_progress: Callable[[float], None]) -> Callable[[float, Any], bool]:
    def tell(share: float, _: object) -> bool:
        on_progress(share)
        return True

    return tell


class _TextStream:
    """Tokens to text, where a character may span several tokens."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401 - ctypes pointers have no useful type
        self._vocab = lib.llama_model_get_vocab(model)
        self._silent = lib.llama_vocab_type(self._vocab) == lib.LLAMA_VOCAB_TYPE_NONE
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._piece = ctypes.create_string_buffer(256)

    def add(self, tokens: array[int]) -> str:
        if self._silent:
            return ""
        pieces = []
        for token in tokens:
            size = lib.llama_token_to_piece(self._vocab, token, self._piece, len(self._piece), 0, True)
            pieces.append(self._piece.raw[: max(size, 0)])
        return self._decoder.decode(b"".join(pieces))


def ggml_library() -> Path:
    """The ggml library that llama.cpp runs on, for the functions that llama_cpp does not bind."""
    return next((Path(llama_cpp.__file__).parent / "lib").glob("libggml.*"))


def _ggml_type_id(name: str) -> int:
    """Return the number of a type in the loaded ggml, without an import in the worker. Raises UnknownName."""
    name_of = lib._lib.ggml_type_name
    name_of.restype = ctypes.c_char_p
    ids = {(name_of(type_id) or b"").decode().lower(): type_id for type_id in range(lib.GGML_TYPE_COUNT)}
    if name.lower() not in ids:
        raise UnknownName("tensor type", name, ids)
    return ids[name.lower()]
