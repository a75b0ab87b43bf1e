"""What a pick measures next: the speed of what it would recommend, until that is known."""

from msgspec.structs import replace

from ggbench.decisions.pick.candidates import next_to_measure
from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.neighbours import with_neighbours
from ggbench.decisions.pick.recommend import ranked, recommend
from ggbench.decisions.pick.record import Candidate
from ggbench.decisions.pick.sentences import reason
from ggbench.sizing.plan_record import PlannedSpeed
from ggbench.stats.decode_timing import DecodeLimit
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
    weights = replace(found[1].row, limit=DecodeLimit(None, (16 / 150 - 8.5 / 120) / 7.5 * 1e3, 1e9, "given"))
    cached = with_neighbours([found[0], replace(found[1], row=weights)])[1].speed
    assert cached is not None and round(cached.tok_s.value, 1) == 16.7  # its cache alone is smaller
    unmeasured = found[1:]
    assert with_neighbours(unmeasured) == unmeasured


def test_a_setting_that_nobody_tried_does_not_beat_its_estimated_twin_by_a_bound() -> None:
    """The default was measured at another depth; -fa off and other quants are not above it."""
    default = _bounded("q8_0", "f16", 119, 0.634)
    assert default.speed is not None
    default = replace(default, speed=replace(default.speed, basis="other runs"))
    untried = _bounded("q8_0", "f16", 119)
    untried = replace(untried, setup=replace(untried.setup, flash_attn="off"))
    found = with_neighbours([default, untried, _bounded("q6_k", "f16", 150)])
    assert all(each.speed is not None and not each.speed.is_bound for each in found)
    pick = recommend(found[:2], Needs())
    assert pick.recommended is not None and pick.recommended.candidate is default


def test_a_disturbed_measurement_is_shown_and_changes_no_order() -> None:
    found = [_bounded("q8_0", "f16", 119), _bounded("q6_k", "f16", 150), _bounded("q4_k_m", "f16", 170)]
    disturbed = replace(turn_of(0.634), is_steady=False)
    needs = Needs(given_tok_s=5)
    before = [each.candidate.quant for each in ranked(recommend(found, needs))]
    for number, each in enumerate(found):
        marked = with_neighbours([*found[:number], replace(each, disturbed=disturbed), *found[number + 1 :]])
        pick = recommend(marked, needs)
        assert [each.candidate.quant for each in ranked(pick)] == before
        assert pick.recommended is not None and pick.recommended.meets is None
        said = "A disturbed run says 0.634 tok/s (run 2)" in " ".join(reason(pick))
        assert said is (pick.recommended.candidate.quant == each.quant)


def _bounded(quant: str, cache: str, bound: float, tok_s: float | None = None) -> Candidate:
    speed = turn_of(bound, basis="bound") if tok_s is None else turn_of(tok_s)
    made = candidate(quant, cache, tok_s=speed, cache_loss=None if cache == "q4_0" else 0.001)
    return replace(made, row=replace(made.row, at_n_ctx=PlannedSpeed(8192, 1e3 / bound, bound, True)))
