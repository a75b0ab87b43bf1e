"""Reports: runs by model with table, comparison and charts, as HTML, Markdown, CSV or pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ggbench import __version__
from ggbench.decisions.compare.comparison import Comparison, compare_quants
from ggbench.decisions.compare.estimates import RunSpreads, repeats_among
from ggbench.errors import GgbenchError, UsageError
from ggbench.files import check_free, write_as, write_new
from ggbench.runs.summary import QuantSummary
from ggbench.show import UNKNOWN
from ggbench.show.figures import Chart
from ggbench.show.listed_runs import SavedRun, plotted_runs
from ggbench.show.machine import machine_text, reproducing, source_line
from ggbench.show.names import model_names, quant_colors, quant_names, unambiguous_names
from ggbench.show.presenter import charts_of, figures_of, presenter_of
from ggbench.show.quants import column_texts, rows_as_csv, rows_as_markdown
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


def report_files(runs: Sequence[SavedRun], ending: str) -> Contents:
    """Return the report in the format of an ending. Raises StoreError, and GgbenchError if there is nothing to draw."""
    summaries = [one.summary for one in runs]
    match ending.lower():
        case ".html":
            from ggbench.formats.report_page import report_html

            return {"": report_html(report_contents(runs)).encode()}
        case ".md":
            return {"": report_markdown(report_contents(runs)).encode()}
        case ".csv":
            return {"": rows_as_csv(summaries).encode()}
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
    contents = report_files(runs, ending)
    return tuple(write_new(folder, f"{stem}{part}", ending, content) for part, content in contents.items())


def report_markdown(models: Sequence[ReportedModel]) -> str:
    """Return the report. Raises StoreError for a run of an unknown kind."""
    n_runs = sum(len(model.runs) for model in models)
    parts = ["# ggbench report", f"{counted(n_runs, 'run')}, written by ggbench {__version__}."]
    for model in models:
        parts.append(f"## {markdown_escaped(model.title)}")
        if model.comparison is not None:
            parts.append("\n".join(f"- {markdown_escaped(each)}" for each in model.comparison.sentences))
        parts.append(rows_as_markdown(model.summaries, model.columns).rstrip("\n"))
        parts += [_run(one, name) for one, name in zip(model.runs, model.names, strict=True)]
    return "\n\n".join(parts) + "\n"


def _run(one: SavedRun, name: str) -> str:
    run = one.summary.run
    ending = presenter_of(run.head.kind).ending(run)
    facts = (machine_text(run.head.environment), run.head.started_at)
    return "\n".join(
        [
            f"- run {one.run_id}, {markdown_escaped(run.head.kind)}, {markdown_escaped(f'{name}: {ending}')}",
            *(f"  - {markdown_escaped(fact)}" for fact in facts if fact),
            f"  - {markdown_code(reproducing(run))}",
        ]
    )


_COLUMNS = (
    "quant", "bpw", "memory_bytes", "tok_s", "w_tokens_per_ms", "b_ms", "kld_mean", "ppl", "same_top", "max_n_ctx",
    "n_ctx", "n_gen", "prefill_ms", "p99_ms", "w_ratio", "b_ratio", "b_w16_ms", "file_bytes", "weight_bytes",
    "kv_bytes", "compute_bytes", "run_id", "source", "note",
)  # fmt: skip
"""The columns most useful for a choice come first: a page shows about ten, the others by scrolling."""


class ReportedModel(msgspec.Struct, frozen=True, dict=True):
    title: str
    """Printable."""
    runs: tuple[SavedRun, ...]
    spreads: RunSpreads
    """The spread between loads, included in the comparison."""
    colors: tuple[int, ...]
    """Colour index of each run: a quant has the same one on the whole page."""

    @cached_property
    def summaries(self) -> tuple[QuantSummary, ...]:
        return tuple(one.summary for one in self.runs)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the shortest names that distinguish the runs under the title. Printable."""
        return tuple(name.removeprefix(f"{self.title} ") for name in unambiguous_names(self.summaries))

    @cached_property
    def columns(self) -> tuple[str, ...]:
        return tuple(key for key in _COLUMNS if {*column_texts(key, self.summaries)} - {UNKNOWN, ""})

    @cached_property
    def comparison(self) -> Comparison | None:
        """Return the comparison; None for a single run, or if nothing is comparable."""
        if len(self.runs) < 2:
            return None
        comparison = compare_quants(self.summaries, self.spreads)
        return None if comparison.is_empty else comparison


def report_contents(runs: Sequence[SavedRun]) -> tuple[ReportedModel, ...]:
    """Group runs by model, in the order of their first runs."""
    colors = quant_colors([one.summary.subject.quant for one in runs])
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(model_names([one.summary.subject for one in runs])):
        groups.setdefault(name, []).append(index)
    spreads = RunSpreads(repeats_among(one.summary.run for one in runs))
    return tuple(
        ReportedModel(name, tuple(runs[index] for index in group), spreads, tuple(colors[index] for index in group))
        for name, group in groups.items()
    )


def all_charts(runs: Sequence[SavedRun]) -> tuple[Chart, ...]:
    """Return the non-empty figures and charts of stored runs. Raises StoreError for an unknown kind."""
    summaries = [one.summary for one in runs]
    kinds = [summary.run.head.kind for summary in summaries]
    return (*figures_of(kinds, plotted_runs(runs)), *charts_of(kinds, summaries, unambiguous_names(summaries)))


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
