"""Every option of a setup, as it reaches llama.cpp's own parameters and the memory that it takes."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ggbench.engines.contract import Source
from ggbench.engines.endings import Completed, Failed
from ggbench.engines.llama import model
from ggbench.engines.llama.c_functions import lib, llama_library
from ggbench.engines.llama.config import LlamaConfig
from ggbench.engines.llama.engine import LlamaEngine
from ggbench.engines.llama.ggml_devices import GgmlDevices
from ggbench.engines.llama.model import LlamaModel, chosen_devices
from ggbench.engines.protocol import Refusal
from ggbench.errors import UsageError

pytestmark = pytest.mark.llama

SETUP = LlamaConfig(n_ctx=512, n_batch=256, n_ubatch=128, flash_attn="on", threads=1)


class Params:
    """llama.cpp's parameters of the last call, and the tensor overrides that they point to."""

    def __init__(self) -> None:
        self.of_model: Any = None
        self.of_context: Any = None
        self.overrides: list[tuple[str, int]] = []
        self.tensor_split: list[float] = []
        self.devices: list[int | None] | None = None

    def load(self, _path: bytes, params: Any) -> int:  # noqa: ANN401 - llama_cpp's structure
        self.of_model, self.overrides, self.devices = params, [], None
        address = params.tensor_buft_overrides
        if address:
            entries = ctypes.cast(address, ctypes.POINTER(model._TensorOverride))
            index = 0
            while entries[index].pattern is not None:
                self.overrides.append((entries[index].pattern.decode(), entries[index].buft))
                index += 1
        if params.tensor_split:
            self.tensor_split = list(params.tensor_split[: lib.llama_max_devices()])
        if params.devices:
            self.devices = [ctypes.cast(params.devices, ctypes.POINTER(ctypes.c_void_p))[0]]
        return 1

    def make(self, _model: int, params: Any) -> int:  # noqa: ANN401 - llama_cpp's structure
        self.of_context = params
        return 1


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Params]:
    params = Params()
    model = LlamaModel.__new__(LlamaModel)  # without llama.cpp's log, which is one for the whole process
    model.handle = model._context = model._described = None
    for name, function in {
        "llama_model_load_from_file": params.load,
        "llama_init_from_model": params.make,
        "llama_model_free": lambda handle: None,
        "llama_free": lambda context: None,
        "llama_n_ctx": lambda context: 512,
        "llama_n_batch": lambda context: 256,
        "llama_n_ubatch": lambda context: 128,
    }.items():
        monkeypatch.setattr(lib, name, function)

    def load(setup: LlamaConfig, *, dry: bool = False) -> Params:
        model.load("x.gguf", setup, GgmlDevices(llama_library()), lambda share: None, dry=dry)
        model.make_context(setup)
        return params

    return load


@pytest.mark.parametrize(
    ("setup", "mode"),
    [
        (LlamaConfig(mlock=True), lib.LLAMA_LOAD_MODE_MMAP_MLOCK),
        (LlamaConfig(mmap=False), lib.LLAMA_LOAD_MODE_NONE),
        (LlamaConfig(mmap=False, mlock=True), lib.LLAMA_LOAD_MODE_MLOCK),
        (LlamaConfig(memory_limit_bytes=1 << 30), lib.LLAMA_LOAD_MODE_NONE),
        (LlamaConfig(memory_limit_bytes=1 << 30, mlock=True), lib.LLAMA_LOAD_MODE_MLOCK),
    ],
    ids=["mlock", "no mmap", "neither", "limit", "limit and mlock"],
)
def test_how_the_file_is_read(load: Callable[..., Params], setup: LlamaConfig, mode: int) -> None:
    """A limit of main memory would count a mapped file twice; a dry load maps nothing."""
    complete = replace(setup, n_ctx=512, threads=1)
    assert load(complete).of_model.load_mode == mode
    dry = load(complete, dry=True).of_model
    assert (dry.load_mode, dry.no_alloc) == (lib.LLAMA_LOAD_MODE_NONE, True)


@pytest.mark.parametrize(
    ("setup", "chosen"),
    [
        (SETUP, [5, 6, 7]),
        (replace(SETUP, devices=("cuda2", "CUDA0")), [5, 7]),
        (replace(SETUP, devices=("CUDA1", "CUDA2"), main_gpu=1), [7]),
        (replace(SETUP, split_mode="none"), [5]),
    ],
)
def test_gpus_are_chosen_by_name_in_llama_cpps_order(setup: LlamaConfig, chosen: list[int]) -> None:
    here = cast("GgmlDevices", SimpleNamespace(offloading=[5, 6, 7], name=lambda device: f"CUDA{device - 5}"))
    assert chosen_devices(here, setup) == chosen
    with pytest.raises(Refusal, match="no GPU cuda3"):
        chosen_devices(here, replace(setup, devices=("CUDA3",)))


@pytest.mark.parametrize(
    ("setup", "mode", "main_gpu"),
    [
        (replace(SETUP, split_mode="row"), lib.LLAMA_SPLIT_MODE_ROW, 0),
        (replace(SETUP, split_mode="tensor"), lib.LLAMA_SPLIT_MODE_TENSOR, 0),
        (replace(SETUP, main_gpu=1, split_mode="row"), lib.LLAMA_SPLIT_MODE_NONE, 1),
    ],
    ids=["row", "tensor", "main GPU and row"],
)
def test_how_gpus_share_a_model(load: Callable[..., Params], setup: LlamaConfig, mode: int, main_gpu: int) -> None:
    model = load(setup).of_model
    assert (model.split_mode, model.main_gpu) == (mode, main_gpu)


def test_no_layer_on_a_gpu_uses_no_device_where_memory_is_planned_or_limited(load: Callable[..., Params]) -> None:
    setup = replace(SETUP, n_gpu_layers=0)
    assert load(setup).devices is None
    assert load(setup, dry=True).devices == [None]
    assert load(replace(setup, memory_limit_bytes=1 << 30)).devices == [None]


def test_the_options_of_a_context(load: Callable[..., Params]) -> None:
    setup = replace(SETUP, type_k="q8_0", type_v="q4_0", flash_attn="off", kv_offload=False, swa_full=True, n_seq_max=4)
    context = load(setup).of_context
    assert (context.type_k, context.type_v) == (lib.GGML_TYPE_Q8_0, lib.GGML_TYPE_Q4_0)
    assert context.flash_attn_type == lib.LLAMA_FLASH_ATTN_TYPE_DISABLED
    assert (context.offload_kqv, context.swa_full, context.n_seq_max) == (False, True, 4)


EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
"""`LLM_FFN_EXPS_REGEX` of llama.cpp's common.h."""


@pytest.mark.parametrize(
    ("setup", "patterns"),
    [
        (replace(SETUP, cpu_moe=True), [EXPERTS]),
        (replace(SETUP, cpu_moe=True, n_cpu_moe=2), [EXPERTS]),
        (replace(SETUP, n_cpu_moe=2), [r"blk\.(0|1)" + EXPERTS]),
        (replace(SETUP, n_cpu_moe=1, override_tensor=("attn=CPU", "a=b=CPU")), ["attn", "a=b", r"blk\.(0)" + EXPERTS]),
    ],
    ids=["cpu-moe", "both", "n-cpu-moe", "given ones first"],
)
def test_experts_and_other_tensors_that_stay_in_main_memory(
    load: Callable[..., Params], setup: LlamaConfig, patterns: list[str]
) -> None:
    cpu = GgmlDevices(llama_library()).buffer_types["CPU"]
    assert load(setup).overrides == [(pattern, cpu) for pattern in patterns]


def test_more_shares_than_llama_cpp_takes_are_refused(load: Callable[..., Params]) -> None:
    with pytest.raises(Refusal, match="17 shares"):
        load(replace(SETUP, tensor_split=(1.0,) * 17))


@pytest.mark.parametrize(
    ("field", "stage", "message"),
    [
        ({"override_tensor": ("((=CPU",)}, "load", "regular expression"),
        ({"override_tensor": ("x=CUDA9",)}, "load", "no buffer type 'CUDA9'"),
        ({"flash_attn": "off", "type_v": "q8_0"}, "context", "V cache"),
        ({"type_v": "q9"}, "context", "no tensor type"),
    ],
    ids=["pattern", "buffer type", "quantized V", "type"],
)
def test_what_the_real_llama_cpp_refuses(
    llama: LlamaEngine, tiny_twin: Path, field: dict[str, Any], stage: str, message: str
) -> None:
    *_, ending = llama.open(Source(tiny_twin), replace(SETUP, **field))
    assert isinstance(ending, Failed)
    assert ending.stage == stage
    assert message in ending.message
    *_, again = llama.open(Source(tiny_twin), SETUP)
    assert again == Completed()


def test_a_quantized_v_cache_without_flash_attention() -> None:
    with pytest.raises(UsageError) as refused:
        LlamaConfig(type_v="q4_0", flash_attn="off").check()
    assert refused.value.message == "a V cache of q4_0 needs flash attention, which is off"
    assert "--flash-attn on" in (refused.value.hint or "")
    for setup in (
        LlamaConfig(type_v="q4_0"),
        LlamaConfig(type_k="q4_0", flash_attn="off"),
        LlamaConfig(type_v="bf16", flash_attn="off"),
    ):
        setup.check()
