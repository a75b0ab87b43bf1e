"""A plan as people and programs read it."""

import json
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.show.plan import PLAN, plan_report
from ggbench.sizing.plan_record import (
    Budget,
    Change,
    MemoryPart,
    MemoryStack,
    PlannedDevice,
    PlannedForecast,
    PlannedSpeed,
    PlanRow,
)
from ggbench.stats.decode_timing import Bandwidth, DecodeLimit

Golden = Callable[[str, str], None]
GIB, MIB = 1 << 30, 1 << 20

BANDWIDTH = Bandwidth(360e9, "192 bit x 15 Gbps / 8")
BUDGET = Budget("NVIDIA GeForce RTX 3060", True, 12 * GIB, "product page", 1280 * MIB, "for driver and CUDA", BANDWIDTH)
SOURCES = {
    "weights": "the header's tensor table",
    "kv_and_compute": "llama.cpp 7000's allocator run dry, compute in CPU",
}
FITS = PlanRow(
    model="qwen1.5-7b", quant="q4_k_m", provenance="catalog", file_bytes=4_758_000_000, n_params=7_721_324_544,
    bpw=4.93, weight_bytes=4_757_950_464, device_weight_bytes=4_407_900_000, host_weight_bytes=350_050_464,
    n_gpu_layers=33, n_ctx=8192, n_ctx_train=32_768, kv_bytes=4 * GIB, device_kv_bytes=4 * GIB, theory_kv_bytes=4 * GIB,
    kv_bytes_per_token=524_288, compute_bytes=313 * MIB, budget_bytes=BUDGET.usable_bytes, needed_bytes=9_031_000_000,
    left_bytes=2_511_000_000, fits=True, planned_n_ctx=12_800, flash_attn=True,
    limit=DecodeLimit(686.6, 12.25, 360e9, "192 bit x 15 Gbps / 8"), at_n_ctx=PlannedSpeed(8192, 24.2, 41.3, True),
    decode=tuple(
        PlannedSpeed(n, ms, tok_s, n < 12_800)
        for n, ms, tok_s in ((1024, 13.74, 72.8), (8192, 24.2, 41.3), (32_768, 60.0, 16.7))
    ),
    command="ggbench plan qwen1.5-7b q4_k_m --gpu 3060",
)  # fmt: skip
KV = Change("KV q8_0", LlamaConfig(n_ctx=8192, type_k="q8_0", type_v="q8_0"), 5 * GIB, GIB, 12_800, 41.3)
FITS_NOT = replace(
    FITS, quant="q8_0", bpw=8.5, left_bytes=-1_500_000_000, fits=False, planned_n_ctx=None,
    changes=(KV,), at_n_ctx=PlannedSpeed(8192, 24.2, 41.3, False),
)  # fmt: skip
LONG = replace(
    FITS, quant="q2_k", planned_n_ctx=1 << 20, reached_ceiling=True, notes=("KV: the theory differs\x1b[2J",)
)
REFUSED = PlanRow(
    "qwen1.5-7b", "q4_0", "catalog", budget_bytes=BUDGET.usable_bytes, outcome=Outcome.FAILED, reason="refused\nby it"
)
ROWS = (FITS_NOT, FITS, LONG, REFUSED)


@pytest.mark.parametrize("width", [80, 150])
def test_a_plan_in_a_terminal(width: int, render: Callable[..., str], golden: Golden) -> None:
    report = plan_report(BUDGET, LlamaConfig(), SOURCES, ROWS, width=width)
    golden(f"plan_{width}.txt", render(report, width=width))


def test_a_plan_in_json(golden: Golden) -> None:
    text = PLAN.text(model="qwen1.5-7b", machine=BUDGET, sources=SOURCES, rows=ROWS, alternative=None)
    golden("plan.json", text + "\n")
    rows = json.loads(text)["rows"]
    assert all(row.keys() == rows[0].keys() for row in rows)


def test_what_some_rows_say_is_told_once_below(render: Callable[..., str]) -> None:
    noted = [
        replace(FITS, quant=quant, notes=("it is repacked",) if quant != "q8_0" else ())
        for quant in ("q8_0", "q4_0", "q2_k")
    ]
    text = render(plan_report(BUDGET, LlamaConfig(), {}, noted, width=80), width=80)
    assert text.count("it is repacked") == 1
    assert "q4_0; q2_k: it is repacked" in text
    note = " ".join(["word"] * 30)
    rows = [replace(FITS, notes=(note, "of all")), replace(FITS, quant="q2_k", notes=("of all",))]
    text = render(plan_report(BUDGET, LlamaConfig(), {}, rows, width=120), width=120)
    assert text.count("of all") == 1 and text.index("of all") < text.index("BPW")
    assert f"q4_k_m: {' '.join(['word'] * 22)}\n" in text  # at the terminal's width, not the table's


def test_a_cache_in_main_memory_and_its_windows_are_shown(render: Callable[..., str]) -> None:
    elsewhere = replace(FITS, device_kv_bytes=0, swa_cells=1024)
    text = render(plan_report(BUDGET, LlamaConfig(kv_offload=False), SOURCES, [elsewhere], width=160), 160)
    assert "KV on CPU" in text
    assert "4.00 GiB" in text
    assert "sliding-window caches of 1,024 cells (of all 8,192 with --swa-full)" in text
    whole = plan_report(BUDGET, LlamaConfig(), SOURCES, [replace(FITS, swa_cells=8192)], width=160)
    assert "sliding-window caches of all 8,192 cells" in render(whole, 160)
    assert "KV on CPU" not in render(plan_report(BUDGET, LlamaConfig(), SOURCES, [FITS], width=160), 160)


def test_each_of_many_memories_is_a_row_and_keeps_its_total(render: Callable[..., str]) -> None:
    """A card that is too small is marked."""
    parts = (MemoryPart("weights", 10 * GIB), MemoryPart("kv_swa", 3 * GIB), MemoryPart("missing", GIB))
    for n_cards in (1, 8):
        names = [f"CUDA{index}" for index in range(n_cards)]
        devices = tuple(
            PlannedDevice(
                device=name, name="NVIDIA GeForce RTX 3060", n_layers=3, memory_bytes=12 * GIB, weight_bytes=0,
                kv_bytes=0, compute_bytes=0, usable_bytes=0,
            )
            for name in names
        )  # fmt: skip
        stacks = tuple(MemoryStack(name, 12 * GIB, parts) for name in names)
        row = replace(FITS_NOT, changes=(), devices=devices, stacks=stacks)
        text = render(plan_report(BUDGET, LlamaConfig(), {}, [row], width=80), width=80)
        assert "CUDA0   RTX 3060       3  10.0 GiB" in text
        assert text.count("✗ 1.00 GiB missing") == text.count("12.0 GiB") - 1 == n_cards


def test_what_helps_is_a_table_below_the_plan(render: Callable[..., str]) -> None:
    changes = (
        KV,
        replace(KV, kind="quant", setup=None, quant="q4_k_m"),
        replace(KV, kind="n_ctx", setup=LlamaConfig(n_ctx=4096), left_bytes=-1),
    )
    row = replace(FITS_NOT, changes=changes)
    lines = render(plan_report(BUDGET, LlamaConfig(), {}, [row], width=150), width=150).splitlines()
    below = lines[next(index for index, line in enumerate(lines) if line.startswith("what would")) :]
    assert below[0].rstrip() == "what would make q8_0 fit at n_ctx 8,192"
    assert [line.split("  ")[0] for line in below[4:]] == ["-ctk q8_0 -ctv q8_0", "q4_k_m as planned"]
    assert "what would" not in render(plan_report(BUDGET, LlamaConfig(), {}, [FITS], width=120))


def test_main_memory_has_no_column_for_the_cpu(render: Callable[..., str]) -> None:
    """Without a GPU there is one memory, and its weights are called that."""
    budget = replace(BUDGET, on_gpu=False, bandwidth=None)
    rows = [replace(FITS, host_weight_bytes=0, limit=None, decode=())]
    text = render(plan_report(budget, LlamaConfig(type_k="q8_0"), SOURCES, rows, width=150), width=150)
    assert "weights" in text and "not known" in text and "K q8_0, V f16" in text
    assert "on CPU" not in text and "on GPU" not in text


def test_expected_speeds_say_where_they_are_from(render: Callable[..., str]) -> None:
    expected = [PlannedForecast(8.0, (6.0, 9.0), "twins of 2 and 6 of 32 layers", "forecast")]
    expected += [PlannedForecast(10.0 + n, (9.0, 19.0), f"run {n}", "measured") for n in range(6)]
    rows = [replace(FITS, quant=f"q{n}", expected=each) for n, each in enumerate(expected)]
    text = render(plan_report(BUDGET, LlamaConfig(), SOURCES, rows, width=140), width=140)
    assert "expected: twins of 2 and 6 of 32 layers, run 0, run 1, run 2, run 3, run 4, run 5\n" in text
    assert "8.0 (6.0–9.0)" in text
