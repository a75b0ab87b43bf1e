"""Runs as files in a folder: never over another file, never half of one."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from ggbench.errors import GgbenchError
from ggbench.records.summary import QuantSummary
from ggbench.report.plot.series import LatencySeries
from ggbench.report.plot.svg import curves_as_svg
from ggbench.report.text import csv_text, rows_as_csv
from ggbench.store.runs import Samples

SavedForm: TypeAlias = Literal["csv", "svg"]

_NAMED_RUNS = 6
"""A file's name lists at most this many runs."""


@dataclass(frozen=True, slots=True)
class SavedRun:
    """What is written of one run."""

    run_id: int
    summary: QuantSummary
    samples: Samples
    series: LatencySeries


def save_runs(runs: Sequence[SavedRun], form: SavedForm, folder: Path) -> tuple[Path, ...]:
    """Write figures and samples as two CSV files, or the curves as one SVG, and return the paths.

    Raises GgbenchError where there is no sample to draw, or the folder cannot be written.
    """
    # Names are made of run numbers alone: a model's name is untrusted text.
    numbers = [str(one.run_id) for one in runs]
    stem = f"ggbench-{'run' if len(runs) == 1 else 'runs'}-"
    stem += "-".join(numbers) if len(numbers) <= _NAMED_RUNS else f"{numbers[0]}-and-{len(numbers) - 1}-more"
    if form == "svg":
        series = [one.series for one in runs]
        if not any(len(one.positions) for one in series):
            raise GgbenchError("there are no samples to plot", "save it as CSV, or choose a run that decoded")
        return (write_new(folder, stem, ".svg", curves_as_svg(series)),)
    rows = rows_as_csv([one.summary for one in runs])
    return write_new(folder, stem, ".csv", rows), write_new(folder, f"{stem}-samples", ".csv", _samples_as_csv(runs))


def _samples_as_csv(runs: Sequence[SavedRun]) -> str:
    """A line for every timed step: run, repeat, position, ns of the step, ns of the sampler or empty."""
    rows: list[tuple[object, ...]] = []
    for one in runs:
        samples = one.samples
        sample_ns = [None] * len(samples.step_ns) if samples.sample_ns is None else samples.sample_ns.tolist()
        columns = (samples.repeat.tolist(), samples.position.tolist(), samples.step_ns.tolist(), sample_ns)
        rows += ((one.run_id, *cells) for cells in zip(*columns, strict=True))
    return csv_text(("run_id", "repeat", "position", "step_ns", "sample_ns"), rows)


def write_new(folder: Path, stem: str, suffix: str, text: str) -> Path:
    """Write a file under the first free name of `stem`, `stem-2`, ... and return it. Raises GgbenchError."""
    aside = folder / f".{stem}-{secrets.token_hex(4)}.part"
    try:
        try:
            with aside.open("x", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            return _name(aside, folder, stem, suffix)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        hint = "start ggbench in a folder that is writable and has free space"
        raise GgbenchError(f"cannot save in {folder}: {error.strerror}", hint) from error


def _name(aside: Path, folder: Path, stem: str, suffix: str) -> Path:
    """Give the file a free name; two instances of ggbench may look for one at the same time."""
    number = 1
    while True:
        target = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
        try:
            # Linking is the one way to name a file that fails if the name is taken.
            os.link(aside, target)
        except FileExistsError:
            number += 1
        except OSError:  # a file system without links, such as FAT
            if target.exists():
                number += 1
                continue
            return aside.replace(target)
        else:
            return target
