"""Hand-made runs with fixed values, and golden files; GGBENCH_UPDATE_GOLDEN=1 rewrites them, to be read."""

import io
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from ggbench.engines.endings import Outcome
from ggbench.engines.events import DeviceBuffers, Memory, MemoryKind
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeResult, DecodeSettings
from ggbench.experiments.prefill.record import PrefillResult, PrefillSettings
from ggbench.gguf_file.model_file import LayerState, ModelFile, Rows, TensorInfo
from ggbench.gguf_file.parser import ArrayLength
from ggbench.machine.records import GpuProcess, GpuUse, Throttling
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.store.runs import StoredRun, encode
from ggbench.stats.decode_timing import DecodeLimit, LatencySummary, LineFit, PrefillSpeed
from tests.fakes.machines import ENVIRONMENT

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
MIB = 1 << 20


def stored(run: Run, **changes: object) -> StoredRun:
    """Return what the store has of a run, which took a minute."""
    made = StoredRun(
        run_id=run.run_id or 0, kind=run.head.kind, engine=run.head.setup.engine, state=run.outcome.value,
        reason=run.reason, subject=run.subject, command=run.head.command, started_at="2026-11-20T15:04:05+00:00",
        finished_at="2026-11-20T15:05:05+00:00", n_samples=300, environment=run.head.environment, memory=run.memory,
        gpu_use=run.gpu_use, setup_json=encode(run.head.setup), settings_json=encode(run.head.settings),
        result_json=encode(run.result),
    )  # fmt: skip
    return replace(made, **changes)


@pytest.fixture
def golden() -> Callable[[str, str], None]:
    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if os.environ.get("GGBENCH_UPDATE_GOLDEN") == "1":
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture
def render() -> Callable[..., str]:
    def render(renderable: RenderableType, width: int = 100) -> str:
        console = Console(file=io.StringIO(), width=width, color_system=None, highlight=False)
        console.print(renderable, crop=False)  # as the commands do
        assert isinstance(console.file, io.StringIO)
        return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())

    return render


@pytest.fixture
def completed() -> Run:
    head = RunHead(
        kind="decode",
        subject=Subject(
            model="qwen1.5-7b", quant="q4_k_m", source="file", file="/models/qwen1_5-7b-chat-q4_k_m.gguf",
            file_bytes=4_766_181_376, n_params=7_721_324_544, bpw=4.93487, weight_bytes=4_762_927_104,
            kv_bytes_per_token=524_288,
        ),
        setup=LlamaConfig(n_ctx=10240, type_k="f16", type_v="q8_0"),
        settings=DecodeSettings(10_000),
        environment=ENVIRONMENT,
        command="ggbench decode /models/qwen1_5-7b-chat-q4_k_m.gguf -n 10000",
    )  # fmt: skip
    on_cpu = DeviceBuffers("CPU", MemoryKind.HOST, weight_bytes=350_224_384, output_bytes=607_744)
    on_gpu = DeviceBuffers("CUDA0", MemoryKind.GPU, 4_412_702_720, 10240 * 524_288, 327_942_144, 0)
    memory = Memory(
        buffers=(on_cpu, on_gpu), other_bytes=251_658_240, n_ctx=10240, n_batch=2048, n_ubatch=512, flash_attn=True
    )
    use = GpuUse(
        indices=(0,), n_readings=92, temperature_max_c=71.0, sm_clock_min_mhz=2505,
        power_mean_w=318.4, energy_per_token_mj=2943.2, throttle=(Throttling("sw_power_cap", 3),),
        worker_bytes=4_412_702_720 + 10240 * 524_288 + 327_942_144 + 251_658_240,
        other_processes=(GpuProcess(911, "/usr/lib/desktop", 300 * MIB),),
    )  # fmt: skip
    result = DecodeResult(
        n_prompt=25, n_gen=10_000, prefill_ms=22.613,
        fit=LineFit(10_000, 1513.2, (1489.1, 1538.9), 5.9261, (5.9102, 5.9420)),
        latency=LatencySummary(9.24, 12.74, 108.2, (106.9, 109.5)),
        limit=DecodeLimit(1922.6, 4.3774, bandwidth_bytes_per_s=1.008e12,
            bandwidth_source="NVML: 384 bit x 10501 MHz x 2"),
    )  # fmt: skip
    return Run(head=head, outcome=Outcome.COMPLETED, memory=memory, gpu_use=use, result=result, run_id=41)


@pytest.fixture
def unbounded() -> Run:
    head = RunHead(
        kind="decode",
        subject=Subject(
            model="twin:qwen1.5-0.5b", quant="q8_0", source="twin", file="/cache/twins/qwen1.5-0.5b-q8_0.gguf",
            file_bytes=664_000_000, n_params=619_570_176, bpw=8.5001, weight_bytes=658_300_928,
            kv_bytes_per_token=98_304,
        ),
        setup=LlamaConfig(n_ctx=512),
        settings=DecodeSettings(300),
        command="ggbench decode twin:qwen1.5-0.5b q8_0 -n 300",
    )  # fmt: skip
    buffers = (DeviceBuffers("CPU", MemoryKind.HOST, 658_300_928, 512 * 98_304, 312 * MIB, 607_744),)
    memory = Memory(buffers=buffers, n_ctx=512, n_batch=512, n_ubatch=512, flash_attn=True)
    result = DecodeResult(
        n_prompt=25, n_gen=300, prefill_ms=131.92,
        fit=LineFit(300, None, (1234.4, None), None, (10.84, 10.99)),
        latency=LatencySummary(10.91, 14.02, 91.4, (91.0, 91.8)),
    )  # fmt: skip
    return Run(head=head, outcome=Outcome.COMPLETED, memory=memory, result=result, run_id=42)


@pytest.fixture
def out_of_memory() -> Run:
    head = RunHead(
        kind="decode",
        subject=Subject(
            model="qwen1.5-7b", quant="f16", source="hub", file="/models/qwen1_5-7b-chat-f16.gguf",
            file_bytes=15_447_000_000, n_params=7_721_324_544, bpw=16.0005, weight_bytes=15_443_137_536,
            kv_bytes_per_token=524_288,
        ),
        setup=LlamaConfig(n_ctx=32768, memory_limit_bytes=24 << 30),
        settings=DecodeSettings(10_000),
        environment=ENVIRONMENT,
        command="ggbench decode hf:qwen/qwen1.5-7b-chat-gguf f16 --n-ctx 32768 --memory-limit 25769803776",
    )  # fmt: skip
    reason = "out of memory in context: failed to allocate CUDA0 buffer of size 17179869184"
    return Run(head=head, outcome=Outcome.OUT_OF_MEMORY, reason=reason, run_id=43)


@pytest.fixture
def twin() -> Run:
    head = RunHead(
        kind="decode",
        subject=Subject(
            model="twin:qwen1.5-0.5b", quant="q2_k", source="twin", file="/cache/twins/qwen1.5-0.5b-q2_k.gguf",
            file_bytes=298_000_000, n_params=619_570_176, bpw=3.7803, weight_bytes=292_770_000,
            kv_bytes_per_token=98_304,
        ),
        setup=LlamaConfig(n_ctx=2304, flash_attn="off", threads=2),
        settings=DecodeSettings(2000),
        environment=ENVIRONMENT,
        command="ggbench decode twin:qwen1.5-0.5b q2_k -n 2000 --flash-attn off --threads 2",
    )  # fmt: skip
    buffers = (DeviceBuffers("CPU", MemoryKind.HOST, 292_770_000, 2304 * 98_304, 298 * MIB, 607_744),)
    memory = Memory(buffers=buffers, other_bytes=-3 * MIB, n_ctx=2304, n_batch=2048, n_ubatch=512, flash_attn=False)
    result = DecodeResult(
        n_prompt=25, n_gen=2000, prefill_ms=150.5,
        fit=LineFit(2000, 205.31, (160.02, 310.77), 9.4127, (9.01, 9.82)),
        latency=LatencySummary(13.2, 48.31, 70.6, (61.3, 83.2)),
        limit=DecodeLimit(251.2, 7.8125, bandwidth_bytes_per_s=24.7e9,
            bandwidth_source="measured 2026-11-20 with 2 threads"),
        unsteady="the second half ran 8.1 % slower than the line through the first",
    )  # fmt: skip
    return Run(head=head, outcome=Outcome.COMPLETED, memory=memory, result=result, run_id=44)


@pytest.fixture
def prompts(twin: Run) -> Run:
    result = PrefillResult((PrefillSpeed(1, 9.81, 101.94, 3), PrefillSpeed(512, 2204.0, 232.3, 3)))
    head = replace(twin.head, kind="prefill", settings=PrefillSettings((1, 512)))
    return replace(twin, head=head, result=result, run_id=47)


@pytest.fixture
def rows(completed: Run, unbounded: Run, out_of_memory: Run, twin: Run) -> tuple[Run, ...]:
    return completed, unbounded, out_of_memory, twin


@pytest.fixture
def model_file() -> ModelFile:
    tensors = (
        TensorInfo("token_embd.weight", (256, 1000), "q4_K", 144_000),
        TensorInfo("blk.0.ffn_up_exps.weight", (256, 512, 8), "q4_K", 589_824),
        TensorInfo("blk.0.attn_norm.weight", (256,), "f32", 1024),
        TensorInfo("blk.1.\x1b[31mred[/bold].weight", (256, 64), "type 97", None),
        TensorInfo("output.weight", (256, 1000), "q6_K", 210_000),
    )
    return ModelFile(
        name="tiny-moe-q4_k_m", paths=(Path("/models/tiny-moe-q4_k_m.gguf"),), file_bytes=950_000, version=3,
        architecture="qwen2moe",
        metadata={
            "general.architecture": "qwen2moe", "general.file_type": 15,
            "general.name": "tiny\x1b]0;owned\x07 [blink]moe[/blink]", "ggbench.twin": True,
            "qwen2moe.rope.freq_base": 1e6,
            "qwen2moe.attention.head_count_kv": [2, 4, 2, 4, 2, 4, 2, 4, 2, 4],
            "tokenizer.ggml.tokens": ArrayLength(1000),
            "tokenizer.chat_template": "{% for message in messages %}\n{{ message.content }}\n" * 9,
        },
        tensors=tensors, header_sha256="ab" * 32, n_layer=2, n_embd=256, n_head=(4, 4), n_head_kv=(2, 4), head_dim_k=64,
        head_dim_v=64, n_ff=(512, 512), n_vocab=1000, n_ctx_train=32768, n_expert=8, n_expert_used=2,
        states=tuple(LayerState((Rows(64 * heads, 64 * heads),)) for heads in (2, 4)),
    )  # fmt: skip
