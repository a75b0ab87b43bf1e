"""What would help where a quant does not fit. That each change is what a plan with it says is for tests/cli."""

from msgspec.structs import replace

from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.plan_record import Change, PlanRow
from ggbench.sizing.what_helps import with_other_quants

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
    n_ctx, cache = Change("n_ctx", load, 1, GIB, None), Change("KV q8_0", load, 1, -GIB, None)
    half = replace(SHORT, n_ctx=8192, planned_n_ctx=4096, changes=(cache, replace(n_ctx, kind="n_gpu_layers"), n_ctx))
    [row] = with_other_quants([half], [FITS])
    assert kinds(row) == [("quant", True), ("n_ctx", True), ("n_gpu_layers", True), ("KV q8_0", False)]
    [row] = with_other_quants([replace(half, planned_n_ctx=1024)], [FITS])
    assert kinds(row) == [("quant", True), ("n_gpu_layers", True), ("n_ctx", True), ("KV q8_0", False)]
