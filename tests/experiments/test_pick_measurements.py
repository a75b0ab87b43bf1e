"""What a pick measures next: the speed of what it would recommend, until that is known."""

from ggbench.decisions.pick.candidates import next_to_measure
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Pick
from tests.fakes.candidates import candidate, turn_of


def _next(pick: Pick, *tried: Candidate) -> tuple[str, ...] | None:
    found = next_to_measure(pick, {each.name for each in tried})
    return None if found is None else found.name


def test_the_recommendation_then_its_alternatives() -> None:
    """Those whose speed is only estimated, each once; what is measured or forecast is known."""
    best = candidate("q8_0", loss=0.001, tok_s=turn_of(20.0, basis="scaled"))
    faster = candidate("q4_k_m", loss=0.03, tok_s=turn_of(40.0, basis="scaled"))
    slow = candidate("q6_k", loss=0.002, tok_s=turn_of(21.0, 0.01, "forecast"))
    pick = recommend([best, faster, slow], Needs(prefer="quality"))
    assert _next(pick) == best.name
    assert _next(pick, best) == faster.name
    assert _next(pick, best, faster) is None


def test_a_nearest_miss_is_measured_only_where_an_estimate_rules_it_out() -> None:
    estimated = candidate("a", tok_s=turn_of(9.0, basis="scaled"))
    large = candidate("a", tok_s=turn_of(90.0, basis="scaled"), n_ctx=4096, missing_gib=1)
    assert _next(recommend([estimated], Needs(tok_s=10))) == estimated.name
    assert _next(recommend([large], Needs())) is None
