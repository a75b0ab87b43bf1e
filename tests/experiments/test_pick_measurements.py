"""What a pick measures next: the speed of what it would recommend, until that is known."""

from msgspec.structs import replace

from ggbench.decisions.pick.candidates import next_to_measure
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.recommend import ranked, recommend
from ggbench.decisions.pick.record import Candidate
from ggbench.decisions.pick.sentences import reason
from ggbench.sizing.plan_record import PlannedSpeed
from tests.fakes.candidates import candidate, turn_of


def test_the_recommendation_then_its_alternatives() -> None:
    """Those whose speed is only estimated or bounded, each once; what is measured or forecast is known."""
    best = candidate("q8_0", loss=0.001, tok_s=turn_of(20.0, basis="other runs"))
    faster = candidate("q4_k_m", loss=0.03, tok_s=turn_of(40.0, basis="other runs"))
    slow = candidate("q6_k", loss=0.002, tok_s=turn_of(21.0, 0.01, "forecast"))
    pick = recommend([best, faster, slow], Needs(given_prefer="quality"))
    assert next_to_measure(pick, ()) is best
    assert next_to_measure(pick, {best.name}) is faster
    assert next_to_measure(pick, {best.name, faster.name}) is None


def test_a_nearest_miss_is_measured_only_where_an_estimate_rules_it_out() -> None:
    estimated = candidate("a", tok_s=turn_of(9.0, basis="other runs"))
    bounded = candidate("a", tok_s=turn_of(9.0, basis="bound"))
    large = candidate("a", tok_s=turn_of(90.0, basis="other runs"), n_ctx=4096, missing_gib=1)
    assert next_to_measure(recommend([estimated], Needs(given_tok_s=10)), ()) is estimated
    assert next_to_measure(recommend([bounded], Needs(given_tok_s=10)), ()) is None
    assert next_to_measure(recommend([large], Needs()), ()) is None


def test_a_disturbed_measurement_is_shown_and_changes_no_order() -> None:
    found = [_bounded("q8_0", "f16", 119), _bounded("q6_k", "f16", 150), _bounded("q4_k_m", "f16", 170)]
    disturbed = replace(turn_of(0.634), is_steady=False)
    needs = Needs(given_tok_s=5)
    before = [each.candidate.quant for each in ranked(recommend(found, needs))]
    for number, each in enumerate(found):
        marked = [*found[:number], replace(each, disturbed=disturbed), *found[number + 1 :]]
        pick = recommend(marked, needs)
        assert [each.candidate.quant for each in ranked(pick)] == before
        assert pick.recommended is not None and pick.recommended.meets is None
        said = "A disturbed run says 0.634 tok/s (run 2)" in " ".join(reason(pick))
        assert said is (pick.recommended.candidate.quant == each.quant)


def _bounded(quant: str, cache: str, bound: float) -> Candidate:
    made = candidate(quant, cache, tok_s=turn_of(bound, basis="bound"), cache_loss=0.001)
    return replace(made, row=replace(made.row, at_n_ctx=PlannedSpeed(8192, 1e3 / bound, bound, True)))
