"""Clocks: what is set and what is not."""

import time

import pytest

from ggbench.machine import readings

S = 1_000_000_000


def test_setting_the_clock_moves_no_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [readings.moment_ns()]
    for jump_s in (86_400, -3600):
        now_ns = time.time_ns() + jump_s * S
        monkeypatch.setattr(time, "time_ns", lambda now_ns=now_ns: now_ns)
        moments.append(readings.moment_ns())
    assert moments == sorted(moments)
    assert moments[-1] - moments[0] < 3600 * S


def test_a_suspend_is_what_one_clock_counts_and_the_other_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    before = readings.suspended_ns()
    awake = iter([100 * S, 105 * S, 105 * S, 105 * S])
    elapsed = iter([105 * S, 105 * S + 62 * S])
    monkeypatch.setattr(readings, "awake_ns", lambda: next(awake))
    monkeypatch.setattr(readings, "elapsed_ns", lambda: next(elapsed))
    assert readings.suspended_ns() == 62 * S
    assert before >= 0
