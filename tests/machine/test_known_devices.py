"""Devices known by name."""

import tomllib
from importlib.resources import files
from typing import Any

import pytest

from ggbench.errors import UsageError
from ggbench.machine.known_devices import find_device

DOCUMENT = tomllib.loads((files("ggbench.machine") / "known_devices.toml").read_text(encoding="utf-8"))
ENTRIES: list[dict[str, Any]] = DOCUMENT["device"]


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
        ("L40", "l40"), ("Tesla T4", "t4"), ("rtx-3060-12gb", "rtx-3060"), ("4090 24 GiB", "rtx-4090"),
    ],
)  # fmt: skip
def test_a_gpu_is_found_in_any_spelling(text: str, expected: str) -> None:
    assert find_device(text).id == expected


@pytest.mark.parametrize(
    ("text", "near"),
    [("rtx-4091", "rtx-4090"), ("rtx-3060-8gb", "rtx-3060"), ("", ""), ("m3-max", ""), ("rx-7900-xtx", "")],
)
def test_an_unknown_gpu_is_described_by_its_figures(text: str, near: str) -> None:
    with pytest.raises(UsageError, match="is not among the 43 known cards") as caught:
        find_device(text)
    assert "--vram 24GiB --bandwidth 960GB/s" in caught.value.hint
    assert (near in caught.value.hint) if near else ("did you mean" not in caught.value.hint)


def test_a_vague_name_lists_a_few() -> None:
    with pytest.raises(UsageError, match="matches") as caught:
        find_device("rtx")
    assert caught.value.hint.count(",") == 7
    assert " more" in caught.value.hint


@pytest.mark.parametrize(("text", "n"), [("a100", 4), ("4060 ti", 2), ("v100", 3)])
def test_an_ambiguous_name_is_an_error(text: str, n: int) -> None:
    with pytest.raises(UsageError, match=f"matches {n} GPUs") as caught:
        find_device(text)
    assert caught.value.hint.count(",") == n - 1
