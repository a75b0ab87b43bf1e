"""Which quant is recommended: by properties that hold for any candidates, and by the stated rules one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ggbench.decisions.pick.needs import Needs
from ggbench.decisions.pick.order import check, concessions, dominates, least_loss
from ggbench.decisions.pick.recommend import recommend
from ggbench.decisions.pick.record import Candidate, Pick
from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.expect.loss import expected_loss
from ggbench.expect.sessions import known_sessions
from ggbench.stats.intervals import Expected, SpeedBasis
from ggbench.stats.speed_curve import SessionTime
from tests.fakes.candidates import candidate, measured_loss, session_of

_SMALL = st.sampled_from([0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5])


@st.composite
def losses(draw: st.DrawFn) -> Expected | None:
    kind = draw(st.sampled_from(["measured", "typical", "unknown"]))
    if kind == "typical":
        quant = draw(st.sampled_from(["q8_0", "q6_k", "q5_k_m", "q4_k_m", "q4_0", "q2_k"]))
        return expected_loss("", quant, 7 * 10**9)
    return measured_loss(draw(_SMALL), draw(st.sampled_from([0.0, 0.1, 0.9]))) if kind == "measured" else None


@st.composite
def speeds(draw: st.DrawFn) -> SessionTime | None:
    basis: SpeedBasis | None = draw(st.sampled_from(["measured", "forecast", "scaled", "published", None]))
    if basis is None:
        return None
    found = session_of(
        draw(st.sampled_from([5.0, 10.0, 10.5, 20.0, 40.0])), draw(st.sampled_from([0.0, 0.1, 0.4])), basis
    )
    return replace(found, total_s=None) if draw(st.booleans()) else found


@st.composite
def candidate_lists(draw: st.DrawFn) -> list[Candidate]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        cache = draw(st.sampled_from(["f16", "q8_0", "q4_0"]))
        one = candidate(
            f"q{number}",
            cache,
            model=draw(st.sampled_from(["m", "m", "n"])),
            loss=draw(losses()),
            cache_loss=0.0 if cache == "f16" else draw(st.sampled_from([0.0, 0.02, 0.2])),
            tok_s=draw(speeds()),
            n_ctx=draw(st.sampled_from([None, 0, 4096, 8192, 16384, 32768])),
            gib=draw(st.sampled_from([2.0, 3.0, 4.0])),
        )
        if draw(st.integers(0, 9)) == 0:
            one = replace(one, row=replace(one.row, outcome=Outcome.FAILED, reason="no"), max_n_ctx=None)
        found.append(one)
    return found


@st.composite
def any_needs(draw: st.DrawFn) -> Needs:
    return Needs(
        known_sessions()["chat"], draw(st.sampled_from([None, 4096, 16384, 65536])),
        draw(st.sampled_from([None, 8.0, 15.0])), draw(st.sampled_from([0.0, 0.02, 0.2])),
        draw(st.sampled_from(["balanced", "balanced", "quality", "speed", "context"])),
    )  # fmt: skip


def _chosen(pick: Pick) -> Candidate | None:
    """The recommendation without its checks, as it was given."""
    return None if pick.recommended is None else replace(pick.recommended, checks=())


@given(candidate_lists(), any_needs())
def test_the_recommendation_is_never_dominated_and_meets_every_need(found: list[Candidate], needs: Needs) -> None:
    pick = recommend(found, needs)
    checked = [check(each, needs) for each in found]
    chosen = _chosen(pick)
    if chosen is None:
        assert all(each.meets is False for each in checked)
        assert pick.nearest_miss is not None and pick.nearest_miss.missed
        return
    assert not any(dominates(each, chosen) for each in found)
    own = check(chosen, needs)
    assert own.meets is not False
    assert own.meets or not any(each.meets for each in checked)
    assert own.meets is None or (chosen.max_n_ctx or 0) >= needs.n_ctx
    for alternative in pick.listed[1:]:
        assert alternative.candidate.meets is not False
        assert not any(dominates(each, alternative.candidate) for each in found)


@given(candidate_lists(), any_needs(), st.data())
def test_rows_that_are_dominated_change_nothing(found: list[Candidate], needs: Needs, data: st.DataObject) -> None:
    pick = recommend(found, needs)
    worse = [_worse(each, data) for each in data.draw(st.lists(st.sampled_from(found), max_size=3))]
    added = [replace(each, selector=f"added {number}") for number, each in enumerate(worse) if each is not None]
    added = [each for each in added if any(dominates(one, each) for one in found)]
    again = recommend(data.draw(st.permutations([*found, *added])), needs)
    assert _chosen(again) == _chosen(pick)
    assert [each.candidate for each in again.listed[1:]] == [each.candidate for each in pick.listed[1:]]


def _worse(one: Candidate, data: st.DataObject) -> Candidate | None:
    if not one.max_n_ctx or one.speed is None or one.weights_loss is None:
        return None
    factor = data.draw(st.sampled_from([1.0, 1.0001, 2.0, 50.0]))
    loss, speed = one.weights_loss, one.speed
    more, tok_s = _times(loss, factor), _times(speed.tok_s, 1 / factor)
    total = speed.total_s and _times(speed.total_s, factor)
    n_ctx = one.max_n_ctx - 256
    return replace(
        one, weights_loss=more, speed=replace(speed, tok_s=tok_s, total_s=total),
        max_n_ctx=n_ctx,
    )  # fmt: skip


def _times(of: Expected, factor: float) -> Expected:
    return replace(of, value=of.value * factor, low=of.low * factor, high=of.high * factor)


def test_quality_takes_the_least_loss_then_the_faster() -> None:
    found = [
        candidate("q8_0", loss=measured_loss(0.010, 0.3), tok_s=10, gib=7),
        candidate("q6_k", loss=measured_loss(0.011, 0.3), tok_s=15, gib=6),
        candidate("q4_k_m", loss=measured_loss(0.040, 0.3), tok_s=25, gib=4),
    ]
    pick = recommend(found, Needs(prefer="quality"))
    assert pick.recommended is not None
    assert pick.recommended.row.quant == "q6_k"
    assert [(each.label, each.candidate.row.quant) for each in pick.listed[1:]] == [("faster", "q4_k_m")]
    assert _against(pick) == {"q8_0": "slower", "q4_k_m": "loses"}


def _against(pick: Pick) -> dict[str, str]:
    room = "pick_against."
    return {each.about.quant: each.key.removeprefix(room) for each in pick.why if each.key.startswith(room)}


def _rules(pick: Pick) -> list[str]:
    room = "pick_best."
    return [each.key.removeprefix(room) for each in pick.why if each.key.startswith(room)]


@pytest.mark.parametrize(
    ("needs", "quant"),
    [
        (Needs(), "q4_k_m"), (Needs(prefer="quality"), "q8_0"),
        (Needs(tok_s=12), "q4_k_m"), (Needs(tok_s=22), "q2_k"),
        (Needs(given_n_ctx=20000), "q4_k_m"), (Needs(given_n_ctx=40000), "q2_k"),
        (Needs(prefer="speed"), "q4_k_m"), (Needs(prefer="speed", max_loss=0.5), "q2_k"),
        (Needs(prefer="context"), "q4_k_m"),
    ],
)  # fmt: skip
def test_the_answer_changes_where_a_need_crosses_a_figure(needs: Needs, quant: str) -> None:
    found = [
        candidate("q8_0", loss=0.001, tok_s=10, n_ctx=16384, gib=7),
        candidate("q4_k_m", loss=0.03, tok_s=20, n_ctx=32768, gib=4),
        candidate("q2_k", loss=0.3, tok_s=30, n_ctx=49152, gib=3),
    ]
    chosen = _chosen(recommend(found, needs))
    assert chosen is not None
    assert chosen.row.quant == quant


def test_an_unknown_loss_comes_after_a_little_and_before_much() -> None:
    little, unknown, much = (
        candidate("q4_k_m", loss=0.03, n_ctx=16384),
        candidate("tq2_0", loss=None, n_ctx=32768),
        candidate("q2_k", loss=0.3, n_ctx=65536),
    )
    order = [_chosen(recommend(found, Needs())) for found in ([much, unknown, little], [much, unknown], [much])]
    assert order == [little, unknown, much]


def test_an_unknown_speed_comes_after_one_that_is_enough() -> None:
    unknown, slower = candidate("a", tok_s=None), candidate("c", tok_s=11.0, loss=0.04)
    assert check(unknown, Needs(tok_s=10)).meets is None
    assert _chosen(recommend([unknown, slower], Needs(tok_s=10))) == slower
    assert _chosen(recommend([unknown, candidate("b", tok_s=5.0)], Needs(tok_s=10))) == unknown


def test_the_nearest_miss_is_the_smallest_share_of_what_is_wanted() -> None:
    found = [
        candidate("far", tok_s=5, n_ctx=16384),
        candidate("near", tok_s=9.5, n_ctx=16384),
        candidate("large", tok_s=20, n_ctx=4096, missing_gib=3),
    ]
    pick = recommend(found, Needs(tok_s=10))
    assert pick.recommended is None
    assert pick.nearest_miss is not None
    assert pick.nearest_miss.row.quant == "near"
    assert pick.nearest_miss.missed[0].short_by == pytest.approx(0.05)


def test_what_people_notice_is_not_nearest_for_missing_one_need_less() -> None:
    found = [candidate("q2_k", loss=0.113, tok_s=72), candidate("q8_0", loss=0.0023, tok_s=16)]
    pick = recommend(found, Needs(tok_s=60, max_loss=0.001))
    assert pick.nearest_miss is not None and pick.nearest_miss.quant == "q8_0"


def test_better_is_comfortable_at_the_context_that_was_asked_for() -> None:
    own = candidate("q4_k_m", loss=0.03, tok_s=12)
    for tok_s, labels in ((8.0, ["→ pick", "better"]), (5.0, ["→ pick"])):
        other = candidate("q8_0", loss=0.001, tok_s=7.0)
        expected = Expected(tok_s, tok_s, tok_s, "measured", "run 1")
        other = replace(other, row=replace(other.row, expected=expected))
        assert [each.label for each in recommend([own, other], Needs()).listed] == labels


def test_of_several_models_the_one_with_most_parameters() -> None:
    large = candidate("q2_k", model="large", loss=0.04, tok_s=8, n_params=14_000_000_000)
    small = candidate("q8_0", model="small", loss=0.001, tok_s=40, n_params=1_000_000_000)
    assert _chosen(recommend([small, large], Needs())) == large
    assert _chosen(recommend([small, large], Needs(tok_s=10))) == small
    assert _chosen(recommend([small, large], Needs(prefer="speed"))) == small
    assert recommend([small, large], Needs()).n_models == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"tok_s": -1.0}, {"tok_s": float("nan")}, {"max_loss": -0.1},
        {"given_n_ctx": 2**40},
    ],
)  # fmt: skip
def test_needs_that_nothing_meets(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Needs(**wrong)  # type: ignore[arg-type]


def test_a_balance_takes_the_faster_of_what_nobody_can_tell_apart() -> None:
    """Less loss is worth a little speed, not twice the time; below comfort only speed counts."""
    q8_0, q6_k, q4_k_m, q2_k = (
        candidate("q8_0", loss=0.001, tok_s=20, gib=7),
        candidate("q6_k", loss=0.005, tok_s=27, gib=5.5),
        candidate("q4_k_m", loss=0.03, tok_s=30, gib=4),
        candidate("q2_k", loss=0.3, tok_s=45, gib=3),
    )
    found = [q8_0, q6_k, q4_k_m, q2_k]
    assert _chosen(recommend(found, Needs())) == q6_k
    assert _chosen(recommend([q8_0, q4_k_m, q2_k], Needs())) == q4_k_m
    slow = [replace(each, speed=session_of(each.speed.tok_s.value / 10)) for each in found if each.speed is not None]
    pick = recommend(slow, Needs())
    assert (pick.comfortable, _chosen(pick)) == (False, slow[2])
    assert _chosen(recommend([q2_k], Needs())) == q2_k


def test_little_loss_buys_no_memory_unless_quality_is_preferred() -> None:
    q8_0, q6_k = candidate("q8_0", loss=0.006, tok_s=30, gib=6), candidate("q6_k", loss=0.0065, tok_s=31, gib=5.5)
    assert _chosen(recommend([q8_0, q6_k], Needs())) == q6_k
    assert _chosen(recommend([q8_0, q6_k], Needs(prefer="quality"))) == q8_0
    assert _chosen(recommend([q8_0, candidate("q5_k_m", loss=0.0115, tok_s=31, gib=5)], Needs())) == q8_0


def test_a_fast_answer_after_an_unknown_wait_is_not_known_to_be_comfortable() -> None:
    known = candidate("q8_0", loss=0.001, tok_s=30, gib=7)
    assert known.speed is not None
    unknown = replace(known, speed=replace(known.speed, total_s=None, first_wait_s=None, last_wait_s=None))
    assert (recommend([known], Needs()).comfortable, recommend([unknown], Needs()).comfortable) == (True, None)


def test_a_part_in_main_memory_counts_by_its_speed_and_a_quantized_cache_by_its_loss() -> None:
    whole = candidate("q4_k_m", loss=0.03, tok_s=session_of(30, 0.05, "published"), n_ctx=8192)
    cache = candidate(
        "q6_k", "q8_0", loss=0.005, cache_loss=0.001, tok_s=session_of(28, 0.05, "published"), n_ctx=16384
    )
    split = replace(candidate("q8_0", loss=0.001, tok_s=session_of(20, 0.05, "published")), host_bytes=2**30)
    coarse = candidate("q8_0", "q4_0", loss=0.001, cache_loss=0.4, tok_s=session_of(60, 0.05, "published"), n_ctx=65536)
    q2_k = candidate("q2_k", loss=0.3, tok_s=session_of(70, 0.05, "published"), n_ctx=65536)
    order = []
    left = [q2_k, coarse, split, cache, whole]
    while left:
        chosen = _chosen(recommend(left, Needs()))
        order.append(chosen)
        left = [each for each in left if each != chosen]
    assert order == [cache, whole, split, q2_k, coarse]


def test_an_unsure_cache_loses_to_a_sure_one_of_a_coarser_quant() -> None:
    """What is typical of a q8_0 cache reaches from nothing to what people notice."""
    sure = candidate("q5_k_m", loss=0.01)
    unsure = candidate("q6_k", "q8_0", loss=0.005)
    unsure = replace(unsure, cache_loss=Expected(0.0026, 0.0001, 0.377, "typical", "8 models"))
    assert _chosen(recommend([sure, unsure], Needs())) == sure


def test_a_dense_model_is_not_split_for_a_loss_that_hardly_anyone_notices() -> None:
    """Qwen3.6 27B on an RTX 4080 at 64k; over 16 GB nobody runs it at 6 tok/s if 32 are to be had."""
    whole = candidate("iq4_xs", "q4_0", tok_s=session_of(32, 0.3, "published"))
    whole = replace(
        whole, weights_loss=Expected(0.024, 0.015, 0.038, "published", "rows"),
        cache_loss=Expected(0.014, 0.0023, 0.087, "published", "rows"),
    )  # fmt: skip
    split = replace(candidate("iq4_xs", "f16", loss=0.024, tok_s=session_of(6.3, 0.4, "published")), host_bytes=2**31)
    finer = replace(candidate("q6_k", "f16", loss=0.002, tok_s=session_of(6.0, 0.4, "published")), host_bytes=2**33)
    for prefer in ("balanced", "quality", "speed"):
        pick = recommend([split, whole, finer], Needs(prefer=prefer))
        assert _chosen(pick) == whole
    assert [each.about.name for each in pick.mind if each.key == "pick.cache_trade"] == [split.name]


def test_speeds_that_share_most_of_their_intervals_are_equal_and_less_loss_decides() -> None:
    """Qwen2.5 3B on an RTX 4090: 4 % of speed within an interval of 30 % is no reason for a coarser quant."""
    tok_s = {"q8_0": 190.0, "q6_k": 230.0, "q5_k_m": 240.0, "q4_k_m": 250.0}
    losses = {"q8_0": 0.002, "q6_k": 0.005, "q5_k_m": 0.01, "q4_k_m": 0.03}
    found = [candidate(quant, loss=losses[quant], tok_s=session_of(tok_s[quant], 0.3, "published")) for quant in tok_s]
    assert _chosen(recommend(found, Needs())) == found[1]
    exact = [replace(each, speed=session_of(tok_s[each.quant], 0.01)) for each in found]
    assert _chosen(recommend(exact, Needs())) == exact[1]
    roomy = replace(found[1], selector="roomy", row=replace(found[1].row, left_bytes=2**40))
    assert _chosen(recommend([*found, roomy], Needs())) == roomy


def test_estimates_of_one_kind_share_their_error_and_compare_by_their_ratio() -> None:
    """A qwen2.5-14b on an RTX 3060 at 16k: the intervals overlap, yet 21 tok/s are not nearly 30."""
    whole = candidate("q4_k_m", "q8_0", loss=0.021, cache_loss=0.001, tok_s=session_of(30, 0.27, "published"))
    half_out = replace(candidate("q4_k_m", loss=0.021, tok_s=session_of(24, 0.27, "published")), host_bytes=2**30)
    finer = candidate("q5_k_m", "q8_0", loss=0.011, cache_loss=0.001, tok_s=session_of(21, 0.27, "published"))
    finer = replace(finer, host_bytes=2**30)
    finest = candidate("q8_0", "q8_0", loss=0.001, cache_loss=0.001, tok_s=session_of(6, 0.27, "published"))
    found = [finest, half_out, finer, whole]
    assert _chosen(recommend(found, Needs(prefer="speed"))) == whole
    by_quality = recommend(found, Needs(prefer="quality"))
    assert _chosen(by_quality) == finer
    assert [each.candidate.name for each in by_quality.listed[1:] if each.label == "all on GPU"] == [whole.name]


def test_quality_does_not_take_a_coarser_quant_for_its_better_cache_or_wide_typical_loss() -> None:
    """In each model a q4_k_m loses more than a q6_k, however widely the models differ."""
    coarse, fine = (expected_loss("", quant, 30_000_000_000) for quant in ("q4_k_m", "q6_k"))
    found = [
        candidate("q6_k", loss=fine, tok_s=20, gib=6),
        candidate("q4_k_m", "q8_0", loss=coarse, cache_loss=0.001, tok_s=30),
    ]
    assert _chosen(recommend(found, Needs(prefer="quality"))) == found[0]


def test_with_weights_in_main_memory_a_cache_is_quantized_where_that_is_clearly_faster() -> None:
    """A qwen3-14b for two users on an RTX 3060: 40 layers on the GPU instead of 33."""
    f16 = replace(candidate("q4_k_m", loss=0.026, tok_s=session_of(9, 0.5, "scaled")), host_bytes=3 * 2**30)
    q8_0 = replace(
        candidate("q4_k_m", "q8_0", loss=0.026, cache_loss=0.001, tok_s=session_of(18, 0.5, "scaled")),
        host_bytes=2**29,
    )
    hardly = replace(q8_0, speed=session_of(10, 0.5, "scaled"))
    lossy = replace(q8_0, cache_loss=measured_loss(0.1))
    assert _chosen(recommend([f16, q8_0], Needs())) == q8_0
    assert _chosen(recommend([f16, hardly], Needs())) == f16
    assert _chosen(recommend([f16, lossy], Needs())) == f16


@given(candidate_lists(), any_needs(), st.data())
def test_the_more_is_measured_the_better_the_answer(found: list[Candidate], needs: Needs, data: st.DataObject) -> None:
    """A speed that turns out to be enough never takes an answer away, nor makes it less sure."""
    before = recommend(found, needs)
    number = data.draw(st.integers(0, len(found) - 1))
    least = max(needs.tok_s or 0.0, needs.comfort_tok_s, 1.0)
    measured = [
        replace(each, speed=session_of(2 * least, 0.01)) if at == number and _is_unmeasured(each) else each
        for at, each in enumerate(found)
    ]
    after = recommend(measured, needs)
    assert _status(after) >= _status(before)


def _is_unmeasured(candidate: Candidate) -> bool:
    return candidate.speed is None


def _status(pick: Pick) -> int:
    return 0 if pick.recommended is None else 2 if pick.recommended.meets else 1


@given(candidate_lists(), any_needs())
def test_the_reasons_are_those_that_decided(found: list[Candidate], needs: Needs) -> None:
    """With the other made like the pick in what is said against it, the reason is another."""
    pick = recommend(found, replace(needs, prefer="balanced"))
    if pick.recommended is None:
        return
    own, room = pick.recommended, "pick_against."
    for each in pick.why:
        other = each.about
        mine, theirs = concessions(own, pick.needs), concessions(other, pick.needs)
        match each.key.removeprefix(room):
            case "misses":
                assert each.about.meets is False
            case "noticed" | "slow" | "untimed" as concession:
                assert getattr(theirs, concession) and not getattr(mine, concession)
            case "slower" | "part" | "cramped":
                assert least_loss(other, "quality") <= least_loss(own, "quality")
            case "loses":
                assert least_loss(other, "quality") > least_loss(own, "quality")


def test_between_a_dense_model_and_a_mixture_of_its_size_speed_decides_not_parameters() -> None:
    """Quality is not comparable, so the larger number of parameters is no reason; the other kind is an alternative."""
    dense = candidate(model="27b", tok_s=20, n_params=27 * 10**9)
    mixture = replace(candidate(model="35b-a3b", tok_s=60, n_params=35 * 10**9), is_mixture=True)
    small = candidate(model="4b", tok_s=200, n_params=4 * 10**9)
    found = recommend([dense, mixture, small], Needs())
    assert found.recommended is not None
    assert (found.recommended.model_key, _rules(found)) == ("35b-a3b", ["faster", "loss"])
    assert [each.key for each in found.why if each.about.model_key == "4b"] == ["pick_against.smaller"]
    assert (found.listed[1:][0].label, found.listed[1:][0].candidate.model_key) == ("dense", "27b")
    assert _picked([replace(dense, speed=session_of(90)), mixture, small], Needs()) == "27b"
    assert _picked([dense, mixture, small], Needs(prefer="quality")) == "27b"
    assert _picked([mixture, small], Needs()) == "35b-a3b"


def test_a_larger_mixture_with_a_lower_score_is_taken_only_if_it_is_faster() -> None:
    """Compare two of an RTX 3090 with 64 GiB, where the dense model also answers sooner."""
    dense = replace(candidate(model="27b", tok_s=30, n_params=27 * 10**9), score=89.0)
    mixture = replace(candidate(model="122b-a10b", tok_s=20, n_params=122 * 10**9), is_mixture=True, score=87.0)
    found = recommend([dense, mixture], Needs(), n_current=2)
    assert (_rules(found)[0], found.listed[0].candidate.model_key) == ("faster", "27b")
    assert [each.label for each in found.listed] == ["→ most capable", "mixture"]
    faster = recommend([dense, replace(mixture, speed=session_of(60))], Needs(), n_current=2)
    assert [(each.label, each.candidate.model_key) for each in faster.listed] == [
        ("→ pick", "122b-a10b"), ("dense", "27b")]  # fmt: skip
    better = recommend([dense, replace(mixture, score=90.0)], Needs(), n_current=2)
    assert (_rules(better)[0], better.listed[0].candidate.model_key) == ("capable", "122b-a10b")


def test_of_two_models_of_one_shape_the_newer_wins_a_tie() -> None:
    """Qwen3.5 and Qwen3.6 35B-A3B: a smaller file is no reason; a comfortable speed is one."""
    older = replace(candidate(model="old", loss=0.009, gib=3), superseded_by=frozenset({"new"}))
    newer = candidate(model="new", loss=0.01)
    found = recommend([older, newer], Needs())
    assert _chosen(found) == newer
    assert [each.about.name for each in found.why if each.key == "pick_against.superseded"] == [older.name]
    assert _chosen(recommend([older, replace(newer, speed=session_of(1.0))], Needs())) == older


def test_of_a_kind_the_better_score_wins_before_more_parameters() -> None:
    large, scored = candidate(model="72b", n_params=72 * 10**9), candidate(model="27b", n_params=27 * 10**9)
    assert _picked([large, scored], Needs()) == "72b"
    assert _picked([large, replace(scored, score=89.2)], Needs()) == "27b"


def _picked(candidates: list[Candidate], needs: Needs) -> str:
    found = recommend(candidates, needs).recommended
    assert found is not None
    return found.model_key


def test_what_is_unknown_or_overlaps_decides_nothing() -> None:
    """Neither a loss that is unknown, nor a speed that is unknown, nor intervals that overlap."""
    close = candidate("a", loss=measured_loss(0.010, 0.2)), candidate("b", loss=measured_loss(0.012, 0.2))
    apart = candidate("a", loss=measured_loss(0.010, 0.01)), candidate("b", loss=measured_loss(0.012, 0.01))
    assert (dominates(*close), dominates(*apart)) == (False, True)
    known, unknown = candidate("a", tok_s=50, n_ctx=65536), candidate("b", loss=None, tok_s=5, n_ctx=8192)
    assert not dominates(known, unknown)
    assert not dominates(replace(unknown, max_n_ctx=65536), known)
    measured, untimed = candidate("a", tok_s=20.0), candidate("b", tok_s=None, loss=0.5)
    assert not dominates(replace(untimed, weights_loss=measured_loss(0.001)), measured)
    assert not dominates(measured, untimed)


def test_what_cannot_be_sized_or_is_too_short_leaves_what_may_fit() -> None:
    refused = candidate("q8_0", loss=0.001, n_ctx=None)
    refused = replace(refused, row=replace(refused.row, outcome=Outcome.FAILED, reason="no"))
    unknown, short = candidate("q4_k_m", loss=0.5, n_ctx=None), candidate("q4_k_m", loss=0.5, n_ctx=4096)
    assert _chosen(recommend([refused, unknown], Needs())) == unknown
    assert _chosen(recommend([unknown, short], Needs())) == unknown


def test_without_published_losses_the_more_bits_win() -> None:
    found = [candidate("ud-q2_k_xl", loss=None, gib=3), candidate("ud-q4_k_xl", loss=None, gib=5)]
    chosen = _chosen(recommend(found, Needs()))
    assert chosen == found[1]
    assert chosen.loss is None


def test_by_bytes_alone_an_i_quant_is_not_faster() -> None:
    """It takes more computation than the share of the bandwidth that other files reach tells."""
    coarse = candidate("q4_k_m", loss=0.03, tok_s=session_of(30, 0.3, "scaled"))
    iq = candidate("iq4_xs", loss=0.035, tok_s=session_of(33, 0.3, "scaled"))
    pick = recommend([iq, coarse], Needs(prefer="quality"))
    assert _chosen(pick) == coarse and not [each for each in pick.listed[1:] if each.label == "faster"]


def test_beside_a_part_in_main_memory_the_best_that_is_whole_on_the_gpu_is_an_alternative() -> None:
    split = _placed(candidate("q4_k_m", loss=0.03, tok_s=40), LlamaConfig(n_ctx=8192, n_cpu_moe=20))
    split = replace(split, host_bytes=2**33, is_mixture=True)
    whole = replace(candidate("q2_k", loss=0.3, tok_s=90), is_mixture=True)
    coarser = replace(candidate("iq1_m", loss=0.9, tok_s=100), is_mixture=True)
    pick = recommend([split, whole, coarser], Needs())
    assert _chosen(pick) == split
    assert [(each.label, each.candidate.name) for each in pick.listed[1:]] == [("all on GPU", whole.name)]
    dense = replace(_placed(split, LlamaConfig(n_ctx=8192, n_gpu_layers=20)), is_mixture=False)
    [other] = recommend([dense, replace(whole, is_mixture=False)], Needs()).listed[1:]
    assert (other.label, other.candidate.quant) == ("all on GPU", "q2_k")


def _placed(candidate: Candidate, setup: LlamaConfig) -> Candidate:
    return replace(candidate, row=replace(candidate.row, setup=setup))
