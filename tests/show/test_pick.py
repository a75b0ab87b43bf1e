"""A pick as people and programs read it."""

import math
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ggbench.decisions.known_losses import typical_loss
from ggbench.decisions.pick.needs import WORKLOADS, Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate
from ggbench.decisions.pick.report import pick_report
from ggbench.decisions.pick.sentences import headline, reason
from ggbench.decisions.pick.show import commands_of
from ggbench.decisions.pick.wording import turn_text
from ggbench.engines.llama.config import LlamaConfig
from ggbench.models.targets import FileToRun
from ggbench.sizing.plan_record import HOST_DEVICE, Budget, DeviceMemory, PlannedDevice
from ggbench.stats.decode_timing import Bandwidth
from ggbench.stats.intervals import Estimate
from ggbench.units import GIB, MIB
from tests.fakes.candidates import candidate, measured_loss, turn_of

Golden = Callable[[str, str], None]
BUDGET = Budget(
    "NVIDIA GeForce RTX 3060", True, 8 * GIB, "given", 1280 * MIB, "for driver and CUDA", Bandwidth(360e9, "given")
)

AS_WITHOUT = "and would be the pick without these needs too."


def _candidates() -> list[Candidate]:
    """Measured, forecast and bounded; a typical loss, an unknown one, and one that does not fit."""
    found = [
        candidate("q8_0", loss=0.002, tok_s=None, n_ctx=4096, gib=7, missing_gib=1.4),
        candidate("q6_k", loss=measured_loss(0.0051), tok_s=21.0, n_ctx=12288, gib=5.5),
        candidate("q4_k_m", loss=measured_loss(0.031), tok_s=turn_of(30.0, 0.09, "forecast"), n_ctx=24576, gib=4),
        candidate("q4_k_m", "q8_0", loss=measured_loss(0.031), cache_loss=None, tok_s=31.0, n_ctx=49152, gib=4),
        candidate("q2_k", loss=typical_loss("q2_k", 7 * 10**9), tok_s=turn_of(60.0, basis="bound"), gib=3),
    ]
    files = [
        FileToRun("m", each.row.quant, (Path(f"/models/m-{each.row.quant}.gguf"),), is_here=True) for each in found
    ]
    return [replace(each, to_run=file) for each, file in zip(found, files, strict=True)]


def test_a_pick_in_a_terminal(golden: Golden, render: Callable[..., str]) -> None:
    pick = recommend(_candidates(), Needs(WORKLOADS["chat"], given_tok_s=15, max_loss=0.05))
    assert pick.recommended is not None
    commands = commands_of(pick.recommended.candidate, BUDGET)
    golden("pick_80.txt", render(pick_report(pick, BUDGET, commands, width=80), 80))
    golden("pick_all_140.txt", render(pick_report(pick, BUDGET, commands, width=140, show_all=True), 140))


def test_nothing_that_meets_the_needs_in_a_terminal(golden: Golden, render: Callable[..., str]) -> None:
    pick = recommend(_candidates(), Needs(WORKLOADS["chat"], given_tok_s=32, max_loss=0.05))
    assert pick.recommended is None
    golden("pick_nothing.txt", render(pick_report(pick, BUDGET, None, width=80), 80))


def test_the_reason_names_what_decided() -> None:
    found = _candidates()
    balanced = replace(
        found[2], row=replace(found[2].row, quant="q4_0"), weights_loss=measured_loss(0.045), speed=turn_of(33.0, 0.09)
    )
    for candidates, needs, words in (
        (found, Needs(), ("0.0310 ±0.0006 nats", "30.0 tok/s", "5.29 tok/s", "21.0 ±1.1 tok/s", "~0.22 nats")),
        (found, Needs(given_prefer="quality"), ("q8_0 would come first, but misses", "1.40 GiB", "4,096")),
        (found, Needs(given_prefer="speed"), ("q4_k_m is the fastest", AS_WITHOUT)),
        (found, Needs(given_prefer="context"), ("q4_k_m has the longest context",)),
        (found, Needs(given_tok_s=29.0, max_loss=0.05), ("The interval of its speed includes the limit.",)),
        ([*found, balanced], Needs(given_prefer="speed"), ("q4_k_m is the best balance", AS_WITHOUT)),
        (found[1:3], Needs(max_loss=0.003), ("The nearest, q6_k, misses", "0.0030 nats by 0.0021")),
    ):
        text = " ".join(reason(recommend(candidates, needs)))
        assert all(each in text for each in words), text


def test_a_bound_is_not_called_faster_than_people_read() -> None:
    bounded = candidate("q8_0", loss=0.001, tok_s=turn_of(119.0, basis="bound"))
    first, *others = reason(recommend([bounded], Needs(given_tok_s=40)))
    assert first.endswith("; it answers at up to 119 tok/s, a limit and not measured.")
    assert "Whether it meets 40.0 tok/s is not known." in others


def test_a_bound_from_a_busy_machine_is_marked_and_rules_nothing_out(render: Callable[..., str]) -> None:
    speed = replace(turn_of(20.0, basis="bound"), is_steady=False)
    pick = recommend([candidate("q8_0", loss=0.001, tok_s=speed)], Needs(given_tok_s=40))
    assert pick.recommended is not None and pick.recommended.meets is None
    text = render(pick_report(pick, BUDGET, None, width=140), 140)
    assert "! ≤ 20.0" in text and "measured on a busy machine, so this may be too low" in text


def test_what_lacks_main_memory_says_so(render: Callable[..., str]) -> None:
    """And the header has the main memory that the others are sized for."""
    host = DeviceMemory(HOST_DEVICE, 32 * GIB, 4 * GIB, bandwidth=Bandwidth(51.2e9, "assumed"))
    part = PlannedDevice(
        device=HOST_DEVICE, n_layers=0, memory_bytes=32 * GIB, usable_bytes=28 * GIB, weight_bytes=30 * GIB, kv_bytes=0,
        compute_bytes=0,
    )  # fmt: skip
    short = candidate("q8_0", loss=0.002, tok_s=10.0, n_ctx=0, gib=7, missing_gib=2.0)
    short = replace(
        short, row=replace(short.row, devices=(part,)), setup=LlamaConfig(n_cpu_moe=40), host_bytes=30 * GIB
    )
    on_gpu = candidate("q8_0", loss=0.002, tok_s=40.0, n_ctx=0, gib=37, missing_gib=30.0)
    for others, said in (
        ([candidate("q4_k_m", loss=0.031)], "q8_0 -ncmoe 40 needs 2.00 GiB more main memory."),
        ([], "The nearest, q8_0 -ncmoe 40, needs 2.00 GiB more main memory."),
    ):
        pick = replace(recommend([on_gpu, short, *others], Needs()), main_memory=host)
        text = " ".join(render(pick_report(pick, BUDGET, None, width=180), 180).split())
        assert said in text
        assert "✗ -2.00 GiB of main memory" in text
        assert "main memory 32.0 GiB, 4.00 GiB kept free, 51.2 GB/s (assumed)" in text
    alone = replace(recommend([on_gpu], Needs()), main_memory=host)
    assert "main memory" not in render(pick_report(alone, BUDGET, None, width=180), 180)


def test_a_draft_is_named_with_what_the_speeds_leave_out(render: Callable[..., str]) -> None:
    plain = candidate()
    drafted = replace(plain, row=replace(plain.row, draft_bytes=GIB))
    budget = replace(BUDGET, draft=FileToRun("small", "q8_0"))
    text = " ".join(render(pick_report(recommend([drafted], Needs()), budget, None, width=140), 140).split())
    assert "draft 1.00 GiB: small q8_0 with its own context (--draft); speeds do not include drafting" in text


def test_what_leaves_little_says_what_may_take_it() -> None:
    own = candidate()
    for mib, said in ((128, ["Only 128.0 MiB stay free"]), (301, [])):
        row = replace(own.row, left_bytes=mib * MIB)
        found = [each for each in reason(recommend([replace(own, row=row)], Needs())) if each.startswith("Only")]
        assert [each[:24] for each in found] == said


def test_what_may_meet_a_need_is_not_said_to_and_a_turn_by_a_bound_takes_that_long_or_longer() -> None:
    bound = replace(turn_of(60.0, basis="bound"), turn_s=Estimate(5.0, 4.8, math.inf))
    found = candidate(cache="q8_0", cache_loss=None, tok_s=bound)
    pick = recommend([found], Needs(given_tok_s=40.0, max_loss=0.05))
    text = " ".join(reason(pick))
    assert "Whether it meets 40.0 tok/s and a loss of 0.050 nats is not known." in text
    assert turn_text(found) == "≥ 5.00"
    assert "a turn in ≥ 5.00 s; it may meet the needs." in headline(pick)
