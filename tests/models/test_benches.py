"""Others' rows of llama-bench: each has a source, is possible on its device, and is there once."""

import re
from collections import Counter

import pytest
from msgspec.structs import replace

from ggbench.formats.published_rows import split_model_type
from ggbench.machine.known_devices import known_devices, recognize_device
from ggbench.models.published import data_text
from ggbench.models.published.benches import (
    ROWS_FILE,
    BenchedRow,
    benches_csv,
    load_bench_sources,
    load_benches,
)
from scripts.published_rows import measurement, problem_of

ROWS = load_benches()
SOURCES = {source.id: source for source in load_bench_sources()}


def test_every_row_has_a_source_and_every_source_a_row() -> None:
    assert {row.source for row in ROWS} == set(SOURCES)
    for source in SOURCES.values():
        assert source.address.startswith("https://")
        assert source.title.strip() == source.title != ""


def test_no_row_exceeds_what_its_device_can() -> None:
    assert [(row, problem_of(row)) for row in ROWS if problem_of(row)] == []


def test_no_measurement_is_there_twice() -> None:
    assert [row for row, count in Counter(map(measurement, ROWS)).items() if count > 1] == []


def test_rows_are_complete_and_as_the_reader_writes_them() -> None:
    assert benches_csv(ROWS) == data_text(ROWS_FILE)
    for row in ROWS:
        assert re.fullmatch(r"pp\d+|tg\d*", row.test), row
        assert re.fullmatch(r"20\d\d-(?:0[1-9]|1[0-2])", row.date), row
        assert row.tok_s > 0, row
        assert row.count >= 1, row
        assert row.backend in {"CUDA", "ROCm", "Vulkan", "SYCL", "Metal", "CPU"}, row
        assert row.quant == row.quant.lower() != "", row


def test_known_devices_go_by_their_id() -> None:
    ids = {device.id for device in known_devices()}
    free = {row.device for row in ROWS} - ids
    assert {name: found.id for name in free if (found := recognize_device(name, None))} == {}


@pytest.mark.parametrize(
    ("words", "model", "quant"),
    [
        ("qwen3moe 30B.A3B Q4_K - Medium", "qwen3moe 30B.A3B", "q4_k_m"),
        ("gpt-oss 20B MXFP4 MoE", "gpt-oss 20B", "mxfp4"),
        ("llama 70B IQ2_M - 2.7 bpw", "llama 70B", "iq2_m"),
        ("LLaMA 7B mostly Q4_0", "LLaMA 7B", "q4_0"),
        ("llama 8B Q4_K_M", "llama 8B", "q4_k_m"),
        ("ternary-bonsai-27b", "ternary-bonsai-27b", ""),
    ],
)
def test_model_and_quant_are_split(words: str, model: str, quant: str) -> None:
    assert split_model_type(words) == (model, quant)


DENSE = BenchedRow(
    source="here",
    device="rtx-3090",
    backend="CUDA",
    model="llama 8B",
    quant="q4_k_m",
    weight_bytes=4_920_000_000,
    n_params=8_030_000_000,
    test="tg128",
    tok_s=130.0,
    date="2025-01",
)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, ""),
        ({"tok_s": 1e6}, "1e+06 tok/s would read at least 4,428,000 GB/s of 936 GB/s"),
        ({"tok_s": 230.0}, "230 tok/s would read"),
        ({"tok_s": 230.0, "count": 2, "split_mode": "row"}, ""),
        ({"tok_s": 1e6, "device": "a card of tomorrow"}, "10,000 GB/s"),
        ({"tok_s": 4000.0, "model": "qwen3moe 30B.A3B", "n_params": 30_530_000_000}, "4000 tok/s would read"),
        ({"test": "pp512", "tok_s": 5000.0}, ""),
        ({"test": "pp512", "tok_s": 1e6}, "1e+06 tok/s would take 16,060 TFLOPS of"),
    ],
)
def test_what_cannot_be_is_a_problem(changes: dict[str, object], problem: str) -> None:
    found = problem_of(replace(DENSE, **changes))
    assert problem in found
    assert bool(problem) == bool(found)
