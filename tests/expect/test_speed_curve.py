"""A known speed between the positions that were measured, and the intervals of a measured line."""

import math

import pytest
from msgspec.structs import replace

from ggbench.decisions.pick.needs import Needs
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.expect.session_time import session_time, turn_times
from ggbench.expect.sessions import Conversation, Turn, known_sessions, parse_session
from ggbench.expect.together import curves_together
from ggbench.stats.decode_timing import DecodeLimit, DepthSpeed, LineFit, PrefillSpeed
from ggbench.stats.intervals import Estimate
from ggbench.stats.speed_curve import (
    SessionTime,
    SpeedCurve,
    measured_curve,
    measured_prefills,
    measured_steps,
)

LINE = SpeedCurve(
    "forecast",
    "made up",
    ((1, Estimate(100.0, 90.0, 110.0)), (1001, Estimate(200.0, 170.0, 240.0)), (2001, Estimate(250.0, 200.0, 300.0))),
    ((512, Estimate(1000.0, 900.0, 1100.0)), (1024, Estimate(2500.0, 2000.0, 3000.0))),
)


def _together(curve: SpeedCurve, n_seqs: int, weights_ratio: float = 1.0) -> SpeedCurve:
    (found,) = curves_together([curve], n_seqs, weights_ratio)
    return found


LIMIT = DecodeLimit(w_tokens_per_ms=50.0, b_ms=40.0, bandwidth_bytes_per_s=20e9, bandwidth_source="given")


def _window(n_gen: int, ms: float, share: float = 0.02) -> DepthSpeed:
    tok_s = 1e3 / ms
    return DepthSpeed(0, n_gen, tok_s, 1, (tok_s * (1 - share), tok_s * (1 + share)))


def _fit(w: float | None, interval: tuple[float, float | None] | None) -> LineFit:
    return LineFit(1000, w, interval, None, None)


def test_latencies_are_interpolated_and_continued() -> None:
    assert LINE.step_ms_at(501) == Estimate(150.0, 130.0, 175.0)
    assert LINE.step_ms_at(1001) == Estimate(200.0, 170.0, 240.0)
    assert LINE.step_ms_at(4001) == Estimate(350.0, 260.0, 420.0)
    assert LINE.tok_s_at(1) == Estimate(10.0, 1e3 / 110, 1e3 / 90)


def test_several_sequences_read_the_weights_once_and_compute_for_each() -> None:
    """At best the weights are read once, at worst one sequence runs after the other; prompts tell the computing."""
    four = _together(LINE, 4)
    assert (four.basis, four.source) == ("scaled", "made up, of one user")
    at_first, later = four.step_ms_at(1), four.step_ms_at(1001)
    assert (at_first.low, at_first.high) == (90, 440)
    assert at_first.value == pytest.approx(100)  # four tokens of a prompt take 8 ms
    assert (later.low, later.value, later.high) == pytest.approx((90 + 4 * 80, 100 + 4 * 100, 4 * 240))
    slow = _together(replace(LINE, prefill_ms=((512, Estimate(51200.0, 51200.0, 51200.0)),)), 4)
    assert slow.step_ms_at(1).value == 400
    assert slow.prefill_ms[0][1].value == 4 * 51200
    alone = _together(replace(LINE, prefill_ms=()), 4)
    assert alone.step_ms_at(1).value == pytest.approx(math.sqrt(100 * 400))


def test_several_sequences_of_a_mixture_read_more_experts_but_at_best_the_same() -> None:
    plain, mixture = _together(LINE, 4), _together(LINE, 4, 3.5)
    for n, expected in ((1, (90.0, 350.0, 440.0)), (1001, (90.0 + 4 * 80, 350.0 + 4 * 100, 4 * 240.0))):
        step = mixture.step_ms_at(n)
        assert (step.low, step.value, step.high) == pytest.approx(expected)
    alone = _together(replace(LINE, prefill_ms=()), 4, 3.5).step_ms_at(1)
    assert alone.value == pytest.approx(math.sqrt(350 * 400))
    assert mixture.prefill_ms == plain.prefill_ms


def test_the_caches_of_several_sequences_count_after_a_run_at_one_depth() -> None:
    """Such a run has no first token; that of the next curve shows how much of the step is the cache."""
    deep = replace(LINE, step_ms=((4097, Estimate(300.0, 280.0, 320.0)), (4225, Estimate(300.0, 280.0, 320.0))))
    deep = replace(deep, basis="measured", prefill_ms=())
    four, of_line = curves_together([deep, LINE], 4)
    step = four.step_ms_at(4097)
    assert (step.low, step.high) == (280, 4 * 320)
    assert step.value == pytest.approx(math.sqrt((100 + 4 * 200) * 4 * 300))
    assert of_line == _together(LINE, 4)
    alone = _together(deep, 4).step_ms_at(4097)
    assert (alone.low, alone.value) == pytest.approx((280, 4 * 300))


def test_a_measured_line_is_surest_where_it_was_measured() -> None:
    known = SpeedCurve("measured", "", measured_steps([_window(1001, 100.0)], _fit(20.0, (10.0, 40.0)), LIMIT))
    first, middle, far = (known.step_ms_at(n) for n in (1, 501, 32768))
    assert middle.value == pytest.approx(100.0)
    assert (middle.low, middle.high) == pytest.approx((100 / 1.02, 100 / 0.98))
    assert first.value == pytest.approx(75.0)
    assert (first.low, first.high) == pytest.approx(
        (75 - math.hypot(100 - 100 / 1.02, 25), 75 + math.hypot(2.04, 12.5)), rel=1e-3
    )
    grown = 32768 - 501
    assert far.value == pytest.approx(100 + grown / 20)
    assert far.high == pytest.approx(far.value + grown * (1 / 10 - 1 / 20), rel=1e-3)


def test_a_run_too_noisy_for_a_slope_is_as_sure_at_its_ends_as_of_its_mean() -> None:
    """A slope within the noise of a short run would let its first token take no time."""
    noisy = measured_steps([_window(128, 600.0, 0.4)], _fit(None, (0.2, None)), LIMIT)
    known = SpeedCurve("measured", "", noisy)
    for n in (1, 64, 128):
        speed = known.tok_s_at(n)
        assert (speed.low, speed.value, speed.high) == pytest.approx((1.0, 1e3 / 600, 1.4e3 / 600))
    assert known.step_ms_at(32768).high > 32640 / 0.2


def _line(b_ms: float, w_tokens_per_ms: float, error: float = 0.1) -> SpeedCurve:
    """latency(n) = (n - 1) / W + B, and prompts of 2 ms a token and 0.001 ms for each pair."""

    def around(value: float) -> Estimate:
        return Estimate(value, value * (1 - error), value * (1 + error))

    steps = tuple((n, around((n - 1) / w_tokens_per_ms + b_ms)) for n in (1, 1024, 32768))
    prompts = tuple((n, around(2.0 * n + 0.001 * n**2)) for n in (512, 2048, 8192))
    return SpeedCurve("forecast", "twins", steps, prompts)


TURN = Conversation("w", (Turn(4096, 0), Turn(512, 300)), "")


def _time(curve: SpeedCurve, session: Conversation = TURN) -> SessionTime:
    found = session_time([curve], session)
    assert found is not None and found.total_s is not None
    return found


def test_a_session_is_every_prompt_after_what_is_cached_and_every_step() -> None:
    """The first token of an answer comes with the prompt, as it is measured."""
    found = _time(_line(20.0, 500.0))
    steps_ms = sum((n - 1) / 500 + 20 for n in range(4609, 4908))
    first_ms = 2.0 * 4096 + 0.001 * 4096**2
    last_ms = 2.0 * 512 + 0.001 * (4608**2 - 4096**2)
    assert found.tok_s.value == pytest.approx(299e3 / steps_ms, rel=1e-4)
    assert found.tok_s.high == pytest.approx(found.tok_s.value / 0.9, rel=1e-6)
    assert found.total_s is not None and found.first_wait_s is not None and found.last_wait_s is not None
    assert found.first_wait_s.value == pytest.approx(first_ms / 1e3)
    assert found.last_wait_s.value == pytest.approx(last_ms / 1e3)
    assert found.total_s.value == pytest.approx((first_ms + last_ms + steps_ms) / 1e3, rel=1e-4)
    assert found.total_s.low == pytest.approx(0.9 * found.total_s.value, rel=1e-6), "one curve's errors are one"


def test_what_a_server_has_not_cached_is_read_again_and_no_wait_is_shorter_than_a_step() -> None:
    curve = _line(20.0, 500.0)
    again = turn_times([curve], TURN, (0, 0))
    assert again is not None and again.waits_s is not None
    assert again.waits_s[0, 1] == pytest.approx((2.0 * 4608 + 0.001 * 4608**2) / 1e3)
    one = turn_times([curve], Conversation("w", (Turn(4096, 0), Turn(1, 1)), ""))
    assert one is not None and one.waits_s is not None
    assert one.waits_s[0, 1] == pytest.approx((20 + 4096 / 500) / 1e3)
    assert not one.answers_s.any(), "the only token comes with the prompt"


def test_a_session_of_first_tokens_alone_takes_its_waits() -> None:
    """Its speed is that of the step that would follow."""
    found = _time(_line(20.0, 500.0), Conversation("w", (Turn(2048, 1),), ""))
    assert found.total_s is not None and found.first_wait_s is not None
    assert found.total_s.value == found.first_wait_s.value
    assert found.tok_s.value == pytest.approx(1e3 / (20 + 2048 / 500))


def test_an_end_that_is_unknown_at_one_position_is_unknown_beside_it() -> None:
    wide, close = Estimate(20.0, 10.0, math.inf), Estimate(30.0, 25.0, 40.0)
    curve = replace(_line(20.0, 500.0), step_ms=((1, wide), (10_000, close)))
    assert curve.step_ms_at(4608).high == math.inf
    assert _time(curve).answers_s.high == math.inf


def test_noise_as_large_as_a_latency_leaves_a_speed_without_an_upper_end() -> None:
    found = _time(_line(20.0, 500.0, error=1.0))
    assert found.total_s is not None
    assert (found.tok_s.high, found.total_s.low) == (math.inf, 0.0)
    assert 0 < found.tok_s.low < found.tok_s.value


@pytest.mark.parametrize(
    ("prefill_ms", "prompt_s"), [((600.0, 1300.0, 3000.0), 1.4), ((900.0, 1700.0, 3000.0), 0.75), ((700.0,), 0.7)]
)
def test_a_prompt_beyond_those_timed_takes_what_their_times_of_a_token_lead_to(
    prefill_ms: tuple[float, ...], prompt_s: float
) -> None:
    """The parabola of the two longest says it; no token takes less than in any that was timed."""
    prefills = tuple((n, Estimate(ms, ms, ms)) for n, ms in zip((512, 1024, 2048), prefill_ms, strict=False))
    found = _time(replace(LINE, prefill_ms=prefills))
    assert found.last_wait_s is not None
    assert found.last_wait_s.value == pytest.approx(prompt_s, rel=1e-5)


def test_sessions_by_name_and_by_hand() -> None:
    chat = parse_session(" Chat ")
    assert chat == known_sessions()["chat"] == Needs().workload
    assert {name: Needs(each).n_ctx for name, each in known_sessions().items()} == {
        "coding": 65536, "documents": 32768, "chat": 8192}  # fmt: skip
    assert Needs(chat, given_n_ctx=4000).n_ctx == 4096
    own = parse_session("2k+500@16k")
    assert (own.turns, own.n_tokens) == ((Turn(16384, 0), Turn(2048, 500)), 18932)
    assert parse_session("100+10").turns == (Turn(100, 10),)


@pytest.mark.parametrize("text", ["", "talk", "1+", "+5", "5@3", "-5+10", "1+1@x", "2000000000+5@2000000000"])
def test_what_is_no_workload(text: str) -> None:
    with pytest.raises(UsageError):
        Needs(parse_session(text))


def test_the_time_of_a_prompt_begins_at_nothing() -> None:
    assert LINE.prefill_ms_at(256) == Estimate(500.0, 450.0, 550.0)
    assert LINE.prefill_ms_at(2048) == Estimate(5500.0, 4200.0, 6800.0)
    assert replace(LINE, prefill_ms=()).prefill_ms_at(256) is None
    known, unknown = PrefillSpeed(512, 500.0, 1024.0, 3, (1000.0, None)), PrefillSpeed(64, 60.0, 1066.0, 1)
    short, longer = measured_prefills([known, unknown])
    assert longer == (512, Estimate(500.0, 0.0, 512.0))
    assert short[1].low == pytest.approx(60 / 1.1, rel=1e-3), "a few timings are taken within 10 %"


def test_a_slope_that_is_not_known_is_the_limits_and_no_step_is_faster() -> None:
    """Within its interval; without any, at most that of the line from zero."""
    (_, middle), (far, last) = measured_steps([_window(1, 60.0)], _fit(None, (25.0, None)), LIMIT)
    assert middle.value == pytest.approx(60.0)
    assert last.value == pytest.approx(60 + (far - 1) / 50)
    assert last.high == pytest.approx(60 + (far - 1) / 25, rel=1e-3)
    assert measured_steps([_window(599, 60.0)], None, LIMIT) == ()
    known = measured_curve(1, [_window(599, 60.0)], _fit(None, None), LIMIT)
    assert known is not None and known.knows(1024) and not known.knows(2048)
    step = known.step_ms_at(1024)
    assert step.value == pytest.approx(60 + (1024 - 300) / 50)
    assert 60 / 0.98 * 1024 / 599 < step.high < 60 / 0.98 * 1024 / 300, "no steeper than a line from zero"
    ((_, first), *_) = measured_steps([_window(10_001, 100.0)], _fit(20.0, (10.0, 40.0)), LIMIT)
    assert (first.value, first.low) == (40.0, 40.0)


def test_many_turns_take_what_each_takes_alone() -> None:
    """Also those of which a run that was measured there knows more."""
    curve = _line(20.0, 500.0, error=1.0)
    near = replace(_line(30.0, 400.0), basis="measured", reach=4000, has_line=False)
    turns = tuple(Turn(100 + n, n, 0.5 if n == 20 else 1.0) for n in range(1, 40))
    session = Conversation("w", turns, "")
    found = turn_times([near, curve], session)
    assert found is not None and found.waits_s is not None and found.curve is curve
    for number, (depth, turn) in enumerate(zip(session.depths[1:], turns[1:], strict=True), 1):
        alone = turn_times([near, curve], Conversation("w", (Turn(depth, 0), Turn(turn.n_new, turn.n_gen)), ""))
        assert alone is not None and alone.waits_s is not None
        assert found.answers_s[:, number] == pytest.approx(alone.answers_s[:, -1])
        assert found.waits_s[:, number] == pytest.approx(alone.waits_s[:, -1])


def test_an_agent_s_turns_are_told_by_what_they_read_not_by_a_name() -> None:
    agents = {name: each.is_agents for name, each in known_sessions().items()}
    assert agents == {"coding": True, "documents": False, "chat": False}
    own = Conversation("own.jsonl", known_sessions()["coding"].turns, "")
    assert Needs(own).comfort_tok_s == Needs(known_sessions()["coding"]).comfort_tok_s > Needs().comfort_tok_s


@pytest.mark.parametrize("n_ctx", [1, 16, 255])
def test_a_context_below_llama_cpp_s_padding_is_refused(n_ctx: int) -> None:
    for refused in (lambda: Needs(given_n_ctx=n_ctx), LlamaConfig(n_ctx=n_ctx).check):
        with pytest.raises(UsageError, match=f"an n_ctx of {n_ctx} one of 256"):
            refused()
    LlamaConfig(n_ctx=1024, n_seq_max=4).check()
    with pytest.raises(UsageError, match="one of 1024"):
        LlamaConfig(n_ctx=1000, n_seq_max=4).check()
