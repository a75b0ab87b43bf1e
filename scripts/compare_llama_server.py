"""The tables behind scripts/compare_llama_server; exit code 1 where anything differs by more than 1 MiB.

llama-server is started with `-m FILE -c N -np 1 -v`, and with `--swa-full` once more for a model with sliding windows;
its buffers are read from its log. Its `--fit` is on: it loads every file dry first, which the log shows and this leaves
out, and changes nothing here, since n_ctx is given and no layer is on a GPU. Its warm-up decodes two tokens after the
buffers are made and adds none.

Weights: llama.cpp's buffers of a mapped file hold a repacked tensor twice, once as pages that nothing reads again. They
are compared as they are with ggbench's context; with the plan by the rule of ggbench's `Memory`, which takes the size
of the tensors that llama-server states over HTTP. With --limit, `ggbench maxctx` finds the largest n_ctx of the first
model, and llama-server has to start there and answer.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ggbench.catalog.planned_variants import planned_model
from ggbench.catalog.selector import Target, materialize, resolve_one
from ggbench.engine.contract import Source
from ggbench.engine.endings import Completed
from ggbench.engine.events import Allocated
from ggbench.engine.ggml_devices import place_of
from ggbench.engine.llama import launch
from ggbench.engine.logs import parse_allocations
from ggbench.experiments.maxctx import EXPERIMENT as MAXCTX
from ggbench.machine.memory import peak_rss_bytes
from ggbench.recording.driver import run_job
from ggbench.recording.experiment import Job
from ggbench.recording.progress import Finished
from ggbench.recording.rig import make_rig
from ggbench.records.context import ContextResult, ContextSettings
from ggbench.records.memory import Memory
from ggbench.records.plan import Budget, PlanRow
from ggbench.records.setup import LlamaSetup
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.units import GIB, MIB, format_bytes, format_count, parse_size

MODELS = ("synth:qwen1.5-0.5b:q4_k_m", "synth:qwen1.5-7b:q4_k_m")
_PREFIX = re.compile(r"^[\d.]+ [A-Z] ")
_START_S = 600
PARTS = {"KV": "kv_bytes", "compute": "compute_bytes", "output": "output_bytes"}


@dataclass(frozen=True, slots=True)
class Served:
    """A llama-server that listens."""

    url: str
    pid: int
    allocated: Allocated
    tensor_bytes: int
    """As it states them over HTTP."""

    def answer(self, prompt: str) -> str:
        """What it adds to the prompt in eight tokens."""
        body = json.dumps({"prompt": prompt, "n_predict": 8, "temperature": 0}).encode()
        request = urllib.request.Request(f"{self.url}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=_START_S) as response:
            return str(json.load(response)["content"])


def main() -> int:
    """Compare each model, then search the first one's largest context."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path, help="llama-server, of the same llama.cpp as ggbench's")
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help="files, or synth:ID:QUANT")
    parser.add_argument("--n-ctx", type=int, default=8192)
    parser.add_argument("--limit", default="1GiB", help="of the search for the largest n_ctx; 0 leaves it out")
    asked = parser.parse_args()
    targets = [resolve_one(model) for model in asked.models]
    print("MiB; differences are from llama-server's")
    print("| model | n_ctx | part | llama-server | plan | difference | context | difference |")
    print("|---|---:|---|---:|---:|---:|---:|---:|", flush=True)
    agree = True
    for target in targets:
        setup = LlamaSetup(n_ctx=asked.n_ctx, n_gpu_layers=0, threads=1)
        has_window = materialize(target).sliding_window is not None
        for each in (setup, *([replace(setup, swa_full=True)] if has_window else [])):
            agree &= compared(asked.server, target, each)
    if limit_bytes := parse_size(asked.limit) if asked.limit != "0" else 0:
        agree &= largest(asked.server, targets[0], limit_bytes)
    return 0 if agree else 1


def compared(server: Path, target: Target, setup: LlamaSetup) -> bool:
    """Print the lines of one model; whether all of its differences are within 1 MiB."""
    path = materialize(target).paths[0]
    with serving(server, path, setup) as served:
        theirs, tensor_bytes = served.allocated, served.tensor_bytes
    row, ours = planned(path, setup), allocated_by_ggbench(path, setup)
    lines = [(part, theirs.total(field), getattr(row, field), ours.total(field)) for part, field in PARTS.items()]
    lines.append(("weights, buffers", theirs.total("weight_bytes"), None, ours.total("weight_bytes")))
    held = [Memory(buffers=each.buffers, tensor_bytes=tensor_bytes).weight_bytes for each in (theirs, ours)]
    lines.append(("weights, held", held[0] or 0, row.device_weight_bytes, held[1] or 0))
    name = f"{path.name}{' --swa-full' if setup.swa_full else ''}"
    agree = True
    for part, their_bytes, plan_bytes, our_bytes in lines:
        cells = ""
        for n_bytes in (plan_bytes, our_bytes):
            cells += " | |" if n_bytes is None else f" {n_bytes / MIB:.2f} | {(n_bytes - their_bytes) / MIB:+.3f} |"
            agree &= n_bytes is None or abs(n_bytes - their_bytes) <= MIB
        print(f"| {name} | {setup.n_ctx} | {part} | {their_bytes / MIB:.2f} |{cells}", flush=True)
    return agree


def planned(path: Path, setup: LlamaSetup) -> PlanRow:
    """From the header alone."""
    budget = Budget("main memory", False, 64 * GIB, "made up", 0, "")
    with DryAllocator(launch(threading.Event()), setup) as allocator:
        [row] = plan(planned_model(str(path)).variants, PlanRequest(budget, setup), allocator)
    return row


def allocated_by_ggbench(path: Path, setup: LlamaSetup) -> Allocated:
    """From a load and a context as a decode makes them."""
    engine = launch(threading.Event())
    *events, ending = engine.open(Source(path), setup)
    engine.close()
    if not isinstance(ending, Completed):
        sys.exit(str(ending))
    return [event for event in events if isinstance(event, Allocated)][-1]


def largest(server: Path, target: Target, limit_bytes: int) -> bool:
    """Find the largest n_ctx under a limit, and ask llama-server for an answer there."""
    setup = LlamaSetup(memory_limit_bytes=limit_bytes, n_gpu_layers=0)
    *_, finished = run_job(make_rig(None, needs_bandwidth=False), Job(MAXCTX, target, setup, ContextSettings()))
    assert isinstance(finished, Finished)
    found = finished.run.result
    if not isinstance(found, ContextResult) or found.max_n_ctx is None:
        sys.exit(finished.run.reason or "the search found no n_ctx")
    path = materialize(target).paths[0]
    print(f"\nLargest n_ctx of {path.name} under {format_bytes(limit_bytes)}: {format_count(found.max_n_ctx)}")
    with serving(server, path, LlamaSetup(n_ctx=found.max_n_ctx)) as served:
        text = served.answer("The capital of France is")
        taken = Memory(buffers=served.allocated.buffers, tensor_bytes=served.tensor_bytes).total_bytes or 0
        peak = peak_rss_bytes(served.pid)
    print(f"llama-server -c {found.max_n_ctx} -np 1 takes {format_bytes(taken)} in its buffers, at most")
    print(f"{format_bytes(peak)} resident, and answers: The capital of France is{text}")
    return bool(text.strip()) and taken <= limit_bytes


@contextlib.contextmanager
def serving(server: Path, path: Path, setup: LlamaSetup) -> Iterator[Served]:
    """Start a llama-server with an n_ctx, one slot and a port, and wait until it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [server, "-m", path, "-c", setup.n_ctx, "-np", 1, "-v", "--port", port]
    command += ["--swa-full"] if setup.swa_full else []
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_for(url, process)
            log.seek(0)
            lines = [_PREFIX.sub("", line.rstrip("\n")) for line in log]
            with urllib.request.urlopen(f"{url}/v1/models") as response:
                tensor_bytes = int(json.load(response)["data"][0]["meta"]["size"])
            yield Served(url, process.pid, _read(lines), tensor_bytes)
        finally:
            process.terminate()
            process.wait()


def _wait_for(url: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            pass
        else:
            return
        if process.poll() is not None:
            sys.exit(f"llama-server left with {process.returncode}")
        time.sleep(0.2)
    sys.exit(f"llama-server was not ready after {_START_S} s")


def _read(lines: Sequence[str]) -> Allocated:
    """Its buffers of the last load, since `--fit` loads dry before."""
    starts = [index for index, line in enumerate(lines) if line.startswith("llama_model_loader: loaded meta data")]
    places = {name: place_of(name, {}) for name in ("CPU", "CPU_Mapped", "CPU_REPACK")}
    return parse_allocations(lines[starts[-1] :], places)


if __name__ == "__main__":
    sys.exit(main())
