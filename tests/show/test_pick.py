"""A pick as people and programs read it."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from ggbench.decisions.pick import choose
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import check
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Listed, Pick
from ggbench.decisions.pick.run_commands import RunCommands
from ggbench.decisions.pick.sentences import (
    _values,
    headline,
    is_runnable,
    notes,
    said,
)
from ggbench.decisions.pick.show import PICK, pick_answer, pick_record, settings_of
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.loss import expected_cache_loss, expected_loss
from ggbench.expect.sessions import known_sessions
from ggbench.models import catalog
from ggbench.models.targets import FileToRun
from ggbench.runs.store.database import Store
from ggbench.show import words
from ggbench.show.answer import Table
from ggbench.show.plan import basis_mark
from ggbench.show.words import say
from ggbench.sizing.budget import with_main_memory
from ggbench.sizing.plan import Planners
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory, PlannedDevice
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Expected
from ggbench.units import GIB, MIB
from tests.fakes.candidates import candidate, measured_loss, session_of

Golden = Callable[[str, str], None]
WORDS = tomllib.loads(Path(words.__file__).with_name("words.toml").read_text("utf-8"))
CARD = DeviceMemory(
    "CUDA0", 8 * GIB, 1280 * MIB, "NVIDIA GeForce RTX 3060", bandwidth=Bandwidth(360e9, "given"),
    memory_source="given", reserve_source="for driver and CUDA",
)  # fmt: skip
BUDGET = Budget((CARD,))


def _candidates() -> list[Candidate]:
    """Measured, forecast and unknown; a typical loss, an unknown one, and one that does not fit."""
    found = [
        candidate("q8_0", loss=0.002, tok_s=None, n_ctx=4096, gib=7, missing_gib=1.4),
        candidate("q6_k", loss=measured_loss(0.0051), tok_s=21.0, n_ctx=12288, gib=5.5),
        candidate("q4_k_m", loss=measured_loss(0.031), tok_s=session_of(30.0, 0.09, "forecast"), n_ctx=24576, gib=4),
        candidate("q4_k_m", "q8_0", loss=measured_loss(0.031), cache_loss=0.015, tok_s=31.0, n_ctx=49152, gib=4),
        candidate("q2_k", loss=expected_loss("", "q2_k", 7 * 10**9), tok_s=None, gib=3),
    ]
    files = [
        FileToRun("m", each.row.quant, (Path(f"/models/m-{each.row.quant}.gguf"),), is_here=True) for each in found
    ]
    return [replace(each, to_run=file) for each, file in zip(found, files, strict=True)]


def commands_of(candidate: Candidate, budget: Budget) -> RunCommands | None:
    run = settings_of(candidate, budget)
    return None if run is None else run.commands


def printed(pick: Pick, budget: Budget = BUDGET) -> str:
    chosen = pick.best
    commands = None if chosen is None else commands_of(chosen, budget)
    return pick_answer(pick, budget, commands).markdown(why=True)


def reasons(pick: Pick) -> list[str]:
    return [said(pick, each) for each in pick.why]


def keys(pick: Pick) -> list[str]:
    return [each.key for each in (*pick.mind, *pick.why)]


def test_a_pick_in_a_terminal(golden: Golden, render: Callable[..., str]) -> None:
    pick = recommend(_candidates(), Needs(known_sessions()["chat"], tok_s=15, max_loss=0.05))
    assert pick.recommended is not None
    answer = pick_answer(pick, BUDGET, commands_of(pick.recommended, BUDGET))
    golden("pick_80.txt", render(answer.rich(), 80))
    golden("pick_why_140.txt", render(answer.rich(why=True), 140))


def test_nothing_that_meets_the_needs_in_a_terminal(golden: Golden, render: Callable[..., str]) -> None:
    pick = recommend(_candidates(), Needs(known_sessions()["chat"], tok_s=32, max_loss=0.05))
    assert pick.recommended is None
    golden("pick_nothing.txt", render(pick_answer(pick, BUDGET, None).rich(), 80))


def test_the_reasons_are_what_decided() -> None:
    found = _candidates()
    for candidates, needs, decided in (
        (found, Needs(), "pick_best.loss"),
        (found, Needs(prefer="quality"), "pick_against.misses"),
        (found[:3], Needs(prefer="speed"), "pick_against.slower"),
        (found, Needs(prefer="context"), "pick_best.context"),
        (found[1:3], Needs(max_loss=0.003), "pick.misses"),
        ([replace(each, speed=session_of(3.0)) for each in found], Needs(), "pick_best.slow"),
    ):
        assert decided in keys(recommend(candidates, needs)), needs


def test_every_reason_can_be_said_of_any_candidate() -> None:
    for other in (candidate(), candidate(tok_s=None, loss=None, n_ctx=None)):
        values = _values(recommend(_candidates(), Needs()), check(other, Needs()))
        for room in ("pick_best", "pick_against"):
            assert all(say(f"{room}.{name}", **values) for name in WORDS[room])


def test_no_reason_says_what_is_not_known() -> None:
    """The prompts are not timed, and another quant has no speed."""
    untimed = replace(session_of(21.0), total_s=None)
    found = [
        candidate("q6_k", loss=0.005, tok_s=untimed, gib=5.5),
        candidate("q4_k_m", loss=0.03, tok_s=None, gib=4),
        candidate("q2_k", loss=None, tok_s=None, gib=3),
    ]
    texts = reasons(recommend(found, Needs(prefer="quality")))
    assert any(text.startswith("In a chat session it answers at 21") for text in texts)
    assert "How fast q4_k_m answers is not known." in texts
    assert not [text for text in texts if "—" in text or "?" in text]


def test_few_quants_have_a_row_each_also_those_that_are_no_alternative() -> None:
    """People named them; of many only the listed ones are in front."""
    found = [*_candidates(), candidate("q5_0", loss=0.02, tok_s=25.0, gib=5)]
    for pick in (recommend(found, Needs()), recommend(found, Needs(tok_s=15, max_loss=0.05))):
        table = pick_answer(pick, BUDGET, None).parts[0]
        assert isinstance(table, Table)
        assert {row.candidate.quant for row in table.rows} == {each.quant for each in found}
    many = recommend([*found, candidate("q5_k_m"), candidate("q3_k_m")], Needs())
    table = pick_answer(many, BUDGET, None).parts[0]
    assert isinstance(table, Table) and table.rows == many.listed


def test_the_alternative_with_another_cache_has_the_speed_of_the_table() -> None:
    quantized = candidate("q4_k_m", "q8_0", cache_loss=0.001, tok_s=30.0)
    whole = candidate("q4_k_m", tok_s=10.0)
    whole = replace(whole, row=replace(whole.row, expected=Expected(8.0, 7.0, 9.0, "published", "rows")))
    found = [text for text in notes(recommend([quantized, whole], Needs()), BUDGET) if "f16 cache" in text]
    assert "it is q4_k_m: 8.0 ±1.0 tok/s," in found[0]


def test_an_assumed_main_memory_is_the_first_note() -> None:
    """It decides the speed of what is split; what is on the GPU alone does not read it."""
    expected = Expected(20.0, 15.0, 25.0, "published", "24 rows")
    budget = replace(with_main_memory(BUDGET), is_here=False)
    for is_split in (True, False):
        own = candidate("q4_k_m", loss=0.03)
        own = replace(own, row=replace(own.row, expected=expected, is_split=is_split))
        first = next(iter(notes(recommend([own], Needs()), budget)), "")
        assert ("DDR4-3200" in first, "--ram 64GiB@" in first) == (is_split, is_split)


def test_the_note_of_an_unknown_speed_asks_for_the_bandwidth() -> None:
    nothing = recommend([candidate("q8_0", loss=0.001, tok_s=None)], Needs())
    assert "pick.no_bandwidth" in keys(nothing)


def test_an_uncertain_number_has_its_mark_and_the_decisive_one_its_interval() -> None:
    """The speed is with a full context; that of a disturbed run and a typical loss are marked."""
    full = Expected(24.0, 15.0, 40.0, "published", "24 rows")
    typical = expected_loss("", "q4_k_m", 7 * 10**9)
    assert typical is not None
    for speed, loss, mark, begins in (
        (full, typical, "~", "Run q4_k_m: ~24 tok/s (15–40) at 8k, loses little ("),
        (replace(full, is_steady=False, basis="measured"), typical, "!", "Run q4_k_m: !24 tok/s (15–40) at 8k"),
        (Expected(24.0, 23.0, 25.0, "measured", "run 1"), measured_loss(0.1), "",
         "Run q4_k_m: 24 tok/s (23–25) at 8k, loses what people notice (0.10 nats)."),
    ):  # fmt: skip
        own = candidate(loss=loss)
        own = replace(own, row=replace(own.row, expected=speed))
        assert basis_mark(own.row.expected) == mark
        assert headline(recommend([own], Needs())).startswith(begins)
    wide = Expected(0.025, 0.008, 0.441, "typical", "rows")
    assert "(~0.025 nats, 0.0080–0.44)" in headline(recommend([candidate(loss=wide)], Needs()))
    assert "loses nothing" in headline(recommend([candidate("f16", loss=expected_loss("", "f16", 10**9))], Needs()))
    assert "loss unknown" in headline(recommend([candidate(loss=None)], Needs()))


def test_what_lacks_main_memory_says_so() -> None:
    host = DeviceMemory(HOST_DEVICE, 32 * GIB, 4 * GIB, bandwidth=Bandwidth(51.2e9, "assumed"))
    card = PlannedDevice(device="CUDA0", n_layers=9, memory_bytes=8 * GIB, weight_bytes=GIB, kv_bytes=0)
    part = PlannedDevice(
        device=HOST_DEVICE, n_layers=0, memory_bytes=32 * GIB, weight_bytes=30 * GIB, kv_bytes=0, reserve_bytes=4 * GIB
    )
    short = candidate("q8_0", loss=0.002, tok_s=10.0, n_ctx=0, gib=7, missing_gib=2.0)
    row = replace(short.row, devices=(card, part), setup=LlamaConfig(n_ctx=8192, n_cpu_moe=40))
    short = replace(short, row=row, host_bytes=30 * GIB)
    on_gpu = candidate("q8_0", loss=0.002, tok_s=40.0, n_ctx=0, gib=37, missing_gib=30.0)
    beside = recommend([on_gpu, short, candidate("q4_k_m", loss=0.031)], Needs())
    assert "q8_0 -ncmoe 40 is 2.00 GiB of main memory short." in reasons(beside)
    assert "main memory: 32.0 GiB" in printed(beside, replace(BUDGET, host=host))
    nothing = recommend([on_gpu, short], Needs())
    assert not is_runnable(nothing)
    assert headline(nothing) == "m does not fit: the nearest, q8_0 -ncmoe 40, is 2.00 GiB of main memory short"


def test_what_leaves_little_says_how_to_have_more() -> None:
    own = candidate()
    for mib, n_cpu_moe, reminders in (
        (128, 0, ["pick.little_left"]),
        (128, 3, ["pick.little_left_experts"]),
        (301, 0, []),
    ):
        row = replace(own.row, left_bytes=mib * MIB, setup=replace(own.setup, n_cpu_moe=n_cpu_moe))
        pick = recommend([replace(own, row=row)], Needs())
        assert [key for key in keys(pick) if "little" in key] == reminders


def test_four_rows_one_more_for_a_named_quant_and_three_notes_are_in_front() -> None:
    pick = recommend(_candidates(), Needs(known_sessions()["chat"], tok_s=15, max_loss=0.05))
    many = replace(pick, listed=tuple(Listed("faster", each) for each in pick.candidates))
    answer = pick_answer(many, BUDGET, None)
    (table,) = answer.parts
    assert isinstance(table, Table) and len(table.rows) == 5
    noted = RunCommands("llama-server", notes=("a", "b", "c", "d"))
    assert pick_answer(many, BUDGET, noted).markdown().count("\n- ") == 3


@pytest.mark.parametrize(
    ("model", "architecture", "cache", "said_of_it"),
    [
        (
            "gemma-4-31b",
            "gemma4",
            "q8_0",
            "gemma-4-31b loses what people notice with a q8_0 cache: 0.11 nats",
        ),
        ("gemma-4-26b-a4b", "gemma4", "q4_0", "gemma-4-26b-a4b loses what people notice with a q4_0 cache: 1.1 nats"),
        ("qwen3-14b", "qwen3", "q8_0", ""),
        ("qwen3.8-27b", "qwen35", "q8_0", ""),
        ("gemma-4-31b", "gemma4", "f16", ""),
    ],
)
def test_a_cache_that_costs_what_people_notice_is_named_with_its_model(
    model: str, architecture: str, cache: str, said_of_it: str
) -> None:
    """If it costs that much in most cases; it is then not called little."""
    own = replace(
        candidate("q5_k_m", cache, model=model, loss=0.005),
        cache_loss=expected_cache_loss(model, architecture, (cache, cache)),
    )
    pick = recommend([own], Needs())
    noted = [each for each in notes(pick, BUDGET) if "people notice" in each]
    assert [each.startswith(said_of_it) for each in noted] == [True] * bool(said_of_it)
    assert ("loses little" in headline(pick)) is not bool(said_of_it)


def test_what_people_notice_is_not_the_limit_of_the_user() -> None:
    own = candidate("q5_k_m", "q8_0", loss=0.005, cache_loss=0.004)
    strict, loose = (recommend([own], Needs(max_loss=limit)) for limit in (0.001, 0.5))
    assert not [text for text in (*notes(strict, BUDGET), *reasons(strict)) if "people notice" in text]
    assert "it loses 0.009" in headline(strict) and "loses little" in headline(loose)
    lossy = recommend([candidate("q2_k", loss=0.3)], Needs(max_loss=0.5))
    assert "loses what people notice" in headline(lossy)


def test_a_speed_that_is_not_at_the_context_says_in_which_session() -> None:
    slow = candidate("q4_k_m", loss=0.03, tok_s=session_of(3.0))
    for needs in (Needs(), Needs(tok_s=32)):
        pick = recommend([slow], needs)
        texts = [headline(pick), *notes(pick, BUDGET), *reasons(pick)]
        assert any("tok/s in a chat session" in text for text in texts), texts


def test_what_draws_a_pick_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of a terminal and of the TUI, and JSON, without catalog, planner, results or the rules of a pick."""
    pick = recommend(_candidates(), Needs(known_sessions()["chat"], tok_s=15, max_loss=0.05))
    nothing = recommend(_candidates(), Needs(known_sessions()["chat"], tok_s=32, max_loss=0.05))

    def unreachable(*_: object, **__: object) -> NoReturn:
        raise AssertionError("drawn, not decided")

    for owner, name in (
        (catalog, "load_catalog"), (Planners, "rows"), (Store, "open"), (choose, "best_of"), (choose, "best_way"),
        (Needs, "notices"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, unreachable)
    for each in (pick, nothing):
        commands = None if each.best is None else commands_of(each.best, BUDGET)
        assert pick_answer(each, BUDGET, commands).markdown(why=True)
        assert PICK.text(pick_record(each, BUDGET, commands, LlamaConfig()))
        assert pick_answer(each, BUDGET, commands).text == headline(each)
