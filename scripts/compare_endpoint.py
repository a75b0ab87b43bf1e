"""The tables behind scripts/compare_endpoint; exit code 1 where W, B or speed of a decode surely differ by over 3 %.

One llama-server serves the file with the threads, the context and the libraries that ggbench's own engine has, since
two builds of one source differ in speed. The two take turns in going first. The server's clock of a token includes its
sampling, which the engine here times apart; so B of the engine here is shown with its sampling added. Where as many
threads compute as there are cores, the server's and the client's own work slows them down; `-t` leaves cores to it. The
paired differences of all rounds count, with their standard error, as rounds differ by several percent.

With --ways, the median times of a token are compared: of a server by its URL, and of one that ggbench starts, the
program by its path and by a `llama` whose `serve` it is.

With --batched-bench, `speed` over HTTP with several concurrent requests is shown beside S_PP and S_TG of
llama-batched-bench, which decodes as many sequences without a server. A server adds its sampling and its queue, so
nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from ggbench.commands.measure_options import run_by
from ggbench.engines.llama.c_functions import llama_library
from ggbench.engines.llama.config import LlamaConfig, whole_steps
from ggbench.experiments.decode.measure import EXPERIMENT as DECODE
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.speed.measure import EXPERIMENT as SPEED
from ggbench.experiments.speed.record import SpeedResult, SpeedSettings
from ggbench.machine.host import default_threads
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, materialize, resolve_one
from ggbench.runs.driver import run_job
from ggbench.runs.experiment import Job
from ggbench.runs.progress import Finished
from ggbench.runs.run import Run
from ggbench.runs.session import run_context

TOLERANCE = 0.03
_START_S = 120


@dataclass(frozen=True, slots=True)
class Line:
    """Of one decode."""

    w_tokens_per_ms: float
    b_ms: float
    tok_s: float


@dataclass(frozen=True, slots=True)
class Served:
    """A file, the llama-server that serves it, and the threads of both."""

    program: Path
    path: Path
    threads: int


def main() -> int:
    """Measure in turns, and compare the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path, help="llama-server, of the same llama.cpp as ggbench's")
    parser.add_argument("model", help="a file, or twin:ID:QUANT")
    parser.add_argument("-n", "--n-gen", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=default_threads())
    parser.add_argument("--ways", action="store_true", help="compare the ways to run a server")
    parser.add_argument(
        "--batched-bench", type=Path, help="llama-batched-bench; compares speed instead of a decode"
    )
    parser.add_argument("--batch", default="1,4")
    parser.add_argument("--input", type=int, default=128)
    parser.add_argument("--n-batch-gen", type=int, default=128)
    asked = parser.parse_args()
    target = resolve_one(parse_model(asked.model))
    path = materialize(target).paths[0]
    if asked.batched_bench:
        batches = tuple(int(part) for part in asked.batch.split(","))
        settings = SpeedSettings((asked.input,), asked.n_batch_gen, batches)
        return compare_speed(
            Served(asked.server, path, asked.threads), asked.batched_bench, settings, asked.rounds
        )
    compare = compare_ways if asked.ways else compare_decode
    return compare(Served(asked.server, path, asked.threads), target, DecodeSettings(asked.n_gen), asked.rounds)


def compare_decode(server: Served, target: Target, settings: DecodeSettings, rounds: int) -> int:
    """Decode in turns over HTTP and in the engine here."""
    here: list[Line] = []
    served: list[Line] = []
    shares: list[float] = []
    with serving(server, n_ctx=settings.n_ctx_needed + 256, n_parallel=1) as url:
        remote = resolve_one(parse_model(url))

        def ask() -> None:
            run, share = measured(remote, settings, server.threads)
            served.append(line_of(run))
            shares.append(share)

        def compute() -> None:
            here.append(line_of(measured(target, settings, server.threads)[0]))

        for number in range(rounds):
            for step in (ask, compute) if number % 2 else (compute, ask):
                step()
            print(f"round {number + 1}: here {here[-1]}, served {served[-1]}", flush=True)
    print("| | here | served | medians differ by | paired difference |")
    print("|---|---:|---:|---:|---:|")
    agree = True
    for name in ("w_tokens_per_ms", "b_ms", "tok_s"):
        ours, theirs = (statistics.median(getattr(each, name) for each in lines) for lines in (here, served))
        ratios = [getattr(other, name) / getattr(own, name) for own, other in zip(here, served, strict=True)]
        mean = statistics.fmean(ratios) - 1
        error = statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.inf
        agree &= abs(mean) - 2 * error <= TOLERANCE
        print(f"| {name} | {ours:.3f} | {theirs:.3f} | {theirs / ours - 1:+.1%} | {mean:+.1%} ±{error:.1%} |")
    print(f"the client took {statistics.median(shares):.1%} of a core while it measured over HTTP")
    return 0 if agree else 1


def compare_ways(server: Served, target: Target, settings: DecodeSettings, rounds: int) -> int:
    """Decode in turns by the engine here and by each way to a server; compare the median times of a token."""
    own = LlamaConfig(n_gpu_layers=0, threads=server.threads)
    found: dict[str, list[float]] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(server, n_ctx=settings.n_ctx_needed + 256, n_parallel=1) as url,
    ):
        os.environ |= library_path()
        app = Path(folder) / "llama"
        app.write_text(f'#!/bin/sh\n[ "$1" = serve ] || exit 1\nshift\nexec {server.program.absolute()} "$@"\n')
        app.chmod(0o755)
        ways = {
            "here": (target, own),
            "by path": (target, run_by(f"llama-server={server.program.absolute()}", own)),
            "by llama serve": (target, run_by(f"llama-server={app} serve", own)),
            "by URL": (resolve_one(parse_model(url)), own),
        }
        for number in range(rounds):
            turns = list(ways.items())[:: -1 if number % 2 else 1]
            for name, (what, setup) in turns:
                result = measured(what, settings, server.threads, setup)[0].result
                assert isinstance(result, DecodeResult) and result.latency is not None
                p50_ms = result.latency.p50_ms or math.nan
                found.setdefault(name, []).append(p50_ms)
            print(
                f"round {number + 1}: {', '.join(f'{name} {found[name][-1]:.3f} ms' for name in ways)}",
                flush=True,
            )
    print("| | p50 [ms] | beside here |")
    print("|---|---:|---:|")
    medians = {name: statistics.median(values) for name, values in found.items()}
    for name, p50_ms in medians.items():
        print(f"| {name} | {p50_ms:.3f} | {p50_ms / medians['here'] - 1:+.1%} |")
    return int(any(abs(p50_ms / medians["here"] - 1) > TOLERANCE for p50_ms in medians.values()))


def compare_speed(server: Served, bench: Path, settings: SpeedSettings, rounds: int) -> int:
    """Measure cases in turns over HTTP and with llama-batched-bench."""
    n_parallel = max(settings.batches)
    n_ctx = n_parallel * max(case.n_input + case.n_gen + 256 for case in settings.cases)
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    with serving(server, n_ctx=n_ctx, n_parallel=n_parallel) as url:
        remote = resolve_one(parse_model(url))
        for number in range(rounds):
            theirs = by_batched_bench(server, bench, settings) if number % 2 else {}
            result = measured(remote, settings, server.threads)[0].result
            assert isinstance(result, SpeedResult)
            theirs = theirs or by_batched_bench(server, bench, settings)
            for each in result.cases:
                prefill, decode = theirs[each.case.n_seqs]
                pairs = (("S_PP", each.prefill_tok_s, prefill), ("S_TG", each.decode_tok_s, decode))
                for name, ours, bench_s in pairs:
                    found.setdefault((each.case.n_seqs, name), []).append((ours or 0.0, bench_s))
    print("| batch | | served | llama-batched-bench | medians differ by |")
    print("|---:|---|---:|---:|---:|")
    for (n_seqs, name), pairs_found in found.items():
        ours, theirs_median = (statistics.median(pair[who] for pair in pairs_found) for who in (0, 1))
        print(f"| {n_seqs} | {name} | {ours:.1f} | {theirs_median:.1f} | {ours / theirs_median - 1:+.1%} |")
    return 0


def measured(
    target: Target, settings: DecodeSettings | SpeedSettings, threads: int, setup: LlamaConfig | None = None
) -> tuple[Run, float]:
    """Return a run, and the share of a core that this process took meanwhile."""
    experiment = DECODE if isinstance(settings, DecodeSettings) else SPEED
    setup = setup or LlamaConfig(n_gpu_layers=0, threads=threads)
    job = Job(experiment, target, target.setup(setup), settings)
    before, began = cpu_s(), time.perf_counter()
    *_, finished = run_job(run_context(None, needs_bandwidth=False), job)
    share = (cpu_s() - before) / (time.perf_counter() - began)
    assert isinstance(finished, Finished)
    if not finished.run.is_complete:
        sys.exit(finished.run.reason)
    return finished.run, share


def cpu_s() -> float:
    """Return the processor time of this process without its children."""
    times = psutil.Process().cpu_times()
    return float(times.user + times.system)


def line_of(run: Run) -> Line:
    """Return W, B and tokens/s of a decode; those of a server include choosing the token, some 0.03 ms."""
    result = run.result
    assert isinstance(result, DecodeResult)
    if (
        result.fit is None
        or result.fit.w_tokens_per_ms is None
        or result.fit.b_ms is None
        or result.latency is None
    ):
        sys.exit("a decode shows no line: decode more tokens, on a machine that nobody else uses")
    return Line(result.fit.w_tokens_per_ms, result.fit.b_ms, result.latency.tok_s)


def library_path() -> dict[str, str]:
    """Return the environment in which a program loads the libraries that ggbench loads."""
    return os.environ | {"LD_LIBRARY_PATH": str(llama_library().parent)}


@contextlib.contextmanager
def serving(server: Served, *, n_ctx: int, n_parallel: int) -> Iterator[str]:
    """Start llama-server on a free port, and yield its URL once it has loaded the model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    threads = str(server.threads)
    command: list[str | Path] = [
        server.program, "-m", server.path, "--host", "127.0.0.1", "--port", str(port), "-c", str(n_ctx),
        "-np", str(n_parallel), "-t", threads, "-tb", threads, "-ngl", "0", "-fa", "auto", "--no-webui",
    ]  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    started = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=library_path()
    )
    try:
        until = time.monotonic() + _START_S
        while not is_healthy(url):
            if started.poll() is not None or time.monotonic() > until:
                sys.exit(f"{server.program} did not start")
            time.sleep(0.1)
        yield url
    finally:
        started.terminate()
        started.wait()


def is_healthy(url: str) -> bool:
    """Return whether the server has loaded its model."""
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def by_batched_bench(server: Served, bench: Path, settings: SpeedSettings) -> dict[int, tuple[float, float]]:
    """Return S_PP and S_TG by the number of sequences."""
    threads = str(server.threads)
    n_ctx = max(case.n_seqs * whole_steps(case.n_input + case.n_gen) for case in settings.cases)
    command: list[str | Path] = [
        bench, "-m", server.path, "-c", str(n_ctx), "-b", "2048", "-ub", "512", "-npp", str(settings.inputs[0]),
        "-ntg", str(settings.n_gen), "-npl", ",".join(map(str, settings.batches)), "-t", threads, "-tb", threads,
        "-ngl", "0", "-fa", "auto", "--output-format", "jsonl",
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=library_path())
    rows = [
        json.loads(line) for line in ran.stdout.splitlines() + ran.stderr.splitlines() if line.startswith("{")
    ]
    return {row["pl"]: (row["speed_pp"], row["speed_tg"]) for row in rows}


if __name__ == "__main__":
    sys.exit(main())
