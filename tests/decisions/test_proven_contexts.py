"""Contexts that a run allocated: its finding holds against the plan's, and a pick that fits can be run."""

import pytest

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import check
from ggbench.decisions.pick.record import Candidate, Listed, Pick
from ggbench.decisions.pick.sentences import headline, is_runnable
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.expect.sessions import known_sessions
from ggbench.sizing.plan_record import PlanRow
from ggbench.units import MIB

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


@pytest.mark.parametrize("name", ["chat", "documents"])
def test_a_session_is_shortened_to_the_context(name: str) -> None:
    needs = Needs(known_sessions()[name], 2048)
    assert len(needs.session.turns) == len(known_sessions()[name].turns)
    assert 1900 < needs.session.n_tokens <= 2048 + 13, "a turn reads at least one token"
    assert Needs(needs.workload, 65536).session is needs.workload
