"""Stored runs as the list shows them, and as files."""

from __future__ import annotations

import csv
import io
import os
import sqlite3
import threading
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ggbench.errors import GgbenchError
from ggbench.records import Outcome, Probe
from ggbench.store.database import Store
from ggbench.tui.curve_svg import curves_as_svg
from ggbench.tui.plotting import PlotSeries
from ggbench.tui.saving import save_runs, write_new
from ggbench.tui.stored_runs import COLUMNS_OF_RUNS, MeasuredRun, matching, read_measured, read_runs
from tests.fakes.measured import fill, put_run, start


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with runs 1 to 4."""
    path = tmp_path / "results.sqlite"
    fill(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are saved."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


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


def test_rows_and_samples_are_saved_whole(path: Path, folder: Path) -> None:
    """Every sample of every run with its position; a second time goes beside the first, over nothing."""
    rows, samples = save_runs(measured(path, 1, 4), "csv", folder)
    assert (rows.name, samples.name) == ("ggbench-runs-1-4.csv", "ggbench-runs-1-4-samples.csv")
    assert [row["run_id"] for row in csv.DictReader(io.StringIO(rows.read_text()))] == ["1", "4"]
    table = list(csv.DictReader(io.StringIO(samples.read_text())))
    assert len(table) == 3100
    assert table[0] | {"step_ns": ""} == {
        "run_id": "1", "repeat": "0", "position": "26", "step_ns": "", "sample_ns": "50000",
    }  # fmt: skip
    assert table[-1] == {
        "run_id": "4", "repeat": "0", "position": "125", "step_ns": "10495000", "sample_ns": "",
    }  # fmt: skip
    before = rows.read_text()
    again, _ = save_runs(measured(path, 1, 4), "csv", folder)
    assert again.name == "ggbench-runs-1-4-2.csv"
    assert rows.read_text() == before


def test_many_runs_do_not_make_a_long_name(path: Path, folder: Path) -> None:
    """A file system takes 255 characters at most."""
    with Store.open(path) as store:
        for _ in range(6):
            put_run(store, start(), n_gen=30)
    (saved,) = save_runs(measured(path, 1, 3, 4, 5, 6, 7, 8), "svg", folder)
    assert saved.name == "ggbench-runs-1-and-6-more.svg"


def test_a_run_without_samples_has_no_picture(path: Path, folder: Path) -> None:
    """It says what can be done instead, and leaves no file."""
    with pytest.raises(GgbenchError, match="no samples to plot"):
        save_runs(measured(path, 2), "svg", folder)
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a file is worse than none; and a folder that is gone is told, not raised."""

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(GgbenchError, match="No space left on device"):
            write_new(folder, "ggbench-run-1", ".csv", "text")
    assert list(folder.iterdir()) == []
    with pytest.raises(GgbenchError, match="cannot save in"):
        write_new(folder / "gone", "ggbench-run-1", ".csv", "text")


@pytest.mark.parametrize("has_links", [True, False])
def test_two_that_save_at_once_take_two_names(folder: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    """Neither writes over the other; also without links, as long as they do not meet in the same instant."""
    if not has_links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        saved = [write_new(folder, "x", ".csv", str(number)) for number in range(3)]
    else:
        saved = []
        threads = [
            threading.Thread(target=lambda n=number: saved.append(write_new(folder, "x", ".csv", str(n))))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(path.read_text() for path in saved) == [str(number) for number in range(len(saved))]
    assert {path.name for path in folder.iterdir()} == {path.name for path in saved}


def test_a_picture_is_xml_whatever_the_names_are() -> None:
    """No name makes an element, nothing is fetched from outside, and the slowest step has its mark."""
    positions = np.arange(1, 2001)
    latency_ms = 10 + positions / 200.0
    latency_ms[700] = 1e4
    hostile = PlotSeries("</text><script>\x00\x1b&\ud800", positions, latency_ms, (200.0, 10.0), (None, 8.0))
    text = curves_as_svg([hostile, PlotSeries("one", positions[:1], latency_ms[:1])])
    root = ElementTree.fromstring(text.encode())
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert tags == {"svg", "title", "style", "rect", "path", "text", "tspan"}
    assert "</text><script>&" in "".join(root.itertext())
    assert not any(name.endswith("href") for element in root.iter() for name in element.attrib)
    assert text.count("l4 7h-8z") == 1
