"""A store of its own for each test, and the records that fill it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.machine.records import GpuUse, Throttling
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.database import Store
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit
from tests.fakes.machines import ENVIRONMENT, GPU


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "results.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened


@pytest.fixture
def head() -> RunHead:
    return RunHead(
        kind="decode",
        subject=Subject(
            model="qwen1.5-0.5b", quant="q4_k_m", source="twin", file="/models/qwen1.5-0.5b-q4_k_m.gguf",
            file_bytes=407_000_000, header_sha256="ab" * 32, n_params=619_570_176, bpw=5.18,
            weight_bytes=401_000_000, kv_bytes_per_token=98_304, n_ctx_train=32_768,
        ),
        setup=LlamaConfig(
            n_ctx=512, flash_attn="on", tensor_split=(0.25, 0.75), override_tensor=("x=CPU",),
            memory_limit_bytes=3 << 30,
        ),
        settings=DecodeSettings(300),
        environment=replace(ENVIRONMENT, gpus=(replace(GPU, memory_clock_mhz=None),)),
        command="ggbench decode twin:qwen1.5-0.5b q4_k_m -n 300",
    )  # fmt: skip


@pytest.fixture
def run(head: RunHead) -> Run:
    return Run(
        head=head,
        outcome=Outcome.COMPLETED,
        memory=Memory(
            buffers=(DeviceBuffers("CPU", MemoryKind.HOST, 1, 2, 3, 4), DeviceBuffers("CUDA0", MemoryKind.GPU, 5)),
            n_ctx=512, n_batch=512, n_ubatch=512, flash_attn=True, peak_bytes=1 << 30,
        ),
        gpu_use=GpuUse((0,), 2, temperature_max_c=66.0, throttle=(Throttling("sw_power_cap", 1),)),
        result=DecodeResult(
            n_prompt=25, n_gen=300, prefill_ms=130.5,
            fit=LineFit(300, None, (1200.0, None), 11.0, (10.9, 11.1)),
            latency=LatencySummary(11.0, 13.0, 90.9),
            limit=DecodeLimit(250_000.0, 8.0, bandwidth_bytes_per_s=24.7e9, bandwidth_source="given"),
        ),
    )  # fmt: skip
