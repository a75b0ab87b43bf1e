"""When two settings count as measured in turns, whose ratios differ less than their values do."""

import itertools
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ggbench.commands import comparing
from ggbench.decisions.compare.versus import Versus, column_value, pairs_of
from ggbench.engines.endings import Outcome
from ggbench.runs.run import DecodeTiming, Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.show.figure import Figure
from ggbench.show.metric import Metric
from ggbench.stats.turns import ordered, ratio_of_turns
from tests.fakes.measured import put_run, start

MONDAY, MINUTE = datetime.fromisoformat("2026-11-16T09:00:00+00:00"), timedelta(minutes=1)


def _ms(summary: Run) -> float | None:
    return summary.result.prefill_ms if isinstance(summary.result, DecodeTiming) else None


TIME = Metric(Figure("ms", "ms", _ms, better="less"), is_timed=True)


def _column(values: Sequence[float], starts: Sequence[timedelta], lasts: timedelta = MINUTE) -> list[Run]:
    return [
        (Run(
            head=replace(start(), started_at=(MONDAY + at).isoformat()), outcome=Outcome.COMPLETED,
            finished_at=(MONDAY + at + lasts).isoformat(), result=DecodeTiming(25, 100, prefill_ms=value),
        ))
        for value, at in zip(values, starts, strict=True)
    ]  # fmt: skip


def _ratio(columns: Sequence[Sequence[Run]]) -> Versus:
    """The first two of the columns."""
    return pairs_of(TIME, columns, [column_value(TIME, column) for column in columns])[0, 1]


ONE, OTHER = (10.0, 20.0, 11.0, 30.0), (5.0, 10.1, 5.4, 15.0)


@pytest.mark.parametrize(
    ("firsts", "seconds", "is_in_turns"),
    [
        ((0, 6, 8, 14), (2, 4, 10, 12), True),
        ((0, 60, 80, 140), (20, 40, 100, 120), True),
        ((0, 2, 4, 6), (8, 10, 12, 14), False),
        ((0, 2880, 5760, 8640), (1440, 4320, 7200, 10080), False),
    ],
    ids=["each first in turn", "slow loads between", "one after the other", "a day apart"],
)  # fmt: skip
def test_runs_of_one_turn_are_close_in_time(firsts: Sequence[int], seconds: Sequence[int], is_in_turns: bool) -> None:
    columns = _column(ONE, [n * MINUTE for n in firsts]), _column(OTHER, [n * MINUTE for n in seconds])
    found = _ratio(columns)
    assert (found.p is not None) is is_in_turns
    if found.ratio_ci95 is not None:
        low, high = found.ratio_ci95
        assert 1.9 < low < 2 < high < 2.1


@pytest.mark.parametrize("correlation", [0.0, 0.5])
def test_equals_seldom_beat_each_other_on_a_restless_machine(correlation: float) -> None:
    """Also with noise that lasts from run to run, and a machine that slows by a fifth meanwhile."""
    rng, n_wrong, n_trials, n_turns = np.random.default_rng(1), 0, 800, 8
    order = np.array([index for turn in range(n_turns) for index in ordered((0, 1), turn)])
    for _ in range(n_trials):
        noise = itertools.accumulate(rng.normal(size=2 * n_turns), lambda before, each: correlation * before + each)
        logs = 0.04 * np.array(list(noise)) - np.linspace(0, 0.2, 2 * n_turns)
        ratio = ratio_of_turns(np.exp(logs[order == 0] - logs[order == 1]).tolist())
        assert ratio is not None
        n_wrong += not ratio.low <= 1 <= ratio.high
    assert n_wrong / n_trials <= 0.05


def test_a_slow_third_may_come_between() -> None:
    """With three engines, the two that are compared are not always neighbours."""
    columns = (
        _column(ONE, [n * MINUTE for n in (0, 72, 200, 272)]),
        _column(OTHER, [n * MINUTE for n in (64, 70, 264, 270)]),
        _column(ONE, [n * MINUTE for n in (2, 74, 202, 274)], 60 * MINUTE),
    )
    assert _ratio(columns).n_turns == 4
    assert _ratio(columns[:2]).doubt == "few_turns"


def test_a_run_without_the_value_or_an_end_is_in_no_turn() -> None:
    one, other = _column(ONE, [n * MINUTE for n in (0, 6, 8, 14)]), _column(OTHER, [n * MINUTE for n in (2, 4, 10, 12)])
    for changed in ({"result": None}, {"finished_at": None}):
        last = replace(other[-1], **changed)
        assert _ratio((one, [*other[:-1], last])).doubt == "few_turns"


def test_bench_compares_its_runs_with_the_times_of_the_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "results.sqlite3") as store:
        run_id = put_run(store, start())
        live = replace(read_run(store, store.load_run(run_id)), head=start(), finished_at=None)
        stored = comparing._as_stored(store, live)
    assert stored.head.started_at and stored.finished_at
