"""Races: tokens over time, and when one run passes another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ggbench.show.charts.race import race
from ggbench.show.plot.curves import PlottedRun, without_steps
from ggbench.stats.decode_timing import LineFit
from ggbench.stats.window_fit import DecodeWindow


def decode(name: str, b_ms: float, w: float, n_gen: int, *, repeat: int = 1) -> PlottedRun:
    position = np.tile(np.arange(26, 26 + n_gen), repeat)
    step_ns = np.rint((b_ms + (position - 1) / w) * 1e6).astype(np.int64)
    fit = LineFit(n_gen, w, (w * 0.99, w * 1.01), b_ms, (b_ms * 0.99, b_ms * 1.01), 1.0, w)
    return PlottedRun(name, position, step_ns, fit)


def test_curves_are_tokens_against_the_clock() -> None:
    run = decode("q8_0", 20.0, 100.0, 1000, repeat=3)
    curve = race([run, decode("q4_0", 10.0, 100.0, 500)]).curves[0]
    assert curve.y[-1] == 1000
    assert curve.x[-1] == round(run.step_ns[:1000].sum() / 1e6)
    assert (np.diff(curve.x) > 0).all()
    assert len(curve.x) <= 240


def test_long_races_count_seconds() -> None:
    runs = [decode("q8_0", 200.0, 100.0, 2000), decode("q4_0", 10.0, 100.0, 500)]
    figure = race(runs)
    assert figure.x_unit == "s"
    assert figure.curves[0].x[-1] == round(runs[0].step_ns.sum() / 1e9)
    assert race([decode("a", 20.0, 100.0, 100), decode("b", 10.0, 100.0, 100)]).x_unit == "ms"


def test_a_run_that_passes_another_says_where() -> None:
    slow_start, fast_start = decode("q2_k", 20.0, 200.0, 5000), decode("q4_0", 10.0, 100.0, 5000)
    own, rival = (np.cumsum(run.step_ns) for run in (slow_start, fast_start))
    at = int(np.flatnonzero(own < rival)[0]) + 1
    first, second = race([slow_start, fast_start]).curves
    assert f"overtakes b at token {at:,}" in first.note
    assert "overtakes" not in second.note
    assert at > 1.9 * np.flatnonzero(slow_start.step_ns < fast_start.step_ns)[0]


def test_a_pass_beyond_the_last_token_is_said_to_come_from_the_fits() -> None:
    n_gen = 500
    runs = [decode("q2_k", 20.0, 200.0, n_gen), decode("q4_0", 10.0, 100.0, n_gen)]
    whole = [np.cumsum(decode("", b_ms, w, 9000).step_ns) for b_ms, w in ((20.0, 200.0), (10.0, 100.0))]
    at = int(np.flatnonzero(whole[0] < whole[1])[0]) + 1
    assert f"by the fits, would overtake b near token {round(at, -2):,}" in race(runs).curves[0].note
    assert runs[0].fit is not None
    unsure = replace(runs[0], fit=replace(runs[0].fit, w_ci95=(90.0, None)))
    assert "overtake" not in race([unsure, runs[1]]).curves[0].note
    far = decode("q2_k", 20.0, 100.01, n_gen)
    assert "overtake" not in race([far, runs[1]]).curves[0].note


def test_equal_runs_do_not_pass_each_other() -> None:
    generator = np.random.default_rng(7)
    base = decode("a", 10.0, 100.0, 3000)
    noisy = [
        replace(base, step_ns=np.rint(base.step_ns * generator.normal(1, 0.05, 3000)).astype(np.int64))
        for _ in range(4)
    ]
    assert not [curve.note for curve in race(noisy).curves if "overtake" in curve.note]


def test_an_imported_run_races_by_its_fit() -> None:
    own = decode("a", 10.0, 100.0, 300)
    imported = replace(
        without_steps(own), name="b", fit=own.fit,
        observations=(DecodeWindow(200, 100, 1e9),),
    )  # fmt: skip
    figure = race([without_steps(own), own, imported])
    assert [len(curve.x) > 0 for curve in figure.curves] == [False, True, True]
    assert figure.curves[2].note.endswith("by its fit")
    assert figure.curves[2].y[-1] == 300
    assert race([own, without_steps(own)]).is_empty
