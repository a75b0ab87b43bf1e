"""Runs as files: HTML and CSV, and names that nothing has yet."""

import csv
import io
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from ggbench.errors import GgbenchError
from ggbench.files import write_new
from ggbench.formats.report import report_text, save_report
from ggbench.runs.run import Run
from ggbench.runs.store.runs import StoredSamples
from ggbench.show.listed_runs import SavedRun
from tests.fakes.measured import with_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def saved_run(summary: Run, run_id: int, n_samples: int) -> SavedRun:
    position = np.arange(26, 26 + n_samples)
    step_ns = 10_000_000 + 2_500 * position
    samples = StoredSamples({"decode/p25/b1/r0": n_samples}, position, step_ns)
    return SavedRun(with_run(summary, run_id=run_id), samples)


@pytest.fixture
def runs(completed: Run) -> list[SavedRun]:
    return [saved_run(completed, 1, 3000), saved_run(completed, 4, 100)]


def test_rows_are_the_runs(runs: list[SavedRun]) -> None:
    rows = csv.DictReader(io.StringIO(report_text(runs, ".CSV").decode()))
    assert [row["run_id"] for row in rows] == ["1", "4"]


def test_a_report_is_saved_under_a_new_name(runs: list[SavedRun], folder: Path) -> None:
    page = save_report(runs, folder)
    assert page.name == "ggbench-runs-1-4.html"
    before = page.read_text()
    assert before.startswith("<!DOCTYPE html>")
    assert save_report(runs[:1], folder).name == "ggbench-run-1.html"
    assert save_report(runs, folder).name == "ggbench-runs-1-4.2.html"
    assert page.read_text() == before


def test_a_file_that_cannot_be_written_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(GgbenchError, match="the disk filled up"):
            write_new(folder, "ggbench-run-1", ".csv", b"text")
    assert list(folder.iterdir()) == []
    with pytest.raises(GgbenchError, match="cannot write to"):
        write_new(folder / "gone", "ggbench-run-1", ".csv", b"text")


@pytest.mark.parametrize("has_links", [True, False])
def test_two_that_save_at_once_take_two_names(folder: Path, monkeypatch: pytest.MonkeyPatch, has_links: bool) -> None:
    """Neither writes over the other; also without links, as long as they do not meet in the same instant."""
    if not has_links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        saved = [write_new(folder, "x", ".csv", str(number).encode()) for number in range(3)]
    else:
        saved = []
        threads = [
            threading.Thread(target=lambda n=number: saved.append(write_new(folder, "x", ".csv", str(n).encode())))
            for number in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(path.read_text() for path in saved) == [str(number) for number in range(len(saved))]
    assert {path.name for path in folder.iterdir()} == {path.name for path in saved}
