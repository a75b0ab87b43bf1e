"""What a pick measures next: the speed of what it would recommend, until that is known."""

from msgspec.structs import replace

from ggbench.decisions.pick.candidates import next_to_measure
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.neighbours import with_neighbours
from ggbench.decisions.pick.recommend import recommend
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


def test_a_setting_that_nobody_tried_is_no_better_than_its_neighbours() -> None:
    """With f16 measured, caches are estimated from it; only those that may be enough are measured next."""
    found = [
        _bounded("q8_0", "f16", 120, 16.7),
        _bounded("q8_0", "q8_0", 150),
        _bounded("q8_0", "q4_0", 170),
        _bounded("q4_k_m", "f16", 140),
    ]
    estimated = with_neighbours(found)
    assert [round(each.speed.tok_s.value, 1) for each in estimated if each.speed is not None] == [
        16.7,
        20.9,
        23.7,
        19.5,
    ]
    alike = estimated[3].speed
    assert alike is not None
    assert (alike.basis, round(alike.tok_s.high, 1)) == ("other runs", 29.2)
    pick = recommend(estimated, Needs(given_tok_s=40))
    assert pick.nearest_miss is not None and pick.nearest_miss.candidate is estimated[0]
    assert next_to_measure(pick, ()) is estimated[1]
    unmeasured = found[1:]
    assert with_neighbours(unmeasured) == unmeasured


def test_a_setting_that_nobody_tried_does_not_beat_its_estimated_twin_by_a_bound() -> None:
    """The default was measured at another depth, by an unsteady run; -fa off and other quants are not above it."""
    default = _bounded("q8_0", "f16", 119, 0.634)
    assert default.speed is not None
    speed = replace(default.speed, basis="other runs", source="run 1 reached 0.5 % of the bound", is_steady=False)
    default = replace(default, speed=speed)
    untried = _bounded("q8_0", "f16", 119)
    untried = replace(untried, setup=replace(untried.setup, flash_attn="off"))
    found = with_neighbours([default, untried, _bounded("q6_k", "f16", 150)])
    assert all(each.speed is not None and not each.speed.is_bound and not each.speed.is_steady for each in found)
    pick = recommend(found[:2], Needs())
    assert pick.recommended is not None and pick.recommended.candidate is default
    assert "0.634 tok/s (run 1 reached 0.5 % of the bound, unsteady: measure again" in reason(pick)[0]


def _bounded(quant: str, cache: str, bound: float, tok_s: float | None = None) -> Candidate:
    speed = turn_of(bound, basis="bound") if tok_s is None else turn_of(tok_s)
    made = candidate(quant, cache, tok_s=speed, cache_loss=None if cache == "q4_0" else 0.001)
    return replace(made, row=replace(made.row, at_n_ctx=PlannedSpeed(8192, 1e3 / bound, bound, True)))
