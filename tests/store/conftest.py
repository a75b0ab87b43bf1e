"""A store of its own for each test, and the records that fill it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.records.memory import DeviceBuffers
from ggbench.records.outcome import Outcome
from ggbench.records.setup import LlamaSetup
from ggbench.records.speed import DecodeLimit, LatencySummary, LineFit
from ggbench.store.database import Store
from ggbench.store.runs import RunStart
from tests.fakes.machines import ENVIRONMENT, GPU


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where this test's store lives; its folder is not there yet."""
    return tmp_path / "data" / "results.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    """A fresh store."""
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def start() -> RunStart:
    """What is known of a run on a machine with one GPU before it starts."""
    return RunStart(
        kind="decode",
        model="qwen1.5-0.5b",
        quant="q4_k_m",
        file="/models/qwen1.5-0.5b-q4_k_m.gguf",
        provenance="twin",
        file_bytes=407_000_000,
        header_sha256="ab" * 32,
        n_params=619_570_176,
        bpw=5.18,
        weight_bytes=401_000_000,
        kv_bytes_per_token=98_304,
        command="ggbench decode synth:qwen1.5-0.5b q4_k_m -n 300",
        config=LlamaSetup(n_ctx=512, flash_attn="on", tensor_split=(0.25, 0.75), memory_limit_bytes=3 << 30),
        environment=replace(ENVIRONMENT, gpus=(replace(GPU, memory_clock_mhz=None),)),
    )


@pytest.fixture
def row(start: RunStart) -> Row:
    """A completed row with every optional part there, one of them unbounded."""
    return Row(
        model=start.model,
        quant=start.quant,
        file=start.file,
        provenance=start.provenance,
        file_bytes=start.file_bytes,
        n_params=start.n_params,
        bpw=start.bpw,
        weight_bytes=start.weight_bytes,
        kv_bytes_per_token=start.kv_bytes_per_token,
        outcome=Outcome.COMPLETED,
        buffers=(DeviceBuffers("CPU", 1, 2, 3, 4), DeviceBuffers("CUDA0", weight_bytes=5)),
        n_ctx=512,
        n_prompt=25,
        n_gen=300,
        prefill_ms=130.5,
        fit=LineFit(300, None, (1200.0, None), 11.0, (10.9, 11.1), 0.03, None),
        latency=LatencySummary(11.0, 12.0, 13.0, 90.9, None),
        limit=DecodeLimit(250_000.0, 8.0, 24.7e9, "given"),
        flash_attn=True,
        config=start.config,
        command=start.command,
        environment=start.environment,
    )
