"""Where weights and cache lie under each option, counted from tensor sizes, and as llama.cpp places them itself."""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import DescribedDevice, launch_engine
from ggbench.engines.events import Allocated, MemoryKind
from ggbench.engines.llama.c_functions import llama_library
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.described_devices import DescribedDevices
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.logs import parse_allocations
from ggbench.engines.llama.model import LlamaModel
from ggbench.errors import Unsupported
from ggbench.gguf_file.layout import build_model
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.parser import ArrayLength
from ggbench.gguf_file.twin import write_sparse
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.budget import BESIDE_BUFFERS_BYTES
from ggbench.sizing.dry_allocator import DryAllocator, DryContext
from ggbench.sizing.layer_sample import layer_placements
from ggbench.sizing.placement import ONE_GPU, Placement
from ggbench.sizing.plan import PlanRequest, plan
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory
from ggbench.sizing.speed_limits import speed_limit, weights_ratio
from ggbench.stats.decode_timing import Bandwidth
from ggbench.units import GIB, MIB
from tests.conftest import TINY
from tests.fakes.engine import FakeWorker, dry_answer, fake

CONTEXT = DryContext(4096, 1024 * MIB, 100 * MIB, 7 * MIB, 1 * MIB, True)
RATE = Bandwidth(1e12, "made up")
GPU = DeviceMemory("CUDA0", 24 * GIB, bandwidth=RATE)
BUDGET = Budget((GPU,))


@pytest.fixture(scope="module")
def moe() -> ModelFile:
    [variant] = resolve_headers(parse_model("qwen1.5-moe-a2.7b", "q4_k_m"))
    assert variant.file is not None
    return variant.file


def bytes_of(file: ModelFile, pattern: str) -> int:
    """Return the bytes of the tensors whose names match; there has to be one."""
    sizes = [tensor.n_bytes or 0 for tensor in file.tensors if re.search(pattern, tensor.name)]
    assert sizes
    return sum(sizes)


@pytest.mark.llama
@pytest.mark.parametrize(
    ("setup", "kept"),
    [
        (LlamaConfig(cpu_moe=True), r"ffn_(up|down|gate)_exps"),
        (LlamaConfig(n_cpu_moe=10), r"^blk\.\d\.ffn_(up|down|gate)_exps"),
        (LlamaConfig(n_cpu_moe=99), r"ffn_(up|down|gate)_exps"),
        (LlamaConfig(override_tensor=(r"blk\.1\d\.ffn_up_exps=CPU", "attn_q=CPU")),
         r"^blk\.1\d\.ffn_up_exps|attn_q"),
        (LlamaConfig(override_tensor=("ffn_up_exps=CUDA0",), cpu_moe=True), r"ffn_(down|gate)_exps"),
    ],
    ids=["--cpu-moe", "--n-cpu-moe", "above the layers", "--override-tensor", "the first that matches decides"],
)  # fmt: skip
def test_tensors_that_are_kept_in_main_memory(moe: ModelFile, setup: LlamaConfig, kept: str) -> None:
    placement, plain = Placement(moe, setup, [ONE_GPU]), Placement(moe, LlamaConfig(), [ONE_GPU])
    assert plain.weight_bytes is not None and placement.weight_bytes is not None
    assert plain.host_weight_bytes == bytes_of(moe, r"^token_embd")
    assert placement.weight_bytes == plain.weight_bytes - bytes_of(moe, kept)
    assert placement.weight_bytes + (placement.host_weight_bytes or 0) == moe.weight_bytes
    assert placement.cache_bytes(CONTEXT) == CONTEXT.cache_bytes
    assert (plain.is_split, placement.is_split) == (False, True)
    in_main_memory = Placement(moe, setup)
    assert (in_main_memory.weight_bytes, in_main_memory.host_weight_bytes) == (moe.weight_bytes, 0)


@pytest.mark.llama
def test_experts_beside_layers_that_are_not_offloaded(moe: ModelFile) -> None:
    whole = Placement(moe, LlamaConfig(n_gpu_layers=12), [ONE_GPU])
    without = Placement(moe, LlamaConfig(n_gpu_layers=12, cpu_moe=True), [ONE_GPU])
    assert whole.weight_bytes is not None and without.weight_bytes is not None
    assert whole.weight_bytes - without.weight_bytes == bytes_of(moe, r"^blk\.(1[3-9]|2\d)\.ffn_(up|down|gate)_exps")
    assert without.cache_bytes(CONTEXT) == round(CONTEXT.cache_bytes * 11 / 24)


def test_a_cache_in_main_memory_takes_nothing_of_the_gpu() -> None:
    file = build_model(TINY, "tiny")
    placement = Placement(file, LlamaConfig(kv_offload=False), [ONE_GPU])
    assert placement.weight_bytes == Placement(file, LlamaConfig(), [ONE_GPU]).weight_bytes
    assert placement.cache_bytes(CONTEXT) == 0
    assert placement.compute_bytes(CONTEXT) == CONTEXT.device_compute_bytes
    in_main_memory = Placement(file, LlamaConfig(kv_offload=False))
    assert in_main_memory.cache_bytes(CONTEXT) == CONTEXT.cache_bytes


@pytest.mark.llama
@pytest.mark.parametrize("setup", [LlamaConfig(n_ctx=1024, cpu_moe=True), LlamaConfig(n_ctx=1024, kv_offload=False)])
def test_a_plan_counts_what_lies_in_main_memory(setup: LlamaConfig) -> None:
    """Its bandwidth is not known, so there is no limit."""
    variants = resolve_headers(parse_model("qwen1.5-moe-a2.7b", "q4_k_m"))
    rows = {}
    for each in (LlamaConfig(n_ctx=1024), setup):
        with DryAllocator(fake(dry_answer(192, device="CUDA0")), each) as allocator:
            [rows[each]] = plan(variants, PlanRequest(BUDGET, each), allocator)
    row, plain = rows[setup], rows[LlamaConfig(n_ctx=1024)]
    assert (plain.is_split, row.is_split) == (False, True)
    assert plain.limit_tok_s is not None and row.limit_tok_s is None
    assert row.devices[-1].needed_bytes > plain.devices[-1].needed_bytes
    assert (row.planned_n_ctx or 0) > (plain.planned_n_ctx or 0)
    assert row.kv_bytes == plain.kv_bytes == 192 * MIB


def test_every_option_of_a_context_reaches_the_dry_allocator(tmp_path: Path) -> None:
    worker = FakeWorker(threading.Event(), dry_answer(2))
    setup = LlamaConfig(
        n_ctx=99, n_ubatch=128, type_k="q8_0", threads=3, threads_batch=5, swa_full=True, kv_offload=False,
        memory_limit_bytes=GIB, cpu_moe=True, n_seq_max=4,
    )  # fmt: skip
    file = build_model(TINY, "tiny")
    with DryAllocator(LlamaEngine(lambda: worker), setup) as dry:
        dry.load(file, write_sparse(file, tmp_path))
        dry.context(1024)
    load, context = worker.requests
    assert load.setup == LlamaConfig(cpu_moe=True)  # type: ignore[attr-defined]
    assert context.setup == LlamaConfig(  # type: ignore[attr-defined]
        n_ctx=1024, n_ubatch=128, type_k="q8_0", threads=3, threads_batch=5, swa_full=True, kv_offload=False,
        cpu_moe=True, n_seq_max=4,
    )  # fmt: skip


def test_a_large_vocabulary_takes_memory_besides_the_buffers() -> None:
    """Gemma 3 270M: 236 tensors, 262,144 tokens; under 1 GiB its largest context that decodes is 165,376 tokens long.

    All of the limit that its buffers left there, 1024 - 916 MiB, was taken; a GPU's memory holds none of it.
    """
    [variant] = resolve_headers(parse_model("qwen1.5-0.5b", "q4_k_m"))
    assert variant.file is not None
    file = variant.file
    large = replace(
        file, tensors=file.tensors[:236], metadata=file.metadata | {"tokenizer.ggml.tokens": ArrayLength(262_144)}
    )
    context = DryContext(165_376, 523_763_712, 0, 189_059_072, 1 * MIB, True)
    besides = BESIDE_BUFFERS_BYTES + Placement(large, LlamaConfig()).unreserved_bytes(context)
    assert besides == pytest.approx(108 * MIB, rel=0.04)
    assert Placement(large, LlamaConfig(), [ONE_GPU]).unreserved_bytes(context) == 0
    without_vocabulary = Placement(file, LlamaConfig())
    assert without_vocabulary.unreserved_bytes(replace(context, n_ctx=512)) == 0


MODEL = build_model(replace(TINY, n_layer=4), "tiny")
EXPERTS = build_model(
    replace(
        TINY, architecture="qwen2moe", n_layer=4, n_expert=4, n_expert_used=2, n_ff_expert=256, n_ff_shared_expert=512
    ),
    "moe",
)


@pytest.mark.parametrize(("n_gpu_layers", "placed"), [(-1, -1), (5, -1), (99, -1), (0, 0)])
def test_a_model_in_one_memory_is_placed_as_a_whole(n_gpu_layers: int, placed: int) -> None:
    (only,) = layer_placements(MODEL, LlamaConfig(n_gpu_layers=n_gpu_layers))
    assert (only.layers, only.setup.n_gpu_layers, only.name) == ((0, 1, 2, 3), placed, "")


def test_the_last_layers_go_to_the_gpu() -> None:
    first, second = layer_placements(MODEL, LlamaConfig(n_gpu_layers=2, n_cpu_moe=1))
    assert (first.layers, first.setup.n_gpu_layers, first.name) == ((3,), -1, "1 on the GPU")
    assert (second.layers, second.setup.n_gpu_layers, second.name) == ((0, 1, 2), 0, "")


def test_experts_in_main_memory_are_a_placement_of_their_own() -> None:
    whole, kept = layer_placements(EXPERTS, LlamaConfig(n_cpu_moe=3))
    assert (whole.layers, kept.layers) == ((3,), (0, 1, 2))
    assert kept.name == "3 on the GPU with their experts in main memory"
    assert (kept.setup.cpu_moe, whole.setup.cpu_moe) == (True, False)
    with pytest.raises(Unsupported, match="--override-tensor"):
        layer_placements(EXPERTS, LlamaConfig(override_tensor=("ffn_up=CPU",)))
    setups = (LlamaConfig(n_cpu_moe=3), LlamaConfig(n_gpu_layers=3, cpu_moe=True), LlamaConfig(n_gpu_layers=2))
    assert [Placement(EXPERTS, each, [ONE_GPU]).n_crossed for each in setups] == [3, 2, 0]
    all_kept, in_main_memory = layer_placements(EXPERTS, LlamaConfig(n_gpu_layers=3, cpu_moe=True))
    assert (all_kept.layers, in_main_memory.layers) == ((2, 3), (0, 1))


def test_several_sequences_of_a_mixture_read_the_union_of_their_experts(moe: ModelFile) -> None:
    """4 of 60 experts are read 1.93 times by two sequences, if all that is slow to read is experts."""
    fast, slow = Bandwidth(1e15, "made up"), Bandwidth(50e9, "made up")
    gpu, host = DeviceMemory("CUDA0", GIB, bandwidth=fast), DeviceMemory(HOST_DEVICE, GIB, bandwidth=slow)
    split = Placement(moe, LlamaConfig(cpu_moe=True), [gpu], host)
    assert weights_ratio(split, 2) == pytest.approx(1 + 56 / 60, rel=1e-3)
    assert weights_ratio(split, 8) == pytest.approx((1 - (56 / 60) ** 8) * 15, rel=1e-2)
    whole = Placement(moe, LlamaConfig(), [gpu])
    assert 1 < weights_ratio(whole, 2) < 1 + 56 / 60, "other weights are read once"
    unknown_rate = Placement(moe, LlamaConfig(cpu_moe=True), [gpu])
    assert weights_ratio(unknown_rate, 2) == pytest.approx(weights_ratio(whole, 2))
    unknown = replace(moe, tensors=(*moe.tensors, replace(moe.tensors[0], name="blk.0.x.weight", n_bytes=None)))
    assert weights_ratio(Placement(unknown, LlamaConfig(), [gpu]), 2) == 1


def _cards(*free_bytes: int) -> tuple[DeviceMemory, ...]:
    rate = Bandwidth(1e12, "made up")
    return tuple(
        DeviceMemory(f"CUDA{number}", each, backend="CUDA", bandwidth=rate) for number, each in enumerate(free_bytes)
    )


@pytest.mark.llama
@pytest.mark.parametrize(("model", "shares"), [(MODEL, ()), (EXPERTS, ()), (MODEL, (2.0, 1.0))])
def test_what_each_device_holds_of_every_layer_is_what_llama_cpp_asks_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, model: ModelFile, shares: tuple[float, ...]
) -> None:
    """With `-sm tensor` llama.cpp loads the model and makes the context, and each device's buffers are counted."""
    asked: dict[str, list[int]] = {"CUDA0": [], "CUDA1": []}
    make_function, make_device = DescribedDevices._function, DescribedDevices._device

    def counting(self: DescribedDevices, index: int, described: DescribedDevice) -> int:
        def counted(this: DescribedDevices, result: object, types: Sequence[object], function: Any) -> Any:  # noqa: ANN401
            def allocate(buffer_type: int, size: int) -> object:
                asked[described.name].append(size)
                return function(buffer_type, size)

            return make_function(this, result, types, allocate if function.__name__ == "allocate" else function)

        monkeypatch.setattr(DescribedDevices, "_function", counted)
        return make_device(self, index, described)

    monkeypatch.setattr(DescribedDevices, "_device", counting)
    setup = LlamaConfig(n_ctx=1024, threads=1, split_mode="tensor", tensor_split=shares, mmap=False)
    allocated = _loaded(write_sparse(model, tmp_path), setup)
    placement = Placement(model, setup, _cards(GIB, GIB))
    [meta] = (each for each in allocated.buffers if not each.is_host)
    context = DryContext(1024, allocated.cache_bytes or 0, meta.compute_bytes, 0, 0, True)
    for card, (weights, *cache, compute) in zip(placement.planned(context), asked.values(), strict=False):
        assert card.weight_bytes == pytest.approx(weights, rel=1e-3)
        assert card.kv_bytes == sum(cache)
        summed = 4 * 256 * 512 * max(1, model.n_expert_used)
        assert card.compute_bytes - summed == pytest.approx(compute, abs=5 << 10)


@pytest.mark.llama
def test_copies_of_a_prompt_in_flight_are_those_that_llama_cpp_makes(tmp_path: Path) -> None:
    """Split by layers, several batches of a prompt are on their way, in main memory too: dry as loaded."""
    setup, path = LlamaConfig(n_ctx=1024, threads=1, mmap=False), write_sparse(MODEL, tmp_path)
    loaded = _loaded(path, setup)
    with DryAllocator(launch_engine(setup), setup, _cards(GIB, GIB)) as allocator:
        allocator.load(MODEL, path)
        context = allocator.context(1024, setup)
    found = {each.device: each.compute_bytes for each in loaded.buffers}
    assert context.host_compute_bytes == found.pop("CPU") > 3 * 4 * 256 * 512, "of the embeddings alone"
    assert dict(context.device_compute) == found


def _loaded(path: Path, setup: LlamaConfig) -> Allocated:
    """Return what llama.cpp allocates for a file on two described cards, in main memory here."""
    lines: list[str] = []
    llama, devices = LlamaModel(lambda _, line: lines.append(line), lambda: None), GgmlDevices(llama_library())
    described = tuple(DescribedDevice(each.device, "CUDA", GIB) for each in _cards(GIB, GIB))
    llama.load(str(path), setup, devices, lambda _: None, dry=False, described=described)
    llama.make_context(setup)
    llama.free_context()
    return parse_allocations(lines, devices.places | {each.name: MemoryKind.GPU for each in described})


def test_devices_that_split_each_layer_are_limited_by_the_slowest() -> None:
    """Split by layers, a token reads one card after the other."""
    limits = {}
    for mode in ("layer", "tensor"):
        setup = LlamaConfig(n_ctx=1024, split_mode=mode)
        budget = Budget(tuple(_cards(GIB, GIB)))
        placement = Placement.of(MODEL, setup, budget)
        limits[mode] = speed_limit(placement, 1024)
        assert sum(placement.read_bytes(1).values()) == pytest.approx(
            sum(Placement.of(MODEL, LlamaConfig(), budget).read_bytes(1).values()), rel=0.03
        )
    by_layers, by_tensors = limits["layer"], limits["tensor"]
    assert by_layers and by_tensors
    assert by_tensors == pytest.approx(by_layers * 2, rel=0.02)


def test_a_split_cache_of_deepseek_v4_is_on_every_device() -> None:
    """llama.cpp copies it."""
    setup = LlamaConfig(split_mode="tensor")
    whole, copied = (
        Placement(replace(MODEL, architecture=name, no_kv_reason="mixes"), setup, _cards(GIB, GIB))
        for name in ("qwen2", "deepseek4")
    )
    assert whole.cache_bytes(CONTEXT) == CONTEXT.cache_bytes
    assert copied.cache_bytes(CONTEXT) == 2 * CONTEXT.cache_bytes
