"""A store with runs in it, as measurements leave them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ggbench.records.memory import DeviceBuffers
from ggbench.records.outcome import Outcome
from ggbench.records.setup import LlamaSetup
from ggbench.records.speed import DecodeLimit
from ggbench.stats.linefit import fit_line
from ggbench.stats.summary import summarize
from ggbench.store.database import Store
from ggbench.store.runs import RunStart
from tests.fakes import machines

ENVIRONMENT = replace(
    machines.ENVIRONMENT, llama_cpp="build 7000", system_info="AVX2 = 1", os="Debian", cpu="EPYC", n_cores=2,
    ram_bytes=24 << 30, gpus=(),
)  # fmt: skip
BPW = {"q4_k_m": 5.0, "q8_0": 8.5, "q2_k": 3.5}


def start(model: str = "synth:qwen1.5-0.5b", quant: str = "q4_k_m", **changes: object) -> RunStart:
    """What is known of a run before it measures anything."""
    known: dict[str, Any] = {
        "kind": "bench",
        "model": model,
        "quant": quant,
        "file": f"/cache/twins/{quant}.gguf",
        "provenance": "twin",
        "file_bytes": round(BPW.get(quant, 4.0) * 77e6),
        "header_sha256": quant.encode().hex().ljust(64, "0"),
        "n_params": 619_570_176,
        "bpw": BPW.get(quant, 4.0),
        "weight_bytes": round(BPW.get(quant, 4.0) * 77e6),
        "kv_bytes_per_token": 98_304,
        "command": f"ggbench bench {model} {quant} -n 3000",
        "config": LlamaSetup(n_ctx=3072),
        "environment": ENVIRONMENT,
    }
    return RunStart(**(known | changes))


def put_run(store: Store, run: RunStart, b_ms: float = 10.0, w: float = 400.0, n_gen: int = 3000) -> int:
    """A completed run whose samples lie around a line."""
    run_id = store.begin(run)
    position = np.arange(26, 26 + n_gen)
    noise = np.random.default_rng(run_id).normal(0, 0.05, n_gen)
    step_ns = np.rint((b_ms + (position - 1) / w + noise) * 1e6).astype(np.int64)
    step_ns[n_gen // 2] *= 3
    store.append_samples(run_id, 0, 26, step_ns, np.full(n_gen, 50_000, np.int64))
    row = run.as_row(Outcome.COMPLETED, "")
    weight_bytes = run.weight_bytes or 0
    row = replace(
        row,
        buffers=(DeviceBuffers("CPU", weight_bytes, 3072 * 98_304, 300 << 20, 607_744),),
        n_batch=2048,
        n_ubatch=512,
        n_prompt=25,
        n_gen=n_gen,
        prefill_ms=130.0,
        fit=fit_line(position, step_ns),
        latency=summarize(step_ns),
        limit=DecodeLimit(610.4, weight_bytes / 60e9 * 1e3, 60e9, "measured in a test"),
        flash_attn=True,
    )
    store.finish(run_id, row)
    return run_id


def put_failed(store: Store, run: RunStart, outcome: Outcome, reason: str) -> int:
    """A run that measured nothing."""
    run_id = store.begin(run)
    store.finish(run_id, run.as_row(outcome, reason))
    return run_id


def put_interrupted(store: Store, run: RunStart, n_gen: int = 100) -> int:
    """A run that nobody ends; the store marks it when it is closed."""
    run_id = store.begin(run)
    store.append_samples(run_id, 0, 26, [10_000_000 + n * 5000 for n in range(n_gen)])
    return run_id


def freeze_times(path: Path) -> None:
    """Give every run a time of its own, an hour apart, so that a picture of them is always the same."""
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE runs SET started_at = printf('2026-11-20T%02d:00:00+00:00', id)")
    connection.close()


def fill(path: Path) -> list[int]:
    """Two runs to compare, one out of memory, one interrupted; by rising number."""
    with Store.open(path) as store:
        run_ids = [
            put_run(store, start()),
            put_failed(store, start(quant="f16"), Outcome.OUT_OF_MEMORY, "out of memory in load: \x1b[31mno room"),
            put_run(store, start(quant="q8_0"), b_ms=17.0, w=390.0),
            put_interrupted(store, start(quant="q2_k")),
        ]
    freeze_times(path)
    return run_ids
