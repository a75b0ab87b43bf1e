"""Plans: against the article's tables with the real llama.cpp, and odd answers of a made-up one."""

import io
import math
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines import protocol
from ggbench.engines.contract import Request, Source
from ggbench.engines.endings import Completed, Crashed, Ending, Failed, Outcome
from ggbench.engines.events import Allocated
from ggbench.engines.llama.config import FlashAttn, LlamaConfig, MakeContext
from ggbench.engines.llama.engine import LlamaEngine, launch
from ggbench.gguf_file.header import assemble, encode_header
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.gguf_file.parser import read_header
from ggbench.gguf_file.twin import cached_twin
from ggbench.machine.description import describe_machine
from ggbench.models.catalog import load_catalog
from ggbench.models.published import PublishedFigure, PublishedRow, load_published
from ggbench.models.reference import parse_model
from ggbench.models.targets import Target, resolve_headers
from ggbench.sizing.budget import described_budget
from ggbench.sizing.dry_allocator import DryAllocator
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory, PlanRow
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB
from tests.conftest import TINY
from tests.fakes.engine import Answer, FakeWorker, dry_answer, fake
from tests.fakes.kept_worker import KeptEngine

SIZES = ("0.5b", "1.8b", "4b", "7b", "14b", "32b")
OTHER_MIX = {("qwen1.5-1.8b", "q2_k"), ("qwen1.5-14b", "q2_k")}
"""Where llama.cpp has since changed what it takes for rows that are no multiple of 256."""
LIKE_THE_ARTICLE = LlamaConfig(n_ctx=1024, flash_attn="off", threads=1)

Cells = dict[tuple[str, str | None], PublishedFigure]


def article_cells(table: str, field: str) -> Cells:
    """The numbers that llama.cpp had in a table of the article, by model and quant."""

    def figure(row: PublishedRow) -> PublishedFigure | None:
        found = row.figures.get(field)
        return found if row.source == "article" and row.system == "llama.cpp" and row.table == table else None

    rows = ((row, figure(row)) for row in load_published())
    return {(row.model, row.quant): cell for row, cell in rows if cell is not None and cell.value is not None}


def real() -> KeptEngine:
    return KeptEngine(threading.Event(), timeout_s=60)


@pytest.fixture(scope="module")
def article_plans() -> dict[tuple[str, str | None], PlanRow]:
    budget = described_budget(describe_machine(["rtx-4090"], None), reserve_bytes=784 * MIB)  # 1.25 GiB of 24 GiB
    rows: list[PlanRow] = []
    with DryAllocator(real(), LIKE_THE_ARTICLE) as allocator:
        for size in SIZES:
            rows += plan(
                resolve_headers(parse_model(f"qwen1.5-{size}")), PlanRequest(budget, LIKE_THE_ARTICLE), allocator
            )
    return {(row.model, row.quant): row for row in rows}


@pytest.mark.llama
def test_bpw_as_in_the_article(article_plans: dict[tuple[str, str | None], PlanRow]) -> None:
    cells = article_cells("6.3.6", "bpw")
    assert len(cells) == 46
    differ = {key for key, cell in cells.items() if f"{article_plans[key].bpw:.2f}" != cell.printed}
    assert differ == OTHER_MIX


@pytest.mark.llama
def test_weights_on_the_gpu_as_in_the_article(article_plans: dict[tuple[str, str | None], PlanRow]) -> None:
    cells = article_cells("6.3.7", "weight_buffer_gb")
    assert len(cells) == 46
    planned = {key: article_plans[key].device_weight_bytes or 0 for key in cells}
    differ = {key for key, cell in cells.items() if f"{planned[key] / GIB:.2f}" != cell.printed}
    assert differ == OTHER_MIX


@pytest.mark.llama
def test_kv_as_in_the_article(article_plans: dict[tuple[str, str | None], PlanRow]) -> None:
    cells = article_cells("6.3.8", "kv_buffer_mib")
    assert {model for model, _ in cells} == {f"qwen1.5-{size}" for size in SIZES}
    for (model, _), cell in cells.items():
        row = article_plans[model, "q4_k_m"]
        assert cell.value is not None
        assert row.device_kv_bytes == row.kv_bytes == row.theory_kv_bytes == cell.value * MIB
        assert row.notes == ()


@pytest.mark.llama
def test_the_longest_context_near_the_articles(article_plans: dict[tuple[str, str | None], PlanRow]) -> None:
    cells = article_cells("6.3.9 llama.cpp", "max_n_ctx")
    assert len(cells) == 46
    for key, cell in cells.items():
        if key not in OTHER_MIX:
            assert article_plans[key].planned_n_ctx == pytest.approx(cell.value, rel=0.04, abs=256), key
    assert article_plans["qwen1.5-32b", "q8_0"].fits is False
    assert article_plans["qwen1.5-32b", "q8_0"].planned_n_ctx is None


def recurrent_model() -> ModelFile:
    width, inner, state, rank, vocabulary = 256, 512, 16, 16, 1024

    def tensor(name: str, *shape: int) -> TensorInfo:
        return TensorInfo(name, shape, "f32", 4 * math.prod(shape))

    tensors = [tensor("token_embd.weight", width, vocabulary), tensor("output_norm.weight", width)]
    for layer in range(2):
        shapes = {
            "attn_norm.weight": (width,), "ssm_in.weight": (width, 2 * inner), "ssm_conv1d.weight": (4, inner),
            "ssm_conv1d.bias": (inner,), "ssm_x.weight": (inner, rank + 2 * state), "ssm_dt.weight": (rank, inner),
            "ssm_dt.bias": (inner,), "ssm_a": (state, inner), "ssm_d": (inner,), "ssm_out.weight": (inner, width),
        }  # fmt: skip
        tensors += [tensor(f"blk.{layer}.{name}", *shape) for name, shape in shapes.items()]
    keys = {
        "block_count": 2, "context_length": 4096, "embedding_length": width, "feed_forward_length": 0,
        "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-5, "ssm.conv_kernel": 4,
        "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank, "vocab_size": vocabulary,
    }  # fmt: skip
    metadata = {"general.architecture": "mamba", **{f"mamba.{key}": value for key, value in keys.items()}}
    header = encode_header({**metadata, "tokenizer.ggml.model": "none"}, tensors)
    return assemble([read_header(io.BytesIO(header.data), header.file_bytes, "mamba")], "mamba")


@pytest.mark.llama
def test_a_state_that_does_not_grow() -> None:
    variant = Target("mamba", "f32", "file", file=recurrent_model())
    with DryAllocator(real(), LlamaConfig(threads=1)) as allocator:
        [row] = plan([variant], PlanRequest(budget_of(8)), allocator)
    assert (row.planned_n_ctx, row.reached_ceiling, row.fits) == (1 << 20, True, True)
    state_bytes = 2 * (3 + 16) * 512 * 4  # 2 layers x (3 x 512 of convolution + 16 x 512 of state), in f32
    assert row.kv_bytes == pytest.approx(state_bytes, abs=6000)  # logged to 0.01 MiB
    assert (row.theory_kv_bytes, row.kv_bytes_per_token) == (state_bytes, 0)
    assert row.devices[0].kv_bytes == row.kv_bytes


def budget_of(gib: float, *, on_gpu: bool = True) -> Budget:
    memory = DeviceMemory("CUDA0" if on_gpu else HOST_DEVICE, round(gib * GIB), bandwidth=Bandwidth(100e9, "made up"))
    return Budget((memory,)) if on_gpu else Budget(host=memory)


def plan_tiny(
    answer: Answer, budget: Budget, setup: LlamaConfig | None = None, quants: tuple[str, ...] = ("f16",)
) -> list[PlanRow]:
    """Plans of the tiny model, whose true cache is 2 MiB for 1024 tokens, with an engine that answers so."""
    file = build_model(TINY, "tiny")
    variants = [Target("tiny", quant, "catalog", file=file) for quant in quants]

    with DryAllocator(fake(answer), setup or LlamaConfig()) as allocator:
        return list(plan(variants, PlanRequest(budget, setup or LlamaConfig()), allocator))


def test_the_budget_is_used_up_to_one_step() -> None:
    [row] = plan_tiny(dry_answer(2, device="CUDA0"), budget_of(0.5))
    assert row.device_weight_bytes is not None
    assert row.planned_n_ctx is not None
    room = GIB // 2 - row.device_weight_bytes - 100 * MIB
    assert row.planned_n_ctx * 2048 <= room < (row.planned_n_ctx + 256) * 2048
    assert row.compute_bytes == 100 * MIB
    assert row.devices[-1].compute_bytes == 7 * MIB + (row.output_bytes or 0)
    assert row.left_bytes == room - 4096 * 2048
    assert row.n_ctx == TINY.n_ctx_train == 4096
    assert row.used_of(row.planned_n_ctx) == 4096


def test_on_the_cpu_everything_lies_in_main_memory() -> None:
    [row] = plan_tiny(dry_answer(2), budget_of(1, on_gpu=False))
    assert (row.device_weight_bytes, row.host_weight_bytes) == (row.weight_bytes, 0)
    assert (row.compute_bytes, row.output_bytes) == (107 * MIB, MIB)
    assert row.weight_bytes is not None
    assert row.left_bytes == GIB - row.weight_bytes - (8 + 107 + 1) * MIB
    assert row.n_gpu_layers is None


@pytest.mark.llama
@pytest.mark.parametrize("flash_attn", ["on", "off"])
def test_what_is_planned_is_what_is_allocated(tiny_twin: Path, flash_attn: FlashAttn) -> None:
    setup = LlamaConfig(n_ctx=2048, flash_attn=flash_attn, threads=1)
    [variant] = resolve_headers(parse_model(str(tiny_twin)))
    with DryAllocator(real(), setup) as allocator:
        [row] = plan([variant], PlanRequest(budget_of(1, on_gpu=False), setup), allocator)
    engine = real()
    events = list(engine.open(Source(tiny_twin), replace(setup, memory_limit_bytes=GIB)))
    engine.close()
    allocated = [event for event in events if isinstance(event, Allocated)][-1]
    planned = {"weight": row.weight_bytes, "kv": row.kv_bytes, "compute": row.compute_bytes, "output": row.output_bytes}
    for kind, n_bytes in planned.items():
        assert n_bytes == pytest.approx(allocated.total(f"{kind}_bytes"), abs=0.02 * MIB), kind
    assert row.flash_attn == allocated.flash_attn


def test_a_refused_context_is_a_row_with_the_reason_and_the_weights() -> None:
    def refuse(request: Request) -> Iterator[protocol.Message | Ending]:
        yield Failed("context", "no") if isinstance(request, MakeContext) else Completed()

    rows = plan_tiny(refuse, budget_of(1), quants=("f16", "again"))
    assert [row.outcome for row in rows] == [Outcome.FAILED] * 2
    assert all(row.reason == "context failed: no" and row.weight_bytes and row.fits is None for row in rows)


def test_lengths_that_llama_cpp_refuses_are_too_long() -> None:
    usual = dry_answer(2)

    def refuse_long(request: Request) -> Iterator[protocol.Message | Ending]:
        is_long = isinstance(request, MakeContext) and (request.setup.n_ctx or 0) > 6000
        yield from [Failed("context", "no")] if is_long else usual(request)

    [row] = plan_tiny(refuse_long, budget_of(1))
    assert row.planned_n_ctx == 5888


@pytest.mark.llama
@pytest.mark.parametrize(("gib", "kv_type"), [(16, None), (13, "q8_0")])
def test_a_quant_that_does_not_fit_names_the_cache_with_which_it_would(gib: float, kv_type: str | None) -> None:
    """A plan with it agrees; none is named where it fits as it is."""
    variants = resolve_headers(parse_model("qwen1.5-7b", "q8_0"))
    setup = LlamaConfig(n_ctx=16_384, threads=1)
    with DryAllocator(real(), setup) as allocator:
        [row] = plan(variants, PlanRequest(budget_of(gib), setup), allocator)
    caches = [each.setup.type_k for each in row.changes if each.kind == "KV q8_0" and each.setup and each.fits]
    assert caches == ([kv_type] if kv_type else [])
    assert row.fits is (gib == 16)
    assert row.needed_bytes == (row.budget_bytes or 0) - (row.left_bytes or 0)
    for tried in ("f16", "q8_0"):
        smaller = replace(setup, type_k=tried, type_v=tried)
        with DryAllocator(real(), smaller) as allocator:
            [again] = plan(variants, PlanRequest(budget_of(gib), smaller), allocator)
        if again.fits:
            assert tried == (kv_type or "f16")
            break


def test_what_is_missing_is_said_where_not_even_the_weights_fit() -> None:
    [row] = plan_tiny(dry_answer(2), budget_of(0.001), LlamaConfig(n_ctx=1024))
    assert row.device_weight_bytes is not None and row.budget_bytes is not None
    assert (row.fits, row.planned_n_ctx) == (False, None)
    assert row.left_bytes == row.budget_bytes - row.device_weight_bytes - 109 * MIB


def test_speeds_are_the_bandwidth_over_what_a_token_reads() -> None:
    """100 GB/s read the weights and the cache of position n once."""
    [row] = plan_tiny(dry_answer(2), budget_of(1))
    weights = build_model(TINY, "tiny").active_weight_bytes
    assert weights is not None and row.n_ctx is not None
    assert row.limit_tok_s == pytest.approx(100e9 / (weights + 2048 * row.n_ctx), rel=1e-6)
    without = (replace(budget_of(1).devices[0], bandwidth=None),)
    [unknown] = plan_tiny(dry_answer(2), replace(budget_of(1), devices=without))
    assert unknown.limit_tok_s is None


def test_a_worker_that_dies_is_a_row_and_the_next_quant_gets_another() -> None:
    workers: list[FakeWorker] = []

    def die(request: Request) -> Iterator[protocol.Message | Ending]:
        yield Crashed("it died")

    def start() -> FakeWorker:
        workers.append(FakeWorker(threading.Event(), dry_answer(2) if workers else die))
        return workers[-1]

    variants = [Target("tiny", quant, "catalog", file=build_model(TINY, "tiny")) for quant in ("f16", "again")]
    with DryAllocator(LlamaEngine(start), LlamaConfig()) as allocator:
        rows = list(plan(variants, PlanRequest(budget_of(1)), allocator))
    assert [row.outcome for row in rows] == [Outcome.CRASHED, Outcome.COMPLETED]
    assert "it died" in rows[0].reason
    assert all(worker.closed for worker in workers)


def test_a_file_that_cannot_be_read_is_a_row_with_the_reason(tiny_twin: Path, tmp_path: Path) -> None:
    (tmp_path / "m-q4_0.gguf").write_bytes(b"junk")
    (tmp_path / "m-q8_0.gguf").write_bytes(tiny_twin.read_bytes()[: 64 << 10])
    variants = resolve_headers(parse_model(str(tmp_path)))
    with DryAllocator(fake(dry_answer(2)), LlamaConfig()) as allocator:
        rows = {row.quant: row for row in plan(variants, PlanRequest(budget_of(1)), allocator)}
    assert "not a GGUF" in rows["q4_0"].reason
    assert "m-q8_0.gguf is truncated" in rows["q8_0"].reason


SETUP = LlamaConfig(n_ctx=4096, threads=1)


def shallow_twins(name: str, folder: Path) -> list[Path]:
    """Three quants with two of the model's own layers, their embeddings being for fewer tokens."""
    hyper = replace(load_catalog().model(name).hyper, n_layer=2, n_vocab=8192)
    return [cached_twin(name, hyper, quant, folder) for quant in ("q8_0", "q4_k_m", "q2_k")]


def planned(path: Path) -> PlanRow:
    budget = Budget(host=DeviceMemory(HOST_DEVICE, 4 * GIB))
    with DryAllocator(real(), SETUP) as allocator:
        [row] = plan(resolve_headers(parse_model(str(path))), PlanRequest(budget, SETUP), allocator)
    return row


def probed(path: Path) -> Allocated:
    engine = launch(threading.Event(), timeout_s=60)
    opened = list(engine.open(Source(path), replace(SETUP, n_ctx=4096, memory_limit_bytes=4 * GIB)))
    engine.close()
    return [event for event in opened if isinstance(event, Allocated)][-1]


@pytest.mark.llama
def test_the_plan_is_within_a_mebibyte_of_real_buffers(tmp_path: Path) -> None:
    """Three quants, loaded under a limit, so that llama.cpp maps no file.

    Then every tensor lies in one buffer alone, CPU or CPU_REPACK, and their sum is the planned weights. In a mapped
    file the repacked tensors would lie in both, and the mapped buffer would be the span of the others, gaps included.
    """
    for path in shallow_twins("qwen1.5-1.8b", tmp_path):
        row, real = planned(path), probed(path)
        pairs = {
            "weights": (row.weight_bytes, real.total("weight_bytes")),
            "KV": (row.kv_bytes, real.total("kv_bytes")),
            "compute": (row.compute_bytes, real.total("compute_bytes")),
        }
        for what, (planned_bytes, real_bytes) in pairs.items():
            assert real_bytes > 0, (path.name, what)
            assert planned_bytes == pytest.approx(real_bytes, abs=MIB), (path.name, what)
