"""Stored runs as the list shows them."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

from ggbench.errors import StoreError
from ggbench.runs.store.database import Store
from ggbench.tui.stored_runs import COLUMNS_OF_RUNS, MeasuredRun, matching, read_measured, read_runs
from tests.fakes.measured import fill


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "results.sqlite"
    fill(path)
    return path


def measured(path: Path, *run_ids: int) -> tuple[MeasuredRun, ...]:
    with Store.open(path) as store:
        return tuple(read_measured(store, run_id) for run_id in run_ids)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("setup = '[]'", "another version of ggbench"),
        ("result = '[]'", "another version of ggbench"),
        ("kind = 'nobody_knows'", "no experiment 'nobody_knows'"),
        ("engine = 'nobody_knows'", "no engine 'nobody_knows'"),
    ],
)
def test_a_run_that_cannot_be_read_is_listed_with_the_reason(path: Path, change: str, reason: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE runs SET {change} WHERE id = 1")
    connection.close()
    with Store.open(path) as store:
        runs = read_runs(store, {})
    assert [run.run_id for run in runs] == [4, 3, 2, 1]
    (note,) = [column for column in COLUMNS_OF_RUNS if column.key == "note"]
    assert reason in note.text(runs[-1])
    assert [matching(runs, reason)] == [runs[-1:]]
    assert (runs[-1].run is not None) == change.startswith("result")
    (one,) = measured(path, 1)
    assert len(one.figures()[0].curves[0].x) == 3000
    if one.listed.run is None:
        with pytest.raises(StoreError, match="cannot be read"):
            one.to_save()


def test_every_word_of_a_filter_has_to_match(path: Path) -> None:
    with Store.open(path) as store:
        runs = read_runs(store, {})

    def found(words: str) -> list[int]:
        return [run.run_id for run in matching(runs, words)]

    assert found("") == [4, 3, 2, 1]
    assert found("QWEN out of memory") == [2]
    assert found("q8_0 completed") == [3]
    assert found("2026-11-20 04:00") == [4]
    assert found("nothing") == []
