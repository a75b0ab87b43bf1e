"""Reports: runs with their comparison, table and charts, as HTML, Markdown or CSV."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ggbench import __version__
from ggbench.decisions.compare.show import comparison_answer
from ggbench.errors import UsageError
from ggbench.files import write_new
from ggbench.formats.report_contents import Report, report_of
from ggbench.formats.report_page import report_html
from ggbench.runs.store.database import Store
from ggbench.show.answer import Table
from ggbench.show.figure import figures_csv
from ggbench.show.listed_runs import SavedRun
from ggbench.show.machine import machine_text, reproducing
from ggbench.show.presenter import all_figures, presenter_of
from ggbench.show.text import markdown_code, markdown_escaped
from ggbench.text import in_words, sanitize
from ggbench.units import counted

_NAMED_RUNS = 6
"""A file's name lists at most this many runs."""

ENDINGS = ".html", ".md", ".csv"


def check_ending(path: Path) -> None:
    """Raise UsageError if the file's ending is not a report format."""
    if path.suffix.lower() not in ENDINGS:
        what = f"{sanitize(path.suffix or path.name)!r} is not a report format"
        raise UsageError(what, f"end the file's name in {in_words(ENDINGS[:-1])} or {ENDINGS[-1]}")


def report_text(store: Store, runs: Sequence[SavedRun], ending: str, apart: Sequence[str] = ()) -> bytes:
    """Return the report in the format of an ending; `apart` as for `report_of`. Raises StoreError."""
    if ending.lower() == ".csv":
        return figures_csv(all_figures().values(), [one.summary for one in runs]).encode()
    report = report_of(store, runs, apart)
    return (report_html(report) if ending.lower() == ".html" else report_markdown(report)).encode()


def save_report(runs: Sequence[SavedRun], ending: str, folder: Path) -> Path:
    """Write the report under a new name, `ggbench-runs-1-4.html`, and return its path.

    Raises StoreError, and GgbenchError if the folder cannot be written.
    """
    # names contain only run numbers, since model names are untrusted text
    numbers = [str(one.run_id) for one in runs]
    stem = f"ggbench-{'run' if len(runs) == 1 else 'runs'}-"
    stem += "-".join(numbers) if len(numbers) <= _NAMED_RUNS else f"{numbers[0]}-and-{len(numbers) - 1}-more"
    with Store.open() as store:
        return write_new(folder, stem, ending, report_text(store, runs, ending))


def report_markdown(report: Report) -> str:
    """Return the report. Raises StoreError for a run of an unknown kind."""
    runs = counted(len(report.runs), "run")
    parts = [
        f"# {markdown_escaped(report.title)}",
        "" if report.comparison is None else comparison_answer(report.comparison).markdown(why=True),
        Table(report.figures, report.summaries, "Runs").markdown(),
        *map(_run, report.runs, report.names),
        f"{runs}, written by ggbench {__version__}.",
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _run(one: SavedRun, name: str) -> str:
    run = one.summary.run
    said = f"{name}: {presenter_of(run.head.kind).ending(run)}"
    facts = (machine_text(run.head.environment), run.head.started_at)
    return "\n".join(
        [
            f"- run {one.run_id}, {markdown_escaped(run.head.kind)}, {markdown_escaped(said)}",
            *(f"  - {markdown_escaped(fact)}" for fact in facts if fact),
            f"  - {markdown_code(reproducing(run))}",
        ]
    )
