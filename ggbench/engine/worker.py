"""The child process: takes requests on stdin, runs llama.cpp, tells events on the pipe whose number is its argument.

A thread waits on stdin so that the process ends at once when the parent does, also while llama.cpp computes.
"""

from __future__ import annotations

import gc
import os
import queue
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from ggbench.engine import protocol
from ggbench.engine.gpu_memory import GpuMemory, LimitFailed
from ggbench.engine.llama import Llama, LlamaRefused, ggml_library
from ggbench.engine.logs import tells_out_of_memory
from ggbench.engine.memory_limit import left_bytes, limit_memory

EXIT_PARENT_GONE = 3
EXIT_BAD_REQUEST = 4


class Worker:
    """Carries out one request after another."""

    def __init__(self, event_fd: int, released: threading.Event) -> None:
        """`released`, while it is not set, holds the next request, and a decode between two of its steps."""
        self._event_fd = event_fd
        self._released = released
        self._write_lock = threading.Lock()
        self._complaints: list[str] = []
        self._errors: list[str] = []
        self._gpus: GpuMemory | None = None
        """None before a load, and where no layer is on a GPU."""
        self._is_limited = False
        self._llama = Llama(self._tell_log)
        llama_cpp_python, llama_cpp, system_info = self._llama.versions
        self._tell(protocol.Ready(os.getpid(), llama_cpp_python, llama_cpp, system_info))

    def carry_out(self, request: protocol.Request) -> None:
        """Answer one request with its events and `Done`, or with `Refused`."""
        self._released.wait()
        self._complaints.clear()
        self._errors.clear()
        try:
            self._dispatch(request)
        except (LlamaRefused, LimitFailed) as refusal:
            stage: protocol.Stage = refusal.stage if isinstance(refusal, LlamaRefused) else "load"
            blame = str(refusal) if isinstance(refusal, LimitFailed) else tells_out_of_memory(self._complaints)
            message = blame or next(iter(self._errors), "") or str(refusal)  # the first names the cause
            self._tell(protocol.Refused(stage, out_of_memory=bool(blame), message=message))
        except MemoryError:
            message = "the worker itself ran out of memory"
            self._tell(protocol.Refused(protocol.STAGES[type(request)], out_of_memory=True, message=message))
        else:
            self._tell(protocol.Done())

    def _dispatch(self, request: protocol.Request) -> None:
        started = time.perf_counter()
        match request:
            case protocol.LoadModel():
                if not self._is_limited:
                    self._gpus = GpuMemory(ggml_library(), request.main_gpu) if request.n_gpu_layers else None
                    self._limit(request)
                self._llama.load(request, self._tell_at_times(protocol.Loading))
                n_params, size_bytes, n_ctx_train, n_vocab = self._llama.model_facts
                seconds = time.perf_counter() - started
                left = self._left_bytes()
                self._tell(protocol.ModelLoaded(seconds, n_params, size_bytes, n_ctx_train, n_vocab, left))
            case protocol.MakeContext():
                n_ctx, n_batch, n_ubatch = self._llama.make_context(request)
                seconds = time.perf_counter() - started
                self._tell(protocol.ContextMade(seconds, n_ctx, n_batch, n_ubatch, self._left_bytes()))
            case protocol.Prefill():
                for round_number in range(request.warmup + request.repeat):
                    prefill_ns = self._llama.prefill(request.n_prompt)
                    if round_number >= request.warmup:
                        self._tell(protocol.Prefilled(request.n_prompt, prefill_ns))
            case protocol.Decode():
                self._tell(protocol.Prefilled(request.n_prompt, self._llama.prefill(request.n_prompt)))
                self._decode(request)
            case protocol.ProveContext():
                proof = self._llama.prove(self._tell_at_times(protocol.Filling))
                seconds = time.perf_counter() - started
                self._tell(protocol.ContextProven(seconds, *proof, self._left_bytes()))

    def _limit(self, request: protocol.LoadModel) -> None:
        if self._gpus:
            self._gpus.shrink(request.memory_limit_bytes, request.reserve_bytes)
        elif request.memory_limit_bytes is not None:
            limit_memory(request.memory_limit_bytes)
        self._is_limited = request.memory_limit_bytes is not None or request.reserve_bytes > 0

    def _left_bytes(self) -> int | None:
        return self._gpus.left_bytes if self._gpus else left_bytes()

    def _decode(self, request: protocol.Decode) -> None:
        def tell(first: int, step_ns: list[int], sample_ns: list[int], text: str) -> None:
            self._tell(protocol.Decoded(request.phase, request.n_prompt + 1 + first, step_ns, sample_ns, text))
            self._released.wait()

        gc.collect()
        gc.disable()
        try:
            self._llama.decode(request.n_gen, tell)
        finally:
            gc.enable()

    def _tell_at_times(self, event: Callable[[float], protocol.Event]) -> Callable[[float], None]:
        told_at = 0.0

        def tell(share: float) -> None:
            nonlocal told_at
            if share >= 1 or time.monotonic() - told_at > 0.1:
                told_at = time.monotonic()
                self._tell(event(share))

        return tell

    def _tell_log(self, level: int, text: str) -> None:
        if level >= protocol.LOG_WARN:
            self._complaints.append(text.strip())
        if level >= protocol.LOG_ERROR and text.strip():
            self._errors.append(text.strip())
        self._tell(protocol.Log(level, text))

    def _tell(self, event: protocol.Event) -> None:
        data = memoryview(protocol.encode(event))
        with self._write_lock:
            while data:
                data = data[os.write(self._event_fd, data) :]


def _read_requests(requests: queue.SimpleQueue[protocol.Request], released: threading.Event) -> None:
    """Runs in a thread of its own; ends the process when the parent's end of the pipe closes."""
    stdin = sys.stdin.buffer
    while line := stdin.readline(protocol.MAX_LINE_BYTES):
        try:
            message = protocol.decode_request(line)
        except msgspec.DecodeError:
            os._exit(EXIT_BAD_REQUEST)
        match message:
            case protocol.Hold():
                released.clear()
            case protocol.Release():
                released.set()
            case _:
                requests.put(message)
    os._exit(EXIT_PARENT_GONE)


def main() -> None:
    """Serve until stdin closes."""
    requests: queue.SimpleQueue[protocol.Request] = queue.SimpleQueue()
    released = threading.Event()
    released.set()
    threading.Thread(target=_read_requests, args=(requests, released), daemon=True).start()
    worker = Worker(int(sys.argv[1]), released)
    while True:
        worker.carry_out(requests.get())


if __name__ == "__main__":
    main()
