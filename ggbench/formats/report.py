"""Reports: runs with their comparison, table and charts, as HTML, Markdown, CSV or pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench import __version__
from ggbench.decisions.compare.show import comparison_answer
from ggbench.errors import GgbenchError, UsageError
from ggbench.files import check_free, write_as, write_new
from ggbench.formats.report_contents import Report, all_charts, report_of
from ggbench.formats.report_page import report_html
from ggbench.runs.store.database import Store
from ggbench.show.answer import Table
from ggbench.show.figure import figures_csv
from ggbench.show.listed_runs import SavedRun
from ggbench.show.machine import machine_text, reproducing, source_line
from ggbench.show.names import quant_colors, quant_names, unambiguous_names
from ggbench.show.presenter import all_figures, presenter_of
from ggbench.show.text import markdown_code, markdown_escaped
from ggbench.text import in_words, sanitize
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.show.vega import PictureForm


_NAMED_RUNS = 6
"""A file's name lists at most this many runs."""

Contents = Mapping[str, bytes]
"""File contents, by the suffix added to the report's name."""


ENDINGS = ".html", ".md", ".csv", ".svg", ".png"


def check_ending(path: Path) -> None:
    """Raise UsageError if the file's ending is not a report format."""
    if path.suffix.lower() not in ENDINGS:
        what = f"{sanitize(path.suffix or path.name)!r} is not a report format"
        raise UsageError(what, f"end the file's name in {in_words(ENDINGS[:-1])} or {ENDINGS[-1]}")


def report_files(store: Store, runs: Sequence[SavedRun], ending: str, apart: Sequence[str] = ()) -> Contents:
    """Return the report in the format of an ending; `apart` as for `report_of`. Raises StoreError, and GgbenchError if
    there is nothing to draw.
    """
    summaries = [one.summary for one in runs]
    match ending.lower():
        case ".html":
            return {"": report_html(report_of(store, runs, apart)).encode()}
        case ".md":
            return {"": report_markdown(report_of(store, runs, apart)).encode()}
        case ".csv":
            return {"": figures_csv(all_figures().values(), summaries).encode()}
    from ggbench.show import vega

    charts = all_charts(runs)
    if not charts:
        raise GgbenchError("these runs have nothing to draw", "write the report as .html or .md")
    names, source = unambiguous_names(summaries), source_line(summaries)
    colors = quant_colors(quant_names([summary.subject for summary in summaries]))
    drawing = vega.Drawing(vega.PICTURE, names, is_interactive=False, colors=colors, source=source)
    form: PictureForm = "svg" if ending.lower() == ".svg" else "png"
    pictures = [vega.as_picture(chart, drawing, form) for chart in charts]
    parts = ["", *(f"-{chart.key}" for chart in charts[1:])]
    return dict(zip(parts, pictures, strict=True))


def save_report(runs: Sequence[SavedRun], ending: str, folder: Path) -> tuple[Path, ...]:
    """Write the report under new names, `ggbench-runs-1-4.html`, and return the paths.

    Raises like `report_files`, and GgbenchError if the folder cannot be written.
    """
    # names contain only run numbers, since model names are untrusted text
    numbers = [str(one.run_id) for one in runs]
    stem = f"ggbench-{'run' if len(runs) == 1 else 'runs'}-"
    stem += "-".join(numbers) if len(numbers) <= _NAMED_RUNS else f"{numbers[0]}-and-{len(numbers) - 1}-more"
    with Store.open() as store:
        contents = report_files(store, runs, ending)
    return tuple(write_new(folder, f"{stem}{part}", ending, content) for part, content in contents.items())


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


def write_all(contents: Mapping[str, bytes], path: Path, *, force: bool) -> tuple[Path, ...]:
    """Write several files, adding each suffix to the name, and return their paths.

    If any exists, none is written.
    """
    files = {path.with_name(f"{path.stem}{part}{path.suffix}"): content for part, content in contents.items()}
    for each in files:
        check_free(each, force=force)
    for each, content in files.items():
        write_as(each, content, force=force)
    return tuple(files)
