"""What would help where a quant does not fit. That each change is what a plan with it says is for tests/cli."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.targets import Target
from ggbench.sizing.plan_record import Change, PlanRow
from ggbench.sizing.what_helps import smaller_quant_advice, with_other_quants
from ggbench.units import MIB

GIB = 1 << 30
SHORT = PlanRow("m", "q8_0", "catalog", weight_bytes=8 * GIB, needed_bytes=12 * GIB, left_bytes=-3 * GIB, fits=False)
FITS = replace(SHORT, quant="q4_0", weight_bytes=4 * GIB, needed_bytes=8 * GIB, left_bytes=GIB, fits=True)


def kinds(row: PlanRow) -> list[tuple[str, bool]]:
    return [(change.kind, change.fits) for change in row.changes]


def test_another_quant_is_the_largest_smaller_one_that_fits() -> None:
    smallest = replace(FITS, quant="q2_k", weight_bytes=GIB)
    larger = replace(FITS, quant="f16", weight_bytes=16 * GIB)
    changed, *same = with_other_quants([SHORT, smallest, larger], [FITS])
    assert [(change.quant, change.needed_bytes, change.left_bytes) for change in changed.changes] == [
        ("q4_0", 8 * GIB, GIB)
    ]
    assert same == [smallest, larger]
    assert with_other_quants([SHORT]) == [SHORT]


def test_what_is_enough_comes_first_and_what_costs_least_before_the_rest() -> None:
    load = LlamaConfig(n_ctx=1024)
    n_ctx, cache = Change("n_ctx", load, 1, GIB, None, None), Change("KV q8_0", load, 1, -GIB, None, None)
    half = replace(SHORT, n_ctx=8192, planned_n_ctx=4096, changes=(cache, replace(n_ctx, kind="n_gpu_layers"), n_ctx))
    [row] = with_other_quants([half], [FITS])
    assert kinds(row) == [("quant", True), ("n_ctx", True), ("n_gpu_layers", True), ("KV q8_0", False)]
    [row] = with_other_quants([replace(half, planned_n_ctx=1024)], [FITS])
    assert kinds(row) == [("quant", True), ("n_gpu_layers", True), ("n_ctx", True), ("KV q8_0", False)]


SIZES = {"q8_0": 600 * MIB, "q4_k_m": 400 * MIB, "q2_k": 300 * MIB}


class Sized:
    def sizes(self) -> dict[str, int]:
        return SIZES


def target(quant: str) -> Target:
    return Target("m", quant, "twin", Path("m.gguf"), 1, source=Sized())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("quant", "room_mib", "in_budget", "advice"),
    [
        pytest.param("q8_0", 450, 1.0, "q4_k_m would fit: its weights take 400.0 MiB", id="the largest that fits"),
        pytest.param("q8_0", 250, 1.0, "not even q2_k would fit", id="none fits"),
        pytest.param("q8_0", 250, 0.5, "q4_k_m would fit: its weights take about 200.0 MiB there", id="half elsewhere"),
        pytest.param("q4_k_m", 900, 1.0, "q2_k would fit", id="never a larger one, however much room there seems"),
        pytest.param("q2_k", 900, 1.0, "there is no smaller quant here", id="the smallest"),
    ],
)
def test_a_smaller_quant_is_advised_where_there_is_one(
    quant: str, room_mib: int, in_budget: float, advice: str
) -> None:
    assert smaller_quant_advice(target(quant), room_mib * MIB, in_budget).startswith(advice)
