"""When two settings count as measured in turns, whose ratios differ less than their values do."""

import itertools
import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from ggbench.commands import comparing
from ggbench.decisions.compare.estimates import Estimated, ratio_in_turns, versus
from ggbench.engines.endings import Outcome
from ggbench.runs.run import DecodeTiming, Run
from ggbench.runs.store.database import Store
from ggbench.runs.stored import read_run
from ggbench.runs.summary import QuantSummary
from ggbench.show.figure import Figure
from ggbench.show.metric import Metric
from tests.fakes.measured import put_run, start

MONDAY, MINUTE = datetime.fromisoformat("2026-11-16T09:00:00+00:00"), timedelta(minutes=1)


def _ms(summary: QuantSummary) -> float | None:
    return summary.run.result.prefill_ms if isinstance(summary.run.result, DecodeTiming) else None


TIME = Metric(Figure("ms", "ms", _ms, better="less"), is_timed=True)


def _column(values: Sequence[float], starts: Sequence[timedelta], lasts: timedelta = MINUTE) -> list[QuantSummary]:
    return [
        QuantSummary.of([Run(
            head=replace(start(), started_at=(MONDAY + at).isoformat()), outcome=Outcome.COMPLETED,
            finished_at=(MONDAY + at + lasts).isoformat(), result=DecodeTiming(25, 100, prefill_ms=value),
        )])
        for value, at in zip(values, starts, strict=True)
    ]  # fmt: skip


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
    found = ratio_in_turns(TIME, columns, 0, 1)
    assert (found is not None) is is_in_turns
    if found is not None:
        assert 1.9 < found.low < 2 < found.high < 2.1


@pytest.mark.parametrize(("seconds", "is_decided"), [((5.0, 10.1, 5.4, 15.0), True), ((9.0, 18.9, 10.4, 27.0), False)])
def test_beside_other_programs_only_a_large_lead_counts(seconds: Sequence[float], is_decided: bool) -> None:
    columns = [
        _column(ONE, [n * MINUTE for n in (0, 6, 8, 14)]),
        _column(seconds, [n * MINUTE for n in (2, 4, 10, 12)]),
    ]
    quiet = versus(TIME, columns, _estimated(columns), 0, 1)
    busy = [[_beside_others(each) for each in column] for column in columns]
    found = versus(TIME, busy, _estimated(busy), 0, 1)
    assert quiet is not None and found is not None and quiet.is_different
    assert found.is_different is is_decided
    assert bool(found.disturbed) is not is_decided


def _beside_others(summary: QuantSummary) -> QuantSummary:
    head = summary.run.head
    assert head.environment is not None
    return QuantSummary.of([
        replace(summary.run, head=replace(head, environment=replace(head.environment, others_share=0.5)))
    ])  # fmt: skip


def _estimated(columns: Sequence[Sequence[QuantSummary]]) -> list[Estimated]:
    values = [value for column in columns if (value := _ms(column[0])) is not None]
    return [Estimated("", value, (value, value), "") for value in values]


def test_equals_seldom_beat_each_other_on_a_restless_machine() -> None:
    """Noise that lasts from run to run, with heavy tails; Student's interval alone would be wrong in 7 %."""
    rng = np.random.default_rng(1)
    starts = [2 * n * MINUTE for n in range(16)]
    n_wrong, n_trials = 0, 400
    for _ in range(n_trials):
        shocks = 0.02 * rng.normal(size=16) + np.log(2) * (rng.random(16) < 0.4)
        logs = list(itertools.accumulate(shocks, lambda before, shock: 0.5 * before + 0.87 * shock))
        order = [index for turn in range(8) for index in ((0, 1), (1, 0))[turn % 2]]
        columns = [
            _column([math.exp(logs[n]) for n in at], [starts[n] for n in at])
            for at in ([n for n, of in enumerate(order) if of == index] for index in (0, 1))
        ]
        found = ratio_in_turns(TIME, columns, 0, 1)
        assert found is not None
        n_wrong += not found.low <= 1 <= found.high
    assert n_wrong / n_trials <= 0.05


def test_a_slow_third_may_come_between() -> None:
    """With three engines, the two that are compared are not always neighbours."""
    columns = (
        _column(ONE, [n * MINUTE for n in (0, 72, 200, 272)]),
        _column(OTHER, [n * MINUTE for n in (64, 70, 264, 270)]),
        _column(ONE, [n * MINUTE for n in (2, 74, 202, 274)], 60 * MINUTE),
    )
    assert ratio_in_turns(TIME, columns, 0, 1) is not None
    assert ratio_in_turns(TIME, columns[:2], 0, 1) is None


def test_a_run_without_the_value_or_an_end_is_in_no_turn() -> None:
    one, other = _column(ONE, [n * MINUTE for n in (0, 6, 8, 14)]), _column(OTHER, [n * MINUTE for n in (2, 4, 10, 12)])
    for changed in ({"result": None}, {"finished_at": None}):
        last = QuantSummary.of([replace(other[-1].run, **changed)])
        assert ratio_in_turns(TIME, (one, [*other[:-1], last]), 0, 1) is None


def test_bench_compares_its_runs_with_the_times_of_the_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "results.sqlite3") as store:
        run_id = put_run(store, start())
        live = replace(read_run(store, store.load_run(run_id)), head=start(), finished_at=None)
        stored = comparing._as_stored(store, QuantSummary.of([live])).run
    assert stored.head.started_at and stored.finished_at
