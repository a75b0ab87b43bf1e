"""A store with runs in it, as measurements leave them, and changes of summaries where a test needs them."""

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.maxctx.record import MaxctxResult, MaxctxSettings, Probe
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import DecodeLimit, DecodeWindow
from ggbench.stats.linefit import again_windows, fit_line
from ggbench.stats.speed import summarize
from tests.fakes import machines

ENVIRONMENT = replace(
    machines.ENVIRONMENT, llama_cpp="build 7000", system_info="AVX2 = 1", os="Debian", cpu="EPYC", n_cores=2,
    ram_bytes=24 << 30, gpus=(),
)  # fmt: skip
BPW = {"q4_k_m": 5.0, "q8_0": 8.5, "q2_k": 3.5}
SERIES = "decode/p25/b1/r0"


def start(model: str = "twin:qwen1.5-0.5b", quant: str = "q4_k_m", command: str | None = None) -> RunHead:
    n_bytes = round(BPW.get(quant, 4.0) * 77e6)
    subject = Subject(
        model=model, quant=quant, source="twin", file=f"/cache/twins/{quant}.gguf", file_bytes=n_bytes,
        header_sha256=quant.encode().hex().ljust(64, "0"), n_params=619_570_176, bpw=BPW.get(quant, 4.0),
        weight_bytes=n_bytes, kv_bytes_per_token=98_304,
    )  # fmt: skip
    return RunHead(
        kind="decode",
        subject=subject,
        setup=LlamaConfig(n_ctx=3072),
        settings=DecodeSettings(3000),
        environment=ENVIRONMENT,
        command=command if command is not None else f"ggbench decode {model} {quant} -n 3000",
    )


def start_search() -> RunHead:
    return replace(start(), kind="maxctx", settings=MaxctxSettings())


def put_run(store: Store, head: RunHead, b_ms: float = 10.0, w: float = 400.0, n_gen: int = 3000) -> int:
    run_id = store.begin(head)
    position = np.arange(26, 26 + n_gen)
    noise = np.random.default_rng(run_id).normal(0, 0.05, n_gen)
    step_ns = np.rint((b_ms + (position - 1) / w + noise) * 1e6).astype(np.int64)
    again = [
        DecodeWindow(depth, n_each, float(sum(step_ns[depth - 25 : depth - 25 + n_each])))
        for depth, n_each in again_windows(26, n_gen)
    ]
    step_ns[n_gen // 2] *= 3
    store.append_samples(run_id, SERIES, 26, step_ns, np.full(n_gen, 50_000, np.int64))
    weight_bytes = head.subject.weight_bytes or 0
    memory = Memory(
        buffers=(
            DeviceBuffers(
                "CPU", weight_bytes=weight_bytes, kv_bytes=3072 * 98_304, compute_bytes=300 << 20, output_bytes=607_744
            ),
        ),
        n_ctx=3072,
        n_batch=2048,
        n_ubatch=512,
        flash_attn=True,
    )
    result = DecodeResult(
        n_prompt=25, n_gen=n_gen, prefill_ms=130.0, fit=fit_line(position, step_ns, again),
        latency=summarize(position, step_ns),
        limit=DecodeLimit(610.4, weight_bytes / 60e9 * 1e3, bandwidth_bytes_per_s=60e9,
            bandwidth_source="measured in a test"),
    )  # fmt: skip
    store.finish(run_id, Run(head=head, outcome=Outcome.COMPLETED, memory=memory, result=result))
    return run_id


def put_failed(store: Store, head: RunHead, outcome: Outcome, reason: str) -> int:
    run_id = store.begin(head)
    store.finish(run_id, Run(head=head, outcome=outcome, reason=reason))
    return run_id


def put_search(store: Store, found: MaxctxResult, outcome: Outcome = Outcome.COMPLETED) -> int:
    head = start_search()
    run_id = store.begin(head)
    store.finish(run_id, Run(head=head, outcome=outcome, result=found))
    return run_id


def put_interrupted(store: Store, head: RunHead, n_gen: int = 100) -> int:
    """A run that nobody ends; the store marks it when it is closed."""
    run_id = store.begin(head)
    store.append_samples(run_id, SERIES, 26, [10_000_000 + n * 5000 for n in range(n_gen)])
    return run_id


def freeze_times(path: Path) -> None:
    """Give every run a time of its own, an hour apart, so that a picture of them is always the same."""
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
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


def with_run(summary: Run, **changes: object) -> Run:
    return replace(summary, **changes)


def with_head(summary: Run, **changes: object) -> Run:
    return with_run(summary, head=replace(summary.head, **changes))


def with_subject(summary: Run, **changes: object) -> Run:
    return with_head(summary, subject=replace(summary.subject, **changes))


def with_memory(summary: Run, **changes: object) -> Run:
    return with_run(summary, memory=replace(summary.memory, **changes))


def with_decode(summary: Run, **changes: object) -> Run:
    assert isinstance(summary.result, DecodeResult)
    return with_run(summary, result=replace(summary.result, **changes))


def search_of(
    run: Run, max_n_ctx: int | None, *, proven: bool = True, outcome: Outcome = Outcome.COMPLETED, reason: str = ""
) -> Run:
    first_fail = None if max_n_ctx is None else max_n_ctx + 256
    probes = () if max_n_ctx is None else (Probe(max_n_ctx, "alloc", Outcome.COMPLETED, 0.3),)
    result = MaxctxResult(max_n_ctx=max_n_ctx, first_fail_n_ctx=first_fail, verified_by_decode=proven, probes=probes)
    head = replace(run.head, kind="maxctx", settings=MaxctxSettings())
    memory = replace(run.memory, n_ctx=max_n_ctx) if max_n_ctx else Memory()
    return Run(head=head, outcome=outcome, reason=reason, memory=memory, result=result)
