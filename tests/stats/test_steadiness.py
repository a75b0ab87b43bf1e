"""A steady run gives no reason, however noisy and however it climbs; a disturbed one gets a reason that names it."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ggbench.stats.speed import unsteady
from tests.fakes.latency import Floats, positions, ramp, stairs

DATA = Path(__file__).parent.parent / "data"


def climb(position: Floats, *, in_stairs: bool, w: float = 2064) -> Floats:
    return stairs(position, w) if in_stairs else ramp(position, w)


def jitter(rng: np.random.Generator, shape: tuple[int, ...], noise: float) -> Floats:
    """Lognormal noise as a factor, with 0.4 % of steps several times as long."""
    spikes = 1 + (rng.random(shape) < 0.004) * rng.lognormal(1, 0.5, shape)
    return np.exp(noise * rng.standard_normal(shape)) * spikes


@pytest.mark.parametrize(
    ("n", "in_stairs", "w"), [(300, True, 2064), (600, False, 100), (2000, True, 100), (10_000, True, 2064)]
)
def test_a_steady_run_gives_no_reason(n: int, in_stairs: bool, w: float) -> None:
    rng = np.random.default_rng(n)
    steady_ms = climb(positions(n), in_stairs=in_stairs, w=w)
    reasons = [
        unsteady(positions(n), steady_ms * jitter(rng, (n,), noise) * 1e6) for noise in (0.02, 0.05) for _ in range(40)
    ]
    assert sum(1 for reason in reasons if reason) <= 1


@pytest.mark.parametrize("noise", [0.02, 0.05])
@pytest.mark.parametrize("in_stairs", [False, True])
def test_a_5_percent_throttle_for_the_last_40_percent_is_caught(in_stairs: bool, noise: float) -> None:
    n = 10_000
    rng = np.random.default_rng(1)
    for _ in range(20):
        step_ms = climb(positions(n), in_stairs=in_stairs) * jitter(rng, (n,), noise)
        step_ms[6000:] *= 1.05
        found = re.fullmatch(
            r"from about token ([\d,]+) on, steps took ([\d.]+) % longer than in the rest of the run",
            unsteady(positions(n), step_ms * 1e6),
        )
        assert found
        assert abs(int(found[1].replace(",", "")) - 6026) < 700
        assert 3 < float(found[2]) < 7


def test_a_temporary_disturbance_is_named_with_its_ends() -> None:
    step_ms = climb(positions(4000), in_stairs=True) * jitter(np.random.default_rng(2), (4000,), 0.02)
    step_ms[1600:2200] *= 1.2
    reason = unsteady(positions(4000), step_ms * 1e6)
    assert re.fullmatch(
        r"from about token 1,\d+ to 2,\d+, steps took (1[789]|2[012])\.\d % longer than in the rest of the run", reason
    )


def test_a_machine_that_slows_down_gradually_is_caught() -> None:
    slowing = 1 + 0.2 * np.clip(np.linspace(-0.5, 0.5, 10_000), 0, None)
    step_ms = climb(positions(10_000), in_stairs=True) * slowing * jitter(np.random.default_rng(3), (10_000,), 0.02)
    assert re.fullmatch(
        r"the second half ran [456]\.\d % above the line through the first", unsteady(positions(10_000), step_ms * 1e6)
    )


@pytest.mark.parametrize("n", [300, 3000])
def test_frequent_spikes_are_counted(n: int) -> None:
    step_ms = climb(positions(n), in_stairs=True) * np.exp(0.02 * np.random.default_rng(4).standard_normal(n))
    step_ms[10 : n // 3 : 11] *= 3
    n_spikes = len(range(10, n // 3, 11))
    reason = unsteady(positions(n), step_ms * 1e6)
    assert reason.startswith(f"{n_spikes} of {n} steps took over twice as long as those around them, up to ")


def test_a_recorded_run_whose_first_stair_is_a_ramp_is_steady() -> None:
    position, step_ns = np.loadtxt(DATA / "steps_q2_k_flash_attn_cpu.csv", delimiter=",", skiprows=1).T
    assert unsteady(position, step_ns) == ""


def test_repetitions_are_looked_at_one_by_one_and_against_each_other() -> None:
    position = positions(2000)
    step_ms = climb(position, in_stairs=True) * jitter(np.random.default_rng(5), (3, 2000), 0.02)
    assert unsteady(np.tile(position, 3), step_ms.ravel() * 1e6) == ""
    step_ms[1] *= 1.1
    step_ms[2, 1500:] *= 1.15
    reasons = unsteady(np.tile(position, 3), step_ms.ravel() * 1e6).split("; ")
    assert len(reasons) == 2
    assert re.fullmatch(r"repetition 2 was (9|10)\.\d % slower than repetition [13]", reasons[0])
    assert re.fullmatch(r"repetition 3: from about token 1,[45]\d\d on, steps took 1[3-7]\.\d % longer .*", reasons[1])


@settings(deadline=None)
@given(
    first=st.integers(1, 1000),
    step_ns=arrays(np.float64, st.integers(0, 600), elements=st.floats(0, 1e15) | st.just(np.nan)),
)
def test_any_samples_give_one_line(first: int, step_ns: Floats) -> None:
    assert "\n" not in unsteady(np.arange(first, first + len(step_ns)), step_ns)


def test_a_few_long_stalls_are_named_and_late_steps_of_a_steep_line_are_none() -> None:
    step_ms = climb(positions(500), in_stairs=True) * np.exp(0.02 * np.random.default_rng(5).standard_normal(500))
    step_ms[480:483] = (1200, 1664.77, 900)
    stalled = "3 of 500 steps took over twice as long as those around them, up to 1664.77 ms"
    assert unsteady(positions(500), step_ms * 1e6) == stalled
    assert unsteady(positions(10_000), climb(positions(10_000), in_stairs=True, w=100) * 1e6) == ""
