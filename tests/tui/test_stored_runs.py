"""Stored runs as the list shows them."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.records.context import Probe
from ggbench.records.outcome import Outcome
from ggbench.store.database import Store
from ggbench.tui.stored_runs import COLUMNS_OF_RUNS, MeasuredRun, matching, read_measured, read_runs
from tests.fakes.measured import fill, put_run, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with runs 1 to 4."""
    path = tmp_path / "results.sqlite"
    fill(path)
    return path


def measured(path: Path, *run_ids: int) -> tuple[MeasuredRun, ...]:
    with Store.open(path) as store:
        runs = {run.run_id: run for run in read_runs(store, {})}
        return tuple(read_measured(store, runs[run_id]) for run_id in run_ids)


def test_only_what_changed_is_read_again(path: Path) -> None:
    """Fitting the samples of an interrupted run takes a while, and a list is read after every run."""
    with Store.open(path) as store:
        before = {run.run_id: run for run in read_runs(store, {})}
        put_run(store, start(), n_gen=30)
        again = {run.run_id: run for run in read_runs(store, before)}
    assert all(again[run_id] is run for run_id, run in before.items())
    assert len(again) == 5


def test_a_search_has_its_certificate(path: Path) -> None:
    """A killed one what its probes tell; a decode has none."""
    probe = Probe(4096, "alloc", Outcome.COMPLETED, 1.5)
    with Store.open(path) as store:
        run_id = store.begin(start(kind="maxctx"))
        store.append_probe(run_id, 0, probe)
    decode, search = measured(path, 1, run_id)
    assert decode.certificate is None
    assert search.certificate is not None
    assert (search.certificate.max_n_ctx, search.certificate.probes) == (4096, (probe,))


def test_a_search_says_what_it_found_where_others_say_how_they_ended(path: Path) -> None:
    """A question mark where no decode proved it."""
    (outcome,) = [column for column in COLUMNS_OF_RUNS if column.key == "outcome"]
    with Store.open(path) as store:
        run = start(kind="maxctx")
        for is_proven in (True, False):
            found = replace(run.as_row(Outcome.COMPLETED, ""), max_n_ctx=24_576, max_n_ctx_verified=is_proven)
            store.finish(store.begin(run), found)
        cut_short = replace(found, outcome=Outcome.CANCELLED)
        store.finish(store.begin(run), cut_short)
        cancelled, unproven, proven, *_ = read_runs(store, {})
    assert outcome.text(cancelled) == "cancelled"
    assert (outcome.text(proven), outcome.text(unproven)) == ("n_ctx 24,576", "n_ctx 24,576?")


def test_a_running_run_is_read_as_it_grows(path: Path) -> None:
    """Its row tells what it has so far."""
    with Store.open(path) as store:
        run_id = store.begin(start())
        first = {run.run_id: run for run in read_runs(store, {})}
        store.append_samples(run_id, 0, 26, [1_000_000] * 10)
        second = {run.run_id: run for run in read_runs(store, first)}
    assert (first[run_id].row.n_gen, second[run_id].row.n_gen) == (0, 10)
    assert second[run_id].note == "still running"


@pytest.mark.parametrize("column", ["config", "outcome_row"])
def test_a_run_of_another_version_is_listed_with_the_reason(path: Path, column: str) -> None:
    """It hides no other run; what its samples tell is there where its configuration can be read."""
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE runs SET {column} = '[]'")
        if column == "config":
            connection.execute("UPDATE runs SET outcome_row = NULL")
    connection.close()
    with Store.open(path) as store:
        runs = read_runs(store, {})
    assert [run.run_id for run in runs] == [4, 3, 2, 1]
    assert "another version of ggbench" in runs[-1].note
    assert (runs[-1].row.fit is not None) == (column == "outcome_row")


def test_every_word_of_a_filter_has_to_match(path: Path) -> None:
    """Model, quant, state, note, date and number are searched, in any case and order."""
    with Store.open(path) as store:
        runs = read_runs(store, {})

    def found(words: str) -> list[int]:
        return [run.run_id for run in matching(runs, words)]

    assert found("") == [4, 3, 2, 1]
    assert found("QWEN out of memory") == [2]
    assert found("q8_0 completed") == [3]
    assert found("2026-11-20 04:00") == [4]
    assert found("nothing") == []
