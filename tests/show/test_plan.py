"""A plan as people and programs read it."""

import json
from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.description import describe_machine
from ggbench.show.answer import Table
from ggbench.show.plan import PLAN, PLAN_FIGURES, plan_answer, plan_record
from ggbench.sizing.budget import described_budget
from ggbench.sizing.plan_record import (
    Budget,
    Change,
    DeviceMemory,
    EnginePlan,
    Note,
    PlannedDevice,
    PlanRow,
)
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Estimate, Expected
from tests.cli.validation import check_document

Golden = Callable[[str, str], None]
GIB, MIB = 1 << 30, 1 << 20

BANDWIDTH = Bandwidth(360e9, "192 bit x 15 Gbps / 8")
CARD = DeviceMemory(
    "CUDA0", 12 * GIB, 1280 * MIB, "NVIDIA GeForce RTX 3060", bandwidth=BANDWIDTH,
    memory_source="product page", reserve_source="for driver and CUDA",
)  # fmt: skip
BUDGET = Budget((CARD,))
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
    limit_tok_s=41.3,
    command="ggbench plan qwen1.5-7b q4_k_m --gpu 3060",
    setup=LlamaConfig(),
)  # fmt: skip
KV = Change("KV q8_0", LlamaConfig(n_ctx=8192, type_k="q8_0", type_v="q8_0"), 5 * GIB, GIB, 12_800)
FITS_NOT = replace(
    FITS, quant="q8_0", bpw=8.5, left_bytes=-1_500_000_000, fits=False, planned_n_ctx=None,
    changes=(KV,), limit_tok_s=41.3,
)  # fmt: skip
LONG = replace(
    FITS,
    quant="q2_k",
    planned_n_ctx=1 << 20,
    reached_ceiling=True,
    notes=(Note("plan.no_theory", {"why": "it mixes\x1b[2J"}),),
)
REFUSED = PlanRow(
    "qwen1.5-7b", "q4_0", "catalog", budget_bytes=BUDGET.usable_bytes, outcome=Outcome.FAILED, reason="refused\nby it"
)
TOK_S = Estimate(24.3, 18.0, 32.0)
LOSS = Expected(0.0212, 0.004, 0.03, "typical", "q4_k_m by family")
EXPECTED = Expected(24.3, 18.0, 32.0, "published", "24 rows of GeForce RTX 30")
ROWS = (
    *(replace(row, expected=EXPECTED, loss=LOSS) for row in (FITS_NOT, FITS)), LONG, REFUSED
)  # fmt: skip


def planned(*rows: PlanRow, budget: Budget = BUDGET) -> EnginePlan:
    return EnginePlan(budget, rows, SOURCES)


def about(rows: Sequence[PlanRow], budget: Budget = BUDGET) -> str:
    """Return what is behind an answer, without wrapping."""
    return plan_answer(planned(*rows, budget=budget)).markdown(why=True)


@pytest.mark.parametrize("width", [60, 100])
def test_a_plan_in_a_terminal(width: int, render: Callable[..., str], golden: Golden) -> None:
    golden(f"plan_{width}.txt", render(plan_answer(planned(*ROWS)), width=width))


def test_what_is_behind_a_plan(render: Callable[..., str], golden: Golden) -> None:
    golden("plan_why.txt", render(plan_answer(planned(*ROWS)).rich(why=True), width=100))


def test_a_plan_in_json() -> None:
    """The figures lie beside the record."""
    text = PLAN.text(plan_record(planned(*ROWS)))
    check_document(text)
    rows = json.loads(text)["rows"]
    assert {"tok_s", "max_n_ctx", "limit_tok_s", "planned_n_ctx", "kld"} <= rows[0].keys()
    assert rows[0]["changes"][0]["options"] == "-ctk q8_0 -ctv q8_0"


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([FITS], "qwen1.5-7b fits RTX 3060 with 8,192 tokens in q4_k_m."),
        ([FITS_NOT, FITS], "qwen1.5-7b fits RTX 3060 with 8,192 tokens in q4_k_m; q8_0 is 1.40 GiB short."),
        ([FITS_NOT], "qwen1.5-7b does not fit RTX 3060 with 8,192 tokens: q8_0 is 1.40 GiB short."),
        ([replace(FITS, quant=f"q{n}") for n in range(5)],
         "qwen1.5-7b fits RTX 3060 with 8,192 tokens in q0 and 4 smaller quants."),
        ([REFUSED], "qwen1.5-7b on RTX 3060: what it needs is unknown."),
    ],
    ids=["one", "some", "none", "many", "unknown"],
)  # fmt: skip
def test_the_answer_is_which_quants_fit(rows: list[PlanRow], text: str) -> None:
    assert plan_answer(planned(*rows)).text == text


def test_a_quant_that_was_not_asked_for_is_named_if_only_it_fits() -> None:
    answer = plan_answer(replace(planned(FITS_NOT), alternative=FITS))
    assert answer.text.endswith("q8_0 is 1.40 GiB short, q4_k_m fits.")
    assert "| q4_k_m |" in answer.markdown()


def test_the_remedy_is_that_of_the_best_quant_it_makes_fit() -> None:
    """Layers in main memory make any quant fit, so those of the nearest are told alone."""
    moved = replace(KV, kind="n_gpu_layers", setup=LlamaConfig(n_gpu_layers=20), host_bytes=GIB)
    nearest = replace(FITS_NOT, changes=(KV, moved, replace(KV, kind="quant", setup=None, quant="q4_k_m")))
    remedies = "q8_0 fits with -ctk q8_0 -ctv q8_0, or with -ngl 20 (1.00 GiB in main memory)."
    worse = replace(FITS_NOT, quant="f16", left_bytes=-9 * GIB, weight_bytes=9 << 40, changes=(moved,))
    assert remedies in plan_answer(planned(worse, nearest)).notes
    better = replace(worse, changes=(KV, moved))
    assert remedies.replace("q8_0 fits", "f16 fits") in plan_answer(planned(better, nearest)).notes
    too_little = replace(FITS_NOT, changes=(replace(KV, left_bytes=-1),))
    assert "No single change makes q8_0 fit" in plan_answer(planned(too_little)).notes[0]
    other = replace(FITS_NOT, changes=nearest.changes[2:])
    assert "No single change makes q8_0 fit; q4_k_m does." in plan_answer(planned(other)).notes


def test_of_many_quants_those_around_the_largest_that_fits_are_in_front() -> None:
    rows = [replace(FITS_NOT if n < 12 else FITS, quant=f"q{n}", weight_bytes=50 - n) for n in range(24)]
    asked, answer = plan_answer(planned(*rows)), plan_answer(planned(*rows), is_named=False)
    assert isinstance(front := answer.parts[0], Table) and isinstance(whole := asked.parts[0], Table)
    assert [row.quant for row in front.rows] == [f"q{n}" for n in range(7, 17)]
    assert len(whole.rows) == 24 and answer.notes[0] == "14 more quants: --why"
    assert "| q23 |" in answer.markdown(why=True)


def test_what_is_estimated_here_says_what_measures_it() -> None:
    estimated = replace(FITS, expected=EXPECTED)
    here, there = (
        plan_answer(planned(estimated, budget=replace(BUDGET, is_here=is_here))).notes[-1] for is_here in (True, False)
    )
    assert "ggbench forecast qwen1.5-7b q4_k_m" in here and "ggbench" not in there
    forecast = plan_answer(planned(replace(estimated, expected=replace(EXPECTED, basis="forecast"))))
    assert "ggbench" not in forecast.notes[-1]


def test_an_unknown_speed_is_no_bound_and_the_note_asks_for_the_bandwidth() -> None:
    answer = plan_answer(planned(FITS, budget=Budget((replace(CARD, bandwidth=None),))))
    assert "--bandwidth" in answer.notes[-1]
    assert "41.3" not in answer.markdown() and "41.3" in answer.markdown(why=True)


def test_a_speed_has_one_mark_and_its_interval_is_behind_it() -> None:
    estimated = replace(FITS, expected=Expected(24.3, 18.0, 32.0, "published", "others' rows"))
    disturbed = replace(FITS, expected=Expected(24.3, 18.0, 32.0, "measured", "run 12", is_steady=False))
    tok_s = PLAN_FIGURES["tok_s"]
    assert [tok_s.text(row) for row in (estimated, disturbed, FITS)] == ["~24", "! 24", "—"]
    assert "18.0–32.0" in about([estimated]) and "18.0" not in plan_answer(planned(estimated)).markdown()
    assert plan_answer(planned(estimated, budget=replace(BUDGET, is_here=False))).notes == [
        "~ estimated from others' rows"
    ]


@pytest.mark.parametrize(
    ("gpu", "ram", "is_here", "option"),
    [
        ("radeon-890m", "54GiB", False, "--ram 54GiB@ddr5-5600x2"),
        ("radeon-890m", "54GiB", True, "--bandwidth"),
        ("radeon-890m", "54GiB@ddr5-5600x2", False, ""),
        ("strix-halo", None, False, ""),
    ],
)
def test_an_assumed_memory_is_the_first_note(gpu: str, ram: str | None, is_here: bool, option: str) -> None:
    """It decides the speed; the option that says another is that of the machine."""
    described = described_budget(describe_machine([gpu], ram), reserve_bytes=None)
    row = replace(FITS, expected=EXPECTED)
    first, *_ = plan_answer(planned(row, budget=replace(described, is_here=is_here))).notes
    assert ("LPDDR5X-8000" in first, "128 GB/s" in first) == (bool(option), bool(option))
    assert option in first
    measured = replace(row, expected=replace(EXPECTED, basis="measured"))
    assert plan_answer(planned(measured, budget=described)).notes == []


def test_a_loss_is_marked_unless_it_was_measured_here() -> None:
    typical, measured = (replace(FITS, loss=loss) for loss in (LOSS, replace(LOSS, basis="measured")))
    kld = PLAN_FIGURES["kld"]
    assert [kld.text(row) for row in (typical, measured)] == ["~0.021", "0.021"]


def test_the_longest_context_is_at_most_the_training_context() -> None:
    longest = PLAN_FIGURES["max_n_ctx"]
    assert longest.text(replace(FITS, planned_n_ctx=50_176)) == "32,768"
    assert longest.text(replace(FITS, planned_n_ctx=1 << 20, n_ctx_train=None, reached_ceiling=True)) == "≥ 1,048,576"


@pytest.mark.parametrize("n_cards", [1, 2, 8])
def test_each_of_several_devices_is_a_row(n_cards: int) -> None:
    devices = tuple(
        PlannedDevice(
            device=name, name="NVIDIA GeForce RTX 3060", n_layers=3, memory_bytes=12 * GIB, weight_bytes=10 * GIB,
            kv_bytes=3 * GIB,
        )
        for name in (*(f"CUDA{index}" for index in range(n_cards)), "CPU")
    )  # fmt: skip
    text = plan_answer(planned(replace(FITS_NOT, devices=devices))).markdown()
    assert text.count("| RTX 3060 | 3 | 10.0 GiB | 3.00 GiB |") == (n_cards + 1 if n_cards > 1 else 0)
    assert text.count("✗ 1.00 GiB short") == (n_cards + 1 if n_cards > 1 else 0)
    split = plan_answer(planned(replace(FITS_NOT, devices=devices, is_split=True))).markdown()
    assert "q8_0 by device" in split


def test_behind_it_are_the_notes() -> None:
    text = about([LONG])
    assert "no theoretical limits: it mixes" in text and "\x1b" not in text
