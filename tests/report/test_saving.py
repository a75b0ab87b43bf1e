"""Runs as files: CSV, SVG, and names that nothing has yet."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from ggbench.errors import GgbenchError
from ggbench.records.summary import QuantSummary
from ggbench.report.plot.curves import Curve, Figure, Line, latency_figure
from ggbench.report.plot.svg import figure_as_svg
from ggbench.report.saving import SavedRun, save_runs, write_new
from ggbench.store.runs import Samples
from tests.fakes.summaries import with_run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are saved."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def as_svg(curves: Sequence[Curve]) -> str:
    return figure_as_svg(dataclasses.replace(latency_figure([]), curves=tuple(curves)))


def saved_run(summary: QuantSummary, run_id: int, n_samples: int, *, sampler: bool = True) -> SavedRun:
    position = np.arange(26, 26 + n_samples)
    step_ns = 10_000_000 + 2_500 * position
    sample_ns = np.full(n_samples, 50_000, np.int64) if sampler else None
    samples = Samples(np.full(n_samples, "decode/p25/b1/r0"), position, step_ns, sample_ns)
    return SavedRun(with_run(summary, run_id=run_id), samples)


def test_rows_and_samples_are_saved_whole(completed: QuantSummary, folder: Path) -> None:
    """Every sample of every run with its position; a second time goes beside the first, over nothing."""
    runs = [saved_run(completed, 1, 3000), saved_run(completed, 4, 100, sampler=False)]
    rows, samples = save_runs(runs, "csv", folder)
    assert (rows.name, samples.name) == ("ggbench-runs-1-4.csv", "ggbench-runs-1-4-samples.csv")
    assert [row["run_id"] for row in csv.DictReader(io.StringIO(rows.read_text()))] == ["1", "4"]
    table = list(csv.DictReader(io.StringIO(samples.read_text())))
    assert len(table) == 3100
    assert table[0] == {
        "run_id": "1", "repeat": "0", "position": "26", "step_ns": "10065000", "sample_ns": "50000",
    }  # fmt: skip
    assert table[-1] == {
        "run_id": "4", "repeat": "0", "position": "125", "step_ns": "10312500", "sample_ns": "",
    }  # fmt: skip
    before = rows.read_text()
    again, _ = save_runs(runs, "csv", folder)
    assert again.name == "ggbench-runs-1-4-2.csv"
    assert rows.read_text() == before


def test_many_runs_do_not_make_a_long_name(completed: QuantSummary, folder: Path) -> None:
    """A file system takes 255 characters at most."""
    (saved,) = save_runs([saved_run(completed, run_id, 30) for run_id in (1, 3, 4, 5, 6, 7, 8)], "svg", folder)
    assert saved.name == "ggbench-runs-1-and-6-more.svg"


def test_a_run_without_samples_has_no_picture(completed: QuantSummary, folder: Path) -> None:
    """It says what can be done instead, and leaves no file."""
    with pytest.raises(GgbenchError, match="no samples to plot"):
        save_runs([saved_run(completed, 2, 0)], "svg", folder)
    assert list(folder.iterdir()) == []


def test_a_file_that_cannot_be_written_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a file is worse than none; and a missing folder is an error with a hint."""

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
    hostile = Curve("</text><script>\x00\x1b&\ud800", positions, latency_ms, None, Line(200.0, 10.0), Line(None, 8.0))
    text = as_svg([hostile, Curve("one", positions[:1], latency_ms[:1])])
    root = ElementTree.fromstring(text.encode())
    tags = {element.tag.split("}")[1] for element in root.iter()}
    assert tags == {"svg", "title", "style", "rect", "path", "text"}
    assert "</text><script>&" in "".join(root.itertext())
    assert not any(name.endswith("href") for element in root.iter() for name in element.attrib)
    assert text.count("l4 7h-8z") == 1


def test_a_legend_is_never_cut_and_no_letter_covers_another() -> None:
    """A long name goes on in another line, inside of the picture; curves that end in one place have letters apart."""
    positions = np.arange(26, 526)
    name = "a model whose name is very long " * 12
    fit_text = "W 62 (37–201) tokens/ms, B 8 ±4 ms"
    series = [
        Curve(each, positions, np.full(500, 10.0), None, Line(200.0, 10.0), Line(None, 8.0), fit_text)
        for each in (name, "b", "c")
    ]
    root = ElementTree.fromstring(as_svg(series).encode())
    texts = [(float(each.get("y", "0")), each.text or "") for each in root.iter() if each.tag.endswith("}text")]
    assert " ".join(text for _, text in texts).count("very long") == 12
    assert max(len(text) for _, text in texts) <= 92
    assert max(y for y, _ in texts) < float(root.get("height", "0"))
    for letter in "abc":
        assert sum(text == letter for _, text in texts) >= 2
    at_ends = sorted(y for y, text in texts if text in "abc" and y < 450)
    assert min(np.diff(at_ends)) >= 12
    assert "0" in [text for _, text in texts]


def test_a_band_of_errors_is_drawn_under_its_curve() -> None:
    """Paler than the curve, with no mark for values beyond the axis, and the axes named by the figure."""
    chunks = np.arange(1, 21)
    one = Curve("q4_1", chunks, 12 + 30.0 / chunks**2, 2 / np.sqrt(chunks), note="12.1 ±0.4 nats")
    root = ElementTree.fromstring(figure_as_svg(Figure("kld", "KLD", "nats", "chunks scored", "", (one,))).encode())
    texts = ["".join(each.itertext()) for each in root.iter() if each.tag.endswith("}text")]
    assert {"KLD [nats]", "chunks scored"} <= set(texts)
    assert any("12.1 ±0.4 nats" in text for text in texts)
    drawn = [each for each in root.iter() if each.tag.endswith("}path") and not each.get("class")]
    assert [each.get("fill-opacity") for each in drawn] == ["0.15", None]
