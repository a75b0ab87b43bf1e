"""Contexts that a run allocated: its finding holds against the plan's, and a pick that fits can be run."""

import pytest

from ggbench.decisions.pick.needs import WORKLOADS, Needs, parse_workload
from ggbench.decisions.pick.order import check
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Listed, Pick
from ggbench.decisions.pick.sentences import headline, is_runnable, notes
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.sizing.plan_record import Budget, DeviceMemory, PlanRow
from ggbench.units import GIB, MIB

NEEDS = Needs(given_n_ctx=3072)


def candidate(left_bytes: int, longest: int) -> Candidate:
    row = PlanRow("m", "q4_1", "file", n_ctx=3072, budget_bytes=176 * MIB, left_bytes=left_bytes, fits=left_bytes >= 0,
                  outcome=Outcome.COMPLETED, planned_n_ctx=2816, setup=LlamaConfig(n_ctx=3072))  # fmt: skip
    return Candidate(row, "m", "", longest, probed_by=1)


def test_what_was_allocated_can_be_run_against_the_plan() -> None:
    own = check(candidate(-2 * MIB, 3328), NEEDS)
    assert (own.meets, own.fits, own.left_bytes) == (True, True, None)
    assert is_runnable(Pick(NEEDS, (Listed("→ pick", own),)))


def test_what_could_not_be_allocated_does_not_fit_whatever_is_planned() -> None:
    own = check(candidate(2 * MIB, 2816), NEEDS)
    assert (own.meets, own.fits, own.left_bytes) == (False, False, None)
    found = Pick(NEEDS, (Listed("nearest", own),))
    assert not is_runnable(found)
    assert headline(found).endswith("q4_1, holds 2,816 tokens when allocated, not 3,072")


@pytest.mark.parametrize(
    ("workload", "n_ctx", "turn"),
    [("chat", 512, (322, 190, 0)), ("documents", 2048, (2015, 33, 0)),
     ("chat", 4096, (512, 300, 3284)), ("chat", 8192, (512, 300, 4096))],
)  # fmt: skip
def test_a_named_workloads_turn_is_shortened_to_the_context(
    workload: str, n_ctx: int, turn: tuple[int, int, int]
) -> None:
    needs = Needs(WORKLOADS[workload], n_ctx)
    assert (needs.turn.n_prompt, needs.turn.n_gen, needs.turn.n_depth) == turn
    assert needs.n_ctx_slot == n_ctx


def test_a_shorter_turn_is_noted() -> None:
    def first(workload: str, n_ctx: int) -> str:
        needs = Needs(parse_workload(workload), n_ctx)
        pick = recommend([candidate(2 * MIB, 3328)], needs)
        texts = notes(pick, Budget((DeviceMemory("CUDA0", GIB),)))
        return next(text for text in texts if not text.startswith("Its speed is unknown"))

    assert "976 tokens in and 48 out" in first("2k+100", 1024)
    assert "322 tokens in and 190 out" in first("chat", 512)
    assert "stay free" in first("chat", 2048)
