"""Runs as files: never half of one, and over another only where that is asked for."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from ggbench.errors import GgbenchError, UsageError
from ggbench.files import take_free_name, take_name, written_aside
from ggbench.machine.records import MachineReading
from ggbench.runs.store.database import Store
from ggbench.runs.store.runs import Samples, StoredRun
from ggbench.runs.stored import read_recording, read_run
from ggbench.runs.summary import QuantSummary
from ggbench.show.figures import Figure, PlottedRun
from ggbench.show.names import unambiguous_names
from ggbench.show.presenter import figures_of
from ggbench.show.text import csv_text, rows_as_csv
from ggbench.text import plain

if TYPE_CHECKING:
    from ggbench.show.charts import Chart

PictureForm: TypeAlias = Literal["svg", "png"]


class SavedRun(msgspec.Struct, frozen=True):
    """What is written of one run."""

    summary: QuantSummary
    samples: Samples
    observations: Sequence[object] = ()
    """What was observed beside the samples, for what draws it."""

    @classmethod
    def of(cls, store: Store, summary: QuantSummary) -> SavedRun:
        """Read what is stored of the leading run of a summary. Raises StoreError and UnknownName."""
        assert summary.run.run_id is not None
        stored = store.load_run(summary.run.run_id)
        bodies = [each.body for each in read_recording(store, stored).observations]
        return cls(summary, store.load_samples(stored.run_id), bodies)

    @classmethod
    def stored(cls, store: Store, stored: StoredRun) -> SavedRun:
        """Read a stored run whole. Raises StoreError where this ggbench cannot read it."""
        return cls.of(store, QuantSummary.of([read_run(store, stored)]))

    @property
    def readings(self) -> tuple[MachineReading, ...]:
        """Of the machine while it ran."""
        return tuple(each for each in self.observations if isinstance(each, MachineReading))

    @property
    def run_id(self) -> int | None:
        """Number of the run in the store."""
        return self.summary.run.run_id


def write_all(contents: Mapping[str, bytes], path: Path, *, force: bool) -> tuple[Path, ...]:
    """Write several files under one name, each with its own part added, and return their paths; none where one of them
    exists. Raises as `write_as`.
    """
    files = {path.with_name(f"{path.stem}{part}{path.suffix}"): content for part, content in contents.items()}
    for each in files:
        check_free(each, force=force)
    for each, content in files.items():
        write_as(each, content, force=force)
    return tuple(files)


def check_free(path: Path, *, force: bool) -> None:
    """Raise UsageError for a folder, and for a file that exists unless `force` overwrites it."""
    if path.is_dir():
        raise UsageError(f"{plain(str(path))} is a folder", "give the name of a file")
    if path.exists() and not force:
        raise _exists(path)


def write_as(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file under a name of the user's, whole or not at all. Raises as `check_free`, and GgbenchError."""
    check_free(path, force=force)
    with _written_aside(path.parent, path.name, content) as aside:
        try:
            take_name(aside, path) if force else take_free_name(aside, path)
        except FileExistsError:
            raise _exists(path) from None


def csv_of(runs: Sequence[SavedRun]) -> dict[str, bytes]:
    """Return figures and samples as two CSV files, by what the name of each adds."""
    rows = rows_as_csv([one.summary for one in runs])
    return {"": rows.encode(), "-samples": _samples_as_csv(runs).encode()}


def pictures_of(charts: Sequence[Chart], summaries: Sequence[QuantSummary], form: PictureForm) -> dict[str, bytes]:
    """Return each chart as a picture, the first under the name as it is, others by their keys."""
    from ggbench.show.machine import source_line
    from ggbench.show.vega import PICTURE, Drawing, as_png, as_svg

    drawing = Drawing(PICTURE, unambiguous_names(summaries), is_interactive=False, source=source_line(summaries))
    return {
        f"-{chart.key}" if number else "": as_svg(chart, drawing).encode() if form == "svg" else as_png(chart, drawing)
        for number, chart in enumerate(charts)
    }


def saved_figures(runs: Sequence[SavedRun]) -> tuple[Figure, ...]:
    """Return what there is to draw of stored runs, by the shortest names that distinguish them."""
    return figures_of([one.summary.run.head.kind for one in runs], plotted_runs(runs))


def plotted_runs(runs: Sequence[SavedRun]) -> tuple[PlottedRun, ...]:
    """Return stored runs as figures take them, by the shortest names that distinguish them."""
    return tuple(
        PlottedRun(
            name,
            one.samples.position,
            one.samples.step_ns,
            one.summary.fit,
            one.summary.limit,
            one.observations,
            one.samples.series.tolist(),
            one.summary.run.head.settings,
            one.summary.run.result,
        )
        for name, one in zip(unambiguous_names([one.summary for one in runs]), runs, strict=True)
    )


def _samples_as_csv(runs: Sequence[SavedRun]) -> str:
    """A line for every timed step: run, repeat, position, ns of the step, ns of the sampler or empty."""
    rows: list[tuple[object, ...]] = []
    for one in runs:
        samples = one.samples
        sample_ns = [None] * len(samples.step_ns) if samples.sample_ns is None else samples.sample_ns.tolist()
        columns = (samples.repeat.tolist(), samples.position.tolist(), samples.step_ns.tolist(), sample_ns)
        rows += ((one.run_id, *cells) for cells in zip(*columns, strict=True))
    return csv_text(("run_id", "repeat", "position", "step_ns", "sample_ns"), rows)


def write_new(folder: Path, stem: str, suffix: str, content: bytes) -> Path:
    """Write a file under the first free name of `stem`, `stem-2`, ... and return it. Raises GgbenchError."""
    with _written_aside(folder, stem, content) as aside:
        for number in itertools.count(1):
            target = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
            with contextlib.suppress(FileExistsError):
                take_free_name(aside, target)
                return target
    raise AssertionError("unreachable")


@contextlib.contextmanager
def _written_aside(folder: Path, name: str, content: bytes) -> Iterator[Path]:
    """Write to a file that gets its name only when it is whole, and is gone otherwise. Raises GgbenchError."""
    try:
        with written_aside(folder / name) as aside:
            aside.write_bytes(content)
            yield aside
    except FileExistsError:
        raise
    except OSError as error:
        hint = "choose a folder that is writable and has free space"
        raise GgbenchError(f"cannot save in {plain(str(folder))}: {error.strerror}", hint) from error


def _exists(path: Path) -> UsageError:
    return UsageError(f"{plain(str(path))} exists already", "--force overwrites it")
