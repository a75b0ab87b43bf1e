"""Which of several machines to choose for a model, from their plans."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench.decisions.machines import PLAN_MACHINES, choose_machine, machine_names, machines_report
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.description import GIVEN_GPU
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, Change, DeviceMemory, EnginePlan, PlannedForecast, PlanRow
from ggbench.stats.decode_timing import Bandwidth
from tests.cli.validation import check_document

GIB = 1 << 30


def machine(name: str, gib: int) -> Budget:
    return Budget(name, True, gib * GIB, "product page", GIB, "driver")


def row(tok_s: float | None, n_ctx: int, *, fits: bool = True, changes: tuple[Change, ...] = ()) -> PlanRow:
    """Return a plan with a speed within 20 %, and 1.25 times as fast for the first token."""
    expected, first = (
        None if tok_s is None else PlannedForecast(value, (value / 1.2, value * 1.2), "others' rows", "published")
        for value in (tok_s or 0.0, 1.25 * (tok_s or 0.0))
    )
    left_bytes = GIB if fits else -GIB
    return PlanRow(
        "qwen3-14b", "q4_k_m", "catalog", n_ctx=16384, n_ctx_slot=16384, needed_bytes=11 * GIB, left_bytes=left_bytes,
        fits=fits, planned_n_ctx=n_ctx, expected=expected, expected_first=first, changes=changes,
    )  # fmt: skip


def text_of(budgets: list[Budget], rows: list[PlanRow]) -> str:
    choice = choose_machine(machine_names(budgets), rows)
    plans = [EnginePlan(budget, (each,), {}, None) for budget, each in zip(budgets, rows, strict=True)]
    console = Console(width=160, color_system=None)
    with console.capture() as captured:
        console.print(machines_report(plans, [choice], width=160))
    check_document(PLAN_MACHINES.text(model="qwen3-14b", machines=plans, choices=[choice]))
    return " ".join(captured.get().split())


CARDS = [machine("NVIDIA GeForce RTX 3060", 12), machine("NVIDIA GeForce RTX 4060 Ti", 16)]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (20.0, "tok/s; the fastest, 1.2 ±0.4 times as fast as RTX 4060 Ti 16.0 GiB; RTX"),
        (10.0, "tok/s; the fastest, 2.5 ±0.7 times as fast as RTX 4060 Ti 16.0 GiB; RTX 4060 Ti 16.0 GiB holds"),
    ],
)
def test_the_fastest_and_the_one_with_the_longest_context_are_named(other: float, said: str) -> None:
    text = text_of(CARDS, [row(25.0, 17_920), row(other, 60_160)])
    assert text.startswith(f"q4_k_m: RTX 3060 12.0 GiB holds 16k, ~ 25.0 (20.8–30.0) {said}")


def test_without_every_speed_the_longest_context_decides() -> None:
    text = text_of(CARDS, [row(25.0, 17_920), row(None, 60_160)])
    assert text.startswith("q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k; not every speed is known; it also holds")


def test_a_machine_that_is_too_small_is_not_chosen_for_its_speed() -> None:
    cache = Change("KV q8_0", LlamaConfig(type_k="q8_0", type_v="q8_0"), GIB, GIB, 20_000, None)
    text = text_of(CARDS, [row(25.0, 12_032, fits=False, changes=(cache,)), row(20.0, 60_160)])
    assert text.startswith(
        "q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k, ~ 20.0 (16.7–24.0) tok/s; RTX 3060 12.0 GiB lacks 1.00 GiB"
        " (fits with -ctk q8_0 -ctv q8_0) qwen3-14b"
    )
    assert "~ 25.0 (20.8–30.0) ✗" in text
    assert "fits with -ctk q8_0 -ctv q8_0" in text
    assert "fits on none of them at 16k: RTX 3060 12.0 GiB lacks" in text_of(CARDS, [row(1.0, 0, fits=False)] * 2)


def test_the_only_machine_that_it_fits_on_needs_no_speed() -> None:
    text = text_of(CARDS, [row(25.0, 0, fits=False), row(None, 60_160)])
    assert text.startswith("q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k; RTX 3060 12.0 GiB lacks 1.00 GiB")


def test_machines_of_one_description_are_kept_apart() -> None:
    """The faster is chosen, not the last one."""
    unnamed = [replace(machine(GIVEN_GPU, 24), bandwidth=Bandwidth(rate * 1e9, "given")) for rate in (936, 504, 504)]
    assert machine_names(unnamed) == [
        "GPU 24.0 GiB @ 936 GB/s", "GPU 24.0 GiB @ 504 GB/s", "GPU 24.0 GiB @ 504 GB/s (2)",
    ]  # fmt: skip
    text = text_of(unnamed[:2], [row(50.0, 60_160), row(28.0, 60_160)])
    assert text.startswith("q4_k_m: GPU 24.0 GiB @ 936 GB/s holds 16k, ~ 50.0")
    assert "1.8 ±0.5 times as fast as GPU 24.0 GiB @ 504 GB/s" in text


def test_each_machine_of_a_mixture_has_a_placement_of_its_own() -> None:
    """The longest contexts of different placements say nothing."""
    host = DeviceMemory(HOST_DEVICE, 32 * GIB, 4 * GIB, bandwidth=Bandwidth(51.2e9, "assumed"))
    machines = [replace(each, host=host) for each in CARDS]

    def placed(n_cpu_moe: int, tok_s: float, n_ctx: int) -> PlanRow:
        return replace(row(tok_s, n_ctx), setup=LlamaConfig(n_cpu_moe=n_cpu_moe), is_split=True)

    own = text_of(machines, [placed(24, 25.0, 17_920), placed(8, 40.0, 17_152)])
    assert own.startswith(
        "q4_k_m: RTX 4060 Ti 16.0 GiB holds 16k with -ncmoe 8, ~ 40.0 (33.3–48.0) tok/s; the fastest, 1.6"
    )
    assert "longest context" not in own and " -ncmoe 24 " in own
    assert "options: what stays in main memory; main memory: 32.0 GiB, 4.00 GiB kept free, 51.2 GB/s (assumed)" in own
    same = text_of(machines, [placed(24, 25.0, 17_920), placed(24, 27.0, 60_160)])
    assert "it also holds the longest context, 60,160" in same
