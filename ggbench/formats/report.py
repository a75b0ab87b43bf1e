"""Reports: runs with their comparison, table and charts as HTML, or the table as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ggbench.errors import UsageError
from ggbench.files import write_new
from ggbench.formats.report_contents import report_of
from ggbench.formats.report_page import report_html
from ggbench.formats.run_document import as_json
from ggbench.runs.store.database import Store
from ggbench.show.figure import figures_csv
from ggbench.show.listed_runs import SavedRun
from ggbench.show.presenter import all_figures
from ggbench.text import sanitize

_NAMED_RUNS = 6
"""A file's name lists at most this many runs."""

ENDINGS = ".html", ".csv"


def check_ending(path: Path) -> None:
    """Raise UsageError if the file's ending is not a report format."""
    if path.suffix.lower() not in ENDINGS:
        what = f"{sanitize(path.suffix or path.name)!r} is not a report format"
        raise UsageError(what, f"end the file's name in {' or '.join(ENDINGS)}")


def report_text(runs: Sequence[SavedRun], ending: str, apart: Sequence[str] = ()) -> bytes:
    """Return the report in the format of an ending; `apart` as for `report_of`. Raises StoreError."""
    if ending.lower() == ".csv":
        return figures_csv(all_figures().values(), [one.run for one in runs]).encode()
    return report_html(report_of(runs, apart)).encode()


def save_report(runs: Sequence[SavedRun], folder: Path) -> Path:
    """Write the report as HTML under a new name, `ggbench-runs-1-4.html`, and return its path.

    Raises GgbenchError if the folder cannot be written.
    """
    return write_new(folder, _stem([one.run_id for one in runs]), ".html", report_text(runs, ".html"))


def save_whole(store: Store, run_ids: Sequence[int], folder: Path) -> Path:
    """Write the runs whole, for `ggbench import`, under a new name, `ggbench-run-3.json`, and return its path.

    Raises like `as_json`, and GgbenchError if the folder cannot be written.
    """
    pieces = as_json(store, [store.load_run(run_id) for run_id in run_ids])
    return write_new(folder, _stem(run_ids), ".json", "".join(pieces).encode())


def _stem(run_ids: Sequence[int | None]) -> str:
    """Return `ggbench-runs-1-4`: only numbers, since model names are untrusted text."""
    numbers = [str(run_id) for run_id in run_ids]
    listed = "-".join(numbers) if len(numbers) <= _NAMED_RUNS else f"{numbers[0]}-and-{len(numbers) - 1}-more"
    return f"ggbench-{'run' if len(numbers) == 1 else 'runs'}-{listed}"
