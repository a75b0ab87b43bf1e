"""The shipped table of GPUs: consistent figures, and names in any spelling."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from ggbench.errors import UnknownName, UsageError
from ggbench.machine.gpus import find_gpu

DOCUMENT = tomllib.loads((files("ggbench.machine") / "gpus.toml").read_text(encoding="utf-8"))
ENTRIES: list[dict[str, Any]] = DOCUMENT["gpu"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_bandwidth_is_bus_width_times_the_rate_of_a_pin(entry: dict[str, Any]) -> None:
    """A figure copied from the wrong column would fail; the H100 PCIe's is rounded down to 2 TB/s."""
    computed = entry["bus_bits"] * entry["pin_gbps"] / 8
    assert entry["bandwidth_gb_s"][0] == pytest.approx(computed, rel=0.02 if entry["id"] == "h100-pcie" else 0.004)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rtx-4090", "rtx-4090"), ("RTX 4090", "rtx-4090"), ("4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"), ("4070 ti", "rtx-4070-ti"), ("4070ti super", "rtx-4070-ti-super"),
        ("a6000", "rtx-a6000"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"), ("h100 sxm", "h100-sxm"),
        ("L40", "l40"), ("Tesla T4", "t4"),
    ],
)  # fmt: skip
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
