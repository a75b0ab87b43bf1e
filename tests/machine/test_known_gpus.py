"""The shipped table of GPUs: consistent figures, and names in any spelling."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from ggbench.errors import UnknownName, UsageError
from ggbench.machine.known_gpus import find_gpu, known_gpus, recognize_gpu

DOCUMENT = tomllib.loads((files("ggbench.machine") / "gpus.toml").read_text(encoding="utf-8"))
ENTRIES: list[dict[str, Any]] = DOCUMENT["gpu"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_bandwidth_is_bus_width_times_the_rate_of_a_pin(entry: dict[str, Any]) -> None:
    """A figure copied from the wrong column would fail; the H100 PCIe's is rounded down to 2 TB/s."""
    computed = entry["bus_bits"] * entry["pin_gbps"] / 8
    assert entry["bandwidth_gb_s"][0] == pytest.approx(computed, rel=0.02 if entry["id"] == "h100-pcie" else 0.004)


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if "fp16" in entry], ids=lambda entry: entry["id"])
def test_rates_are_cores_times_clock_times_the_architectures_factor(entry: dict[str, Any]) -> None:
    fp32 = entry["cores"] * entry["boost_mhz"] * 2e-6
    factor = entry["fp16"][0] / fp32
    assert min(abs(factor - whole) for whole in (1, 2, 4)) < 0.01
    expected = 7.39 if entry["id"].startswith("h100") else 4
    assert entry["fp16_tensor"][0] / entry["fp16"][0] == pytest.approx(expected, rel=0.013)


def test_every_figure_has_a_source() -> None:
    """No source has an unfilled placeholder."""
    assert len(known_gpus()) >= 30
    assert len({gpu.id for gpu in known_gpus()}) == len(known_gpus())
    for gpu in known_gpus():
        sources = [gpu.memory_source, gpu.bandwidth_source, gpu.fp16_tensor_source]
        sources += [gpu.fp16_source] if gpu.fp16_tflops else []
        assert all(source and "{" not in source for source in sources), gpu.id


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtx-4090", "rtx-4090"),
        ("RTX 4090", "rtx-4090"),
        ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("4070 ti", "rtx-4070-ti"),
        ("4070ti super", "rtx-4070-ti-super"),
        ("a6000", "rtx-a6000"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("h100 sxm", "h100-sxm"),
        ("L40", "l40"),
        ("Tesla T4", "t4"),
    ],
)
def test_a_gpu_is_found_in_any_spelling(text: str, expected: str) -> None:
    assert find_gpu(text).id == expected


@pytest.mark.parametrize(("text", "hint"), [("rtx-4091", "rtx-4090"), ("", "known"), ("potato", "rtx-3060")])
def test_an_unknown_gpu_lists_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(UnknownName) as caught:
        find_gpu(text)
    assert hint in caught.value.hint


@pytest.mark.parametrize(("text", "n"), [("a100", 4), ("4060 ti", 2), ("v100", 3)])
def test_an_ambiguous_name_is_an_error(text: str, n: int) -> None:
    """Memory and form factor change the figures, so no default is chosen."""
    with pytest.raises(UsageError, match=f"matches {n} GPUs") as caught:
        find_gpu(text)
    assert caught.value.hint.count(",") == n - 1


def test_gpus_with_one_name_are_distinguished_by_memory() -> None:
    twin = recognize_gpu("NVIDIA GeForce RTX 4060 Ti", 16_380 << 20)
    assert twin is not None and twin.id == "rtx-4060-ti-16gb"
    assert recognize_gpu("NVIDIA GeForce RTX 4090 Laptop GPU", 16 << 30) is None
    assert recognize_gpu("NVIDIA GeForce RTX 4060 Ti", None) is None
