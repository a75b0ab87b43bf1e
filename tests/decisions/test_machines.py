"""Which of several machines to choose for a model, from their plans."""

import pytest
from msgspec.structs import replace
from rich.console import Console

from ggbench.decisions.machines import (
    PLAN_MACHINES,
    MachineChoice,
    choose_machine,
    machine_name,
    machines_answer,
    machines_record,
)
from ggbench.engines.llama.config import LlamaConfig
from ggbench.machine.description import GIVEN_GPU
from ggbench.show.answer import Facts
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, Change, DeviceMemory, EnginePlan, PlanRow
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Expected
from tests.cli.validation import check_document

GIB = 1 << 30


def machine(name: str, gib: int, rate: Bandwidth | None = None) -> Budget:
    return Budget((DeviceMemory("CUDA0", gib * GIB, GIB, name, bandwidth=rate),), is_here=False)


def row(tok_s: float | None, n_ctx: int, *, fits: bool = True, changes: tuple[Change, ...] = ()) -> PlanRow:
    """Return a plan with a speed within 20 %."""
    expected = None
    if tok_s is not None:
        expected = Expected(tok_s, tok_s / 1.2, tok_s * 1.2, "published", "others' rows")
    left_bytes = GIB if fits else -GIB
    return PlanRow(
        "qwen3-14b", "q4_k_m", "catalog", n_ctx=16384, n_ctx_slot=16384, needed_bytes=11 * GIB, left_bytes=left_bytes,
        fits=fits, planned_n_ctx=n_ctx, expected=expected, changes=changes,
    )  # fmt: skip


def chosen(budgets: list[Budget], rows: list[PlanRow]) -> tuple[MachineChoice, list[str]]:
    """Return the choice and what is printed, whose JSON is checked."""
    choice = choose_machine(list(map(machine_name, budgets)), rows)
    plans = [EnginePlan(budget, (each,), {}) for budget, each in zip(budgets, rows, strict=True)]
    console = Console(width=100, color_system=None)
    with console.capture() as captured:
        console.print(machines_answer(plans, [choice]))
    check_document(PLAN_MACHINES.text(machines_record(plans, [choice])))
    return choice, captured.get().splitlines()


CARDS = [machine("NVIDIA GeForce RTX 3060", 12), machine("NVIDIA GeForce RTX 4060 Ti", 16)]
SMALL, LARGE = "RTX 3060 12.0 GiB", "RTX 4060 Ti 16.0 GiB"


def test_the_fastest_is_named_with_its_lead() -> None:
    choice, lines = chosen(CARDS, [row(25.0, 17_920), row(10.0, 60_160)])
    assert (choice.fastest, choice.lead) == (SMALL, 2.5)
    assert lines == [
        "RTX 3060 12.0 GiB runs q4_k_m 2.5 (1.9–3.2) times as fast as RTX 4060 Ti 16.0 GiB.",
        "",
        "quant   machine                 memory             fits  max n_ctx  tok/s at 16k",
        "q4_k_m  RTX 3060 12.0 GiB     11.0 GiB  ✓ 1.00 GiB left     17,920           ~25",
        "q4_k_m  RTX 4060 Ti 16.0 GiB  11.0 GiB  ✓ 1.00 GiB left     60,160           ~10",
        "",
        "~ estimated from others' rows",
    ]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([row(25.0, 9216), row(25.1, 9216)],
         f"{SMALL} or {LARGE} for q4_k_m: undecided, 1.00 (0.78–1.30) times between them."),
        ([row(25.0, 9216), row(23.0, 9472)],
         f"{SMALL} or {LARGE} for q4_k_m: undecided, 1.09 (0.84–1.41) times between them."),
        ([row(10.0, 9216), row(25.0, 9472)],
         f"{SMALL} is slower with q4_k_m: {LARGE} is 2.5 (1.9–3.2) times as fast."),
        ([row(25.0, 0, fits=False), row(None, 60_160)],
         f"Only {LARGE} holds q4_k_m with 16,384 tokens; {SMALL} is 1.00 GiB short."),
        ([row(1.0, 0, fits=False)] * 2,
         f"q4_k_m fits none of them with 16,384 tokens: {SMALL} is 1.00 GiB short; {LARGE} is 1.00 GiB short."),
        ([row(25.0, 9216), row(None, 9216)],
         f"{SMALL} and {LARGE} hold q4_k_m with 16,384 tokens; not every speed is known."),
    ],
    ids=["equally fast", "undecided", "slower", "one fits", "none fits", "nothing decides"],
)  # fmt: skip
def test_the_choice_is_a_sentence(rows: list[PlanRow], text: str) -> None:
    assert chosen(CARDS, rows)[0].verdict == text


def test_a_machine_that_is_too_small_is_not_chosen_for_its_speed() -> None:
    cache = Change("KV q8_0", LlamaConfig(type_k="q8_0", type_v="q8_0"), GIB, GIB, 20_000)
    choice, lines = chosen(CARDS, [row(25.0, 12_032, fits=False, changes=(cache,)), row(20.0, 60_160)])
    assert choice.fitting == (LARGE,)
    assert f"q4_k_m fits with -ctk q8_0 -ctv q8_0 on {SMALL}." in lines


def test_of_several_quants_the_largest_that_fits_is_in_front_and_the_others_behind() -> None:
    quants = [("q2_k", 3, True), ("q8_0", 8, True), ("bf16", 15, False)]
    rows = [replace(row(25.0, 9216, fits=fits), quant=quant, weight_bytes=gib * GIB) for quant, gib, fits in quants]
    plans = [EnginePlan(budget, tuple(rows), {}, asked_n_ctx=rows[0].n_ctx) for budget in CARDS]
    choices = [choose_machine(list(map(machine_name, CARDS)), [each, each]) for each in rows]
    answer = machines_answer(plans, choices)
    assert answer.text == choices[1].verdict
    beyond = machines_answer([replace(each, asked_n_ctx=1 << 20) for each in plans], choices)
    assert next(filter(None, beyond.notes)).startswith("The model was trained with")
    behind = "\n".join(each.markdown() for each in answer.why if isinstance(each, Facts))
    assert [choice.verdict in behind for choice in choices] == [True, False, True]


def test_machines_of_one_description_are_kept_apart() -> None:
    """The faster is chosen, not the last one."""
    unnamed = [machine(GIVEN_GPU, 24, Bandwidth(rate * 1e9, "given")) for rate in (936, 504)]
    choice, _ = chosen(unnamed, [row(50.0, 60_160), row(28.0, 60_160)])
    assert choice.fastest == "GPU 24.0 GiB @ 936 GB/s"


def test_each_machine_of_a_mixture_has_a_placement_of_its_own() -> None:
    host = DeviceMemory(HOST_DEVICE, 32 * GIB, 4 * GIB, bandwidth=Bandwidth(51.2e9, "assumed"))
    machines = [replace(each, host=host) for each in CARDS]

    def placed(n_cpu_moe: int, tok_s: float, n_ctx: int) -> PlanRow:
        return replace(row(tok_s, n_ctx), setup=LlamaConfig(n_cpu_moe=n_cpu_moe), is_split=True)

    own, lines = chosen(machines, [placed(24, 25.0, 17_920), placed(8, 40.0, 17_152)])
    assert own.fastest == LARGE
    assert any(" -ncmoe 24 " in line for line in lines)
