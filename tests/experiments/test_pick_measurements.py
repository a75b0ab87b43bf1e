"""What a pick measures next: the speed of what it would recommend, until that is known."""

from ggbench.decisions.pick.candidates import next_to_measure
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.recommend import recommend
from tests.fakes.candidates import candidate, turn_of


def test_the_recommendation_then_its_alternatives() -> None:
    """Those whose speed is only estimated, each once; what is measured or forecast is known."""
    best = candidate("q8_0", loss=0.001, tok_s=turn_of(20.0, basis="scaled"))
    faster = candidate("q4_k_m", loss=0.03, tok_s=turn_of(40.0, basis="scaled"))
    slow = candidate("q6_k", loss=0.002, tok_s=turn_of(21.0, 0.01, "forecast"))
    pick = recommend([best, faster, slow], Needs(given_prefer="quality"))
    assert next_to_measure(pick, ()) is best
    assert next_to_measure(pick, {best.name}) is faster
    assert next_to_measure(pick, {best.name, faster.name}) is None


def test_a_nearest_miss_is_measured_only_where_an_estimate_rules_it_out() -> None:
    estimated = candidate("a", tok_s=turn_of(9.0, basis="scaled"))
    large = candidate("a", tok_s=turn_of(90.0, basis="scaled"), n_ctx=4096, missing_gib=1)
    assert next_to_measure(recommend([estimated], Needs(given_tok_s=10)), ()) is estimated
    assert next_to_measure(recommend([large], Needs()), ()) is None
