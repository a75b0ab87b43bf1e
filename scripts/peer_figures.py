"""What ggbench is compared with: each figure as ggbench measures it, and as llama.cpp's own programs do.

Every value is a time, a size or a count, so that less is better, or both are the same. ggbench runs as a person runs
it, in a process of its own and into a results file that is thrown away. Both sides have the same file, threads, batch
sizes, flash attention and cache types: llama-server's defaults.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from ggbench.engines.contract import Request
from ggbench.engines.endings import Completed, OutOfMemory
from ggbench.engines.events import Allocated, Memory
from ggbench.engines.llama.config import LlamaConfig, LoadModel, MakeContext
from ggbench.engines.llama.ggml_devices import place_of
from ggbench.engines.llama.logs import parse_allocations
from ggbench.engines.process import WorkerProcess
from ggbench.experiments.decode.record import N_PROMPT
from ggbench.experiments.maxctx.measure import EXPERIMENT as MAXCTX
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings
from ggbench.experiments.quality.texts import find_text
from ggbench.machine.host import default_threads
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.session import run_context
from ggbench.units import KV_CELLS, MIB, parse_size
from scripts.peer_programs import Peers, peer_environment, timed
from scripts.peer_table import Row

N_GEN, N_PROMPT_TOKENS, N_CHUNKS, N_CTX = 128, 512, 8, 8192
INPUT, BATCH_GEN, BATCHES = 128, 32, (1, 4)
SEARCHES = (("twin:qwen1.5-0.5b:q4_k_m", "1GiB"), ("twin:qwen1.5-0.5b:q8_0", "2GiB"))
_START_S = 600
PLACES = {name: place_of(name, {}) for name in ("CPU", "CPU_Mapped", "CPU_REPACK")}
_LOG_PREFIX = re.compile(r"^[\d.]+ [A-Z] ")


@dataclass(frozen=True, slots=True)
class Bench:
    """What all figures are measured with."""

    peers: Peers
    file: Path
    base: Path | None
    """Another quant of the same model, for the KL divergence; None leaves it out."""


Values = Mapping[Row, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that both sides measure, in turns."""

    ours: Callable[[Bench], Values]
    theirs: Callable[[Bench], Values]
    rounds: int


def ggbench(*words: object) -> tuple[Any, float]:
    """Run ggbench with --json; returns the document, and the seconds of the whole process. Raises SystemExit."""
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-peers-") as folder:
        command = [sys.executable, "-P", "-m", "ggbench", *words, "--quiet", "--json"]
        text, seconds = timed(command, {"XDG_DATA_HOME": folder})
    return json.loads(text), seconds


def _thread_counts() -> tuple[int, ...]:
    """One for each core, and one core left free for the rest of the machine and ggbench's own process."""
    return tuple(sorted({max(1, default_threads() - 1), default_threads()}))


def _decode_row(threads: int) -> Row:
    count = f"{threads} thread{'s' if threads > 1 else ''}"
    return Row(f"decode {N_GEN} tokens, {count}", "ms/token", "llama-bench tg", 0.98, 1.02)


def _our_decode(bench: Bench) -> Values:
    words = ("decode", bench.file, "-n", N_GEN, "--bandwidth", "20GB/s", "-t")
    return {_decode_row(count): 1e3 / float(ggbench(*words, count)[0]["tok_s"]) for count in _thread_counts()}


def _their_decode(bench: Bench) -> Values:
    words = ("-p", 0, "-n", N_GEN, "-d", N_PROMPT, "-r", 1, "-t")
    return {_decode_row(count): _llama_bench_ms(bench, *words, count) / N_GEN for count in _thread_counts()}


def _llama_bench_ms(bench: Bench, *words: object) -> float:
    """Median of the repetitions of one test."""
    text, _ = bench.peers.run("llama-bench", "-m", bench.file, "-fa", "auto", "-o", "json", *words)
    (row,) = json.loads(text[text.index("[\n") :])
    return float(statistics.median(row["samples_ns"])) / 1e6


_PREFILL = Row(f"prefill {N_PROMPT_TOKENS} tokens", "ms", "llama-bench pp", 0.98, 1.02)


def _our_prefill(bench: Bench) -> Values:
    words = ("prefill", bench.file, "--lengths", N_PROMPT_TOKENS, "-r", 3, "--bandwidth", "20GB/s")
    return {_PREFILL: float(ggbench(*words)[0]["run"]["result"]["prefills"][0]["prefill_ms"])}


def _their_prefill(bench: Bench) -> Values:
    return {_PREFILL: _llama_bench_ms(bench, "-p", N_PROMPT_TOKENS, "-n", 0, "-r", 3, "-t", default_threads())}


def _batch_rows(n_seqs: int) -> tuple[Row, Row]:
    peer = "llama-batched-bench"
    return (
        Row(f"prompts of {INPUT} tokens, batch {n_seqs}", "ms", f"{peer} T_PP", 0.98, 1.02),
        Row(f"decode {BATCH_GEN} steps, batch {n_seqs}", "ms", f"{peer} T_TG", 0.98, 1.02),
    )


def _our_batch(bench: Bench) -> Values:
    words = ("speed", bench.file, "--inputs", INPUT, "-n", BATCH_GEN, "--batch", _commas(BATCHES))
    document, _ = ggbench(*words, "--bandwidth", "20GB/s")
    found = document["run"]["result"]["cases"]
    cases = [(_batch_rows(case["ended"]["case"]["n_seqs"]), case) for case in found]
    return {
        row: case[key]
        for rows, case in cases
        for row, key in zip(rows, ("prefill_ms", "decode_ms"), strict=True)
    }


def _their_batch(bench: Bench) -> Values:
    """llama-batched-bench makes one context for its largest batch, ggbench one for each."""
    cells = max(BATCHES) * -(-(INPUT + BATCH_GEN) // KV_CELLS) * KV_CELLS
    threads = default_threads()
    words: tuple[object, ...] = (
        "-npp",
        INPUT,
        "-ntg",
        BATCH_GEN,
        "-npl",
        _commas(BATCHES),
        "-t",
        threads,
        "-tb",
        threads,
    )
    words += ("-c", cells, "-b", 2048, "-ub", 512, "-fa", "auto", "--output-format", "jsonl")
    text, _ = bench.peers.run("llama-batched-bench", "-m", bench.file, *words)
    found = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    cases = [(_batch_rows(case["pl"]), case) for case in found]
    return {
        row: case[key] * 1e3 for rows, case in cases for row, key in zip(rows, ("t_pp", "t_tg"), strict=True)
    }


def slot_words(n_slots: int, is_unified: bool) -> tuple[object, ...]:
    """Return the options of slots with caches of their own, or one; the same for ggbench and llama-server."""
    return ("-np", n_slots, *(["-kvu"] if is_unified else []))


_USERS = tuple((n, is_unified) for n in (2, 4) for is_unified in (False, True))


def _users_row(n_users: int, is_unified: bool) -> Row:
    cache = " with one KV cache" if is_unified else ""
    return Row(
        f"decode {N_GEN} tokens for {n_users} users{cache}", "ms/step", "llama-batched-bench T_TG", 0.98, 1.02
    )


def _our_users(bench: Bench) -> Values:
    values: dict[Row, float] = {}
    for users in _USERS:
        words = ("decode", bench.file, "-n", N_GEN, "--bandwidth", "20GB/s", "-t", default_threads())
        document, _ = ggbench(*words, *slot_words(*users))
        together, each = float(document["tok_s_together"]), float(document["tok_s"])
        assert abs(together - users[0] * each) < 1e-6 * together, (together, each)
        values[_users_row(*users)] = users[0] * 1e3 / together
    return values


def _their_users(bench: Bench) -> Values:
    values: dict[Row, float] = {}
    threads = default_threads()
    for n_users, is_unified in _USERS:
        cells = n_users * -(-(N_PROMPT + N_GEN) // KV_CELLS) * KV_CELLS
        words: tuple[object, ...] = (
            "-npp",
            N_PROMPT,
            "-ntg",
            N_GEN,
            "-npl",
            n_users,
            "-t",
            threads,
            "-tb",
            threads,
        )
        words += ("-c", cells, "-b", 2048, "-ub", 512, "-fa", "auto", "--output-format", "jsonl")
        words += ("-kvu",) if is_unified else ()
        text, _ = bench.peers.run("llama-batched-bench", "-m", bench.file, *words)
        (case,) = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
        values[_users_row(n_users, is_unified)] = case["t_tg"] * 1e3 / N_GEN
    return values


def _commas(counts: tuple[int, ...]) -> str:
    return ",".join(map(str, counts))


_PPL_S = Row(f"perplexity of {N_CHUNKS} chunks", "s", "llama-perplexity", None, 1.05)
_PPL = Row("the perplexity itself", "", "llama-perplexity", 0.995, 1.005)
_KLD_S = Row(f"KL divergence of {N_CHUNKS} chunks", "s", "llama-perplexity, two passes", None, 1.0)
_KLD = Row("the KL divergence itself", "nats", "llama-perplexity, two passes", 0.98, 1.02)


@contextlib.contextmanager
def _text_file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ggbench-bench-peers-") as folder:
        path = Path(folder) / "text.txt"
        path.write_text(find_text(None)[1], encoding="utf-8")
        yield path


def _our_quality(bench: Bench) -> Values:
    with _text_file() as text:
        words = ("quality", bench.file, "--text", text, "--chunks", N_CHUNKS)
        document, seconds = ggbench(*words, "--base", "none")
        values = {_PPL_S: seconds, _PPL: float(document["ppl"])}
        if bench.base is not None:
            document, seconds = ggbench(*words, "--base", bench.base)
            values |= {_KLD_S: seconds, _KLD: float(document["kld_mean"])}
    return values


def _their_quality(bench: Bench) -> Values:
    with _text_file() as text:
        scored = ("-f", text, "--chunks", N_CHUNKS, "-t", default_threads())
        answer, seconds = bench.peers.run("llama-perplexity", "-m", bench.file, *scored)
        values = {_PPL_S: seconds, _PPL: _number(r"PPL = ([\d.]+)", answer)}
        if bench.base is not None:
            logits = text.with_name("logits.dat")
            save = ("-m", bench.base, *scored, "--save-all-logits", logits)
            _, first_s = bench.peers.run("llama-perplexity", *save)
            compare = (
                "-m",
                bench.file,
                "-t",
                default_threads(),
                "--kl-divergence",
                "--kl-divergence-base",
                logits,
            )
            answer, second_s = bench.peers.run("llama-perplexity", *compare)
            values |= {_KLD_S: first_s + second_s, _KLD: _number(r"Mean\s+KLD:\s+([\d.]+)", answer)}
    return values


def _number(pattern: str, text: str) -> float:
    match = re.search(pattern, text)
    assert match is not None, text[-2000:]
    return float(match[1])


def _search_rows(model: str, limit: str) -> tuple[Row, Row, Row]:
    name, peer = f"maxctx {model.removeprefix('twin:')}, {limit}", "blind bisection"
    return (
        Row(f"{name}: contexts made", "", peer, None, 1.0),
        Row(f"{name}: time", "s", peer, None, 1.0),
        Row(f"{name}: n_ctx found", "", peer, 1.0, 1.0),
    )


def _our_search(_: Bench) -> Values:
    """Without the proof by a decode, which bisection does not have."""
    return _searches(_maxctx)


def _bisected(_: Bench) -> Values:
    """Doubling n_ctx from 256 until a context fails, then halving, in one worker that loads the model once."""
    return _searches(_bisection)


def _searches(search: Callable[[Target, LlamaConfig], tuple[int, int]]) -> Values:
    values: dict[Row, float] = {}
    for model, limit in SEARCHES:
        target = resolve_one(parse_model(model))
        materialize(target)  # writing a twin is no part of the search
        setup = LlamaConfig(memory_limit_bytes=parse_size(limit), n_gpu_layers=0, threads=default_threads())
        started = time.perf_counter()
        n_ctx, n_contexts = search(target, setup)
        seconds = time.perf_counter() - started
        values |= dict(zip(_search_rows(model, limit), (n_contexts, seconds, n_ctx), strict=True))
    return values


def _maxctx(target: Target, setup: LlamaConfig) -> tuple[int, int]:
    job = Job(MAXCTX, target, setup, MaxctxSettings(prove=False, reserve_bytes=0))
    *_, finished = run_job(run_context(None, needs_bandwidth=False), job)
    assert isinstance(finished, Finished)
    found = finished.run.result
    if not isinstance(found, MaxctxResult) or found.max_n_ctx is None:
        sys.exit(finished.run.reason or "the search found no n_ctx")
    return found.max_n_ctx, found.n_allocations


def _bisection(target: Target, setup: LlamaConfig) -> tuple[int, int]:
    file, n_contexts = materialize(target), 0
    with WorkerProcess() as worker:
        _fits(worker, LoadModel(str(file.paths[0]), setup))

        def works(steps: int) -> bool:
            nonlocal n_contexts
            n_contexts += 1
            return _fits(worker, MakeContext(replace(setup, n_ctx=steps * KV_CELLS)))

        low, high = 0, 1
        while works(high):
            low, high = high, high * 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if works(middle) else (low, middle)
    return low * KV_CELLS, n_contexts


def _fits(worker: WorkerProcess, request: Request) -> bool:
    """Whether there was memory for it. Raises SystemExit where it failed for another reason."""
    *_, ending = worker.call(request)
    if not isinstance(ending, Completed | OutOfMemory):
        sys.exit(f"{request}: {ending}")
    return isinstance(ending, Completed)


_PLANNED = {
    name: Row(f"plan at n_ctx {N_CTX:,}: {name}", "MiB", "llama-server's buffers", 0.999, 1.001)
    for name in ("weights", "KV", "compute", "all memory")
}
_FITTED = Row(_PLANNED["all memory"].what, "MiB", "llama-fit-params")
_PLAN_S = Row("the time of a plan", "s", "llama-fit-params")


def _our_plan(bench: Bench) -> Values:
    document, seconds = ggbench("plan", bench.file, "-c", N_CTX)
    (row,) = document["rows"]
    sizes = {
        "weights": "weight_bytes",
        "KV": "kv_bytes",
        "compute": "compute_bytes",
        "all memory": "needed_bytes",
    }
    values = {_PLANNED[name]: row[key] / MIB for name, key in sizes.items()}
    return {**values, _FITTED: row["needed_bytes"] / MIB, _PLAN_S: seconds}


def _their_plan(bench: Bench) -> Values:
    """llama-server's buffers by its log; llama-fit-params' estimate is in whole MiB of each of three parts."""
    words = ("-m", bench.file, "-c", N_CTX, "-np", 1)
    text, seconds = bench.peers.run("llama-fit-params", *words, "--fit-print", "on")
    match = re.search(r"^Host (\d+) (\d+) (\d+)", text, re.MULTILINE)
    assert match is not None, text
    with serving(bench.peers, bench.file, N_CTX) as served:
        memory = served.memory
    parts = {"weights": memory.weight_bytes, "KV": memory.kv_bytes, "compute": memory.compute_bytes}
    values = {_PLANNED[name]: (n_bytes or 0) / MIB for name, n_bytes in parts.items()}
    values[_PLANNED["all memory"]] = (memory.total_bytes or 0) / MIB
    return {**values, _FITTED: float(sum(map(int, match.groups()))), _PLAN_S: seconds}


@dataclass(frozen=True, slots=True)
class Served:
    """A llama-server that listens."""

    url: str
    allocated: Allocated
    tensor_bytes: int
    """As it states them over HTTP."""
    log: Sequence[str]
    """All that it wrote until it was ready."""

    @property
    def memory(self) -> Memory:
        """Its buffers; a repacked tensor counts once, though a mapped file has it twice."""
        return Memory(n_ctx=N_CTX, buffers=self.allocated.buffers, tensor_bytes=self.tensor_bytes)


@contextlib.contextmanager
def serving(peers: Peers, path: Path, n_ctx: int, slots: Sequence[object] = ("-np", 1)) -> Iterator[Served]:
    """Start a llama-server with an n_ctx and one slot, and wait until it is ready.

    Its `--fit` is on: it loads every file dry first, which its log shows and this leaves out.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [peers.folder / "llama-server", "-m", path, "-c", n_ctx, "-v", "--port", port, *slots]
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | peer_environment(),
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            log.seek(0)
            lines = [_LOG_PREFIX.sub("", line.rstrip("\n")) for line in log]
            with urllib.request.urlopen(f"{url}/v1/models") as response:
                tensor_bytes = int(json.load(response)["data"][0]["meta"]["size"])
            starts = [
                index for index, line in enumerate(lines) if line.startswith("llama_model_loader: loaded meta")
            ]
            yield Served(url, parse_allocations(lines[starts[-1] :], PLACES), tensor_bytes, lines)
        finally:
            process.terminate()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
            return
        if process.poll() is not None:
            sys.exit(f"llama-server left with {process.returncode}")
        time.sleep(0.2)
    sys.exit(f"llama-server was not ready after {_START_S} s")


FIGURES = {
    "decode": Figure(_our_decode, _their_decode, 9),
    "prefill": Figure(_our_prefill, _their_prefill, 9),
    "batch": Figure(_our_batch, _their_batch, 9),
    "users": Figure(_our_users, _their_users, 9),
    "quality": Figure(_our_quality, _their_quality, 5),
    "maxctx": Figure(_our_search, _bisected, 3),
    "plan": Figure(_our_plan, _their_plan, 3),
}
