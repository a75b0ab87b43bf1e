"""Speeds of GPUs that nobody measured here, beside the published rows that they are from."""

import functools
import statistics

import pytest

from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.published_speed import published_curve
from ggbench.gguf_file.model_file import ModelFile
from ggbench.machine.description import describe_machine
from ggbench.models.published.benches import load_benches
from ggbench.models.reference import parse_model
from ggbench.models.targets import resolve_headers
from ggbench.sizing.budget import described_budget
from ggbench.sizing.placement import Placement
from ggbench.stats.speed_curve import SpeedCurve


@functools.cache
def _file(model: str) -> ModelFile:
    [target] = resolve_headers(parse_model(model))
    assert target.file is not None
    return target.file


def _speed(model: str, gpu: str, ram: str | None = None, setup: LlamaConfig | None = None) -> SpeedCurve:
    budget = described_budget(describe_machine([gpu], ram), reserve_bytes=None)
    found = published_curve(Placement.of(_file(model), setup or LlamaConfig(), budget), is_here=False)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "name", "quant", "device"),
    [
        ("qwen2.5-7b:q8_0", "qwen2 7B", "q8_0", "dgx-spark"),
        ("qwen3-30b-a3b:q8_0", "qwen3moe 30B.A3B", "q8_0", "m2-ultra-192gb"),
        ("gpt-oss-20b:mxfp4_moe", "gpt-oss 20B", "mxfp4", "v100-pcie-16gb"),
    ],
)
def test_a_device_with_rows_is_as_fast_as_its_rows_at_every_depth(
    model: str, name: str, quant: str, device: str
) -> None:
    known = _speed(model, device)
    assert known.basis == "published" and "row" in known.source
    errors = []
    for row in load_benches():
        if (row.device, row.model, row.quant, row.count) == (device, name, quant, 1) and row.test.startswith("tg"):
            expected = known.tok_s_at(row.n_depth + int(row.test[2:]) // 2)
            assert expected.low <= row.tok_s <= expected.high
            errors.append(abs(expected.value / row.tok_s - 1))
    assert len(errors) >= 2 and statistics.median(errors) < 0.15


def test_the_less_is_known_of_a_device_the_wider_is_the_interval() -> None:
    """A device has its own rows, its family's, or those of a backend alone."""
    widths = {}
    for gpu in ("rtx-3090", "rtx-3060", "12GiB@360GB/s"):
        known = _speed("llama-3.1-8b:q4_k_m", gpu)
        step = known.step_ms_at(1024)
        assert known.basis == "published"
        widths[gpu] = step.high / step.value
    assert list(widths.values()) == sorted(widths.values())


def test_experts_in_main_memory_take_its_time() -> None:
    """At 60 GB/s they take longer than all that the card reads, and less than at a fifth of that."""
    setup = LlamaConfig(n_cpu_moe=99)
    on_card = _speed("qwen3-30b-a3b:q4_k_m", "rtx-3090")
    fast, slow = (_speed("qwen3-30b-a3b:q4_k_m", "rtx-3090", f"64GiB@{rate}GB/s", setup) for rate in (60, 12))
    steps = [each.step_ms_at(1024).value for each in (on_card, fast, slow)]
    assert steps[0] < 0.5 * steps[1] < 0.25 * steps[2]


@pytest.mark.parametrize(
    ("model", "gpu", "ram", "n_cpu_moe"),
    [
        ("qwen3-30b-a3b:q4_k_m", "rtx-2080", "62GiB@102GB/s", 36),
        ("qwen3-30b-a3b:q4_k_m", "quadro-rtx-5000", "64GiB@64GB/s", 24),
        ("qwen3.5-35b-a3b:q4_k_m", "rtx-5080", "128GiB@77GB/s", 24),
        ("qwen3.5-35b-a3b:q4_k_m", "rtx-5070-ti", "32GiB@86.4GB/s", 14),
    ],
)
def test_decoding_with_experts_in_main_memory_is_as_others_timed_it(
    model: str, gpu: str, ram: str, n_cpu_moe: int
) -> None:
    name, _, quant = model.partition(":")
    [measured] = {
        row.tok_s for row in load_benches()
        if (row.device, row.n_cpu_moe, row.quant) == (gpu, n_cpu_moe, quant) and row.test.startswith("tg")
        and (row.model == "qwen3moe 30B.A3B") == (name == "qwen3-30b-a3b")
    }  # fmt: skip
    known = _speed(model, gpu, ram, LlamaConfig(n_cpu_moe=n_cpu_moe))
    expected = known.tok_s_at(128)
    assert expected.low < measured < expected.high
    assert expected.value == pytest.approx(measured, rel=0.35)
    assert "experts in main memory" in known.source


def test_a_machine_without_a_gpu_is_slower_with_fewer_threads() -> None:
    budget = described_budget(describe_machine([], "64GiB@ddr5-5200x2"), reserve_bytes=None)
    curves = [
        published_curve(Placement.of(_file("llama-3.1-8b:q4_0"), LlamaConfig(threads=n), budget), is_here=False)
        for n in (2, None)
    ]
    [two], [eight] = ([curve.tok_s_at(64)] if curve is not None else [] for curve in curves)
    [measured] = {
        row.tok_s for row in load_benches()
        if (row.device, row.quant, row.test, row.n_threads) == ("AMD Ryzen 9 7950X", "q4_0", "tg128", 2)
    }  # fmt: skip
    assert two.low < measured < two.high
    assert two.value < 0.9 * eight.value


@pytest.mark.parametrize(
    ("model", "gpu", "n_cpu_moe", "n_ubatch", "n_prompt"),
    [
        ("qwen3-30b-a3b:q4_k_m", "quadro-rtx-5000", 24, 512, 512),
        ("qwen3-30b-a3b:q4_k_m", "quadro-rtx-5000", 40, 512, 8192),
        ("gpt-oss-120b:mxfp4_moe", "rtx-3090", 26, 512, 4096),
        ("gpt-oss-120b:mxfp4_moe", "rtx-3090", 25, 2048, 4096),
    ],
)
def test_prompts_with_experts_in_main_memory_are_as_others_timed_them(
    model: str, gpu: str, n_cpu_moe: int, n_ubatch: int, n_prompt: int
) -> None:
    [measured] = {
        row.tok_s for row in load_benches()
        if (row.device, row.n_cpu_moe, row.n_ubatch, row.test) == (gpu, n_cpu_moe, n_ubatch, f"pp{n_prompt}")
        and row.model.split()[0] in ("qwen3moe", "gpt-oss")
    }  # fmt: skip
    known = _speed(model, gpu, "64GiB@60GB/s", LlamaConfig(n_cpu_moe=n_cpu_moe, n_ubatch=n_ubatch))
    prompt = known.prefill_ms_at(n_prompt)
    assert prompt is not None
    assert prompt.low < 1e3 * n_prompt / measured < prompt.high
    assert 0.4 < prompt.value / (1e3 * n_prompt / measured) < 2.5


@pytest.mark.parametrize(("n_prompt", "measured"), [(8192, 1030.28), (32768, 568.13)])
def test_prompts_on_a_mac_are_as_others_timed_them_also_when_long(n_prompt: int, measured: float) -> None:
    """Apple states no rate of an M4: it follows from the cores. Source: llama.cpp discussion 15396."""
    prompt = _speed("gpt-oss-20b:mxfp4_moe", "m4-max-36gb").prefill_ms_at(n_prompt)
    assert prompt is not None and prompt.low < 1e3 * n_prompt / measured < prompt.high
    assert prompt.value == pytest.approx(1e3 * n_prompt / measured, rel=0.35)


def test_prompts_take_longer_on_a_slower_card_and_are_unknown_without_its_rate() -> None:
    fast, slow = (_speed("llama-3.1-8b:q4_k_m", gpu).prefill_ms_at(2048) for gpu in ("rtx-4090", "rtx-3060"))
    assert fast is not None and slow is not None and 2 * fast.value < slow.value
    assert not _speed("llama-3.1-8b:q4_k_m", "12GiB@360GB/s").prefill_ms


@pytest.mark.parametrize(
    ("gpu", "n_cpu_moe", "said"),
    [
        ("rtx-3090", 0, ["rows of NVIDIA GeForce RTX 3090", "other Ampere with CUDA"]),
        ("rtx-3060", 20, ["other Ampere with CUDA", "experts in main memory"]),
        ("12GiB@360GB/s", 0, ["rows of other devices"]),
    ],
)
def test_an_estimate_says_what_rows_it_leans_on(gpu: str, n_cpu_moe: int, said: list[str]) -> None:
    known = _speed("qwen3-30b-a3b:q4_k_m", gpu, "64GiB@60GB/s", LlamaConfig(n_cpu_moe=n_cpu_moe))
    assert all(text in known.source for text in said), known.source


@pytest.mark.parametrize(
    ("model", "gpu", "n", "measured"),
    [
        ("qwen3.8-27b:q4_k_m", "rx-7900-xtxx2", 64, 1.31 * 34.03),  # llama.cpp issue 28863, of one card
        ("qwen3.6-27b:q4_k_m", "rtx-3090-tix2", 64, 58),
        ("llama-3.1-70b:q4_k_m", "rtx-4090x4", 32832, 28.94),
        ("gpt-oss-120b:mxfp4_moe", "rtx-4090x4", 64, 179.79),
    ],
)
def test_devices_that_split_each_layer_read_at_once(model: str, gpu: str, n: int, measured: float) -> None:
    """The pairs that were measured lie in the intervals; a token is then read faster than by layers in turn."""
    expected = _speed(model, gpu, setup=LlamaConfig(split_mode="tensor")).tok_s_at(n)
    assert expected.low < measured < expected.high
    assert expected.high > _speed(model, gpu).tok_s_at(n).high
