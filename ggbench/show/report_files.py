"""A report in each of its forms, by the ending of the file's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ggbench.errors import GgbenchError, UsageError
from ggbench.show.contents import all_charts, report_contents
from ggbench.show.saving import PictureForm, SavedRun, csv_of, pictures_of, write_new
from ggbench.text import in_words, plain

_NAMED_RUNS = 6
"""A file's name lists at most this many runs."""

Contents = Mapping[str, bytes]
"""What is written, by what each file's name adds to the others'."""


def _as_html(runs: Sequence[SavedRun]) -> Contents:
    from ggbench.show.pages.page import report_html

    return {"": report_html(report_contents(runs)).encode()}


def _as_markdown(runs: Sequence[SavedRun]) -> Contents:
    from ggbench.show.pages.markdown import report_markdown

    return {"": report_markdown(report_contents(runs)).encode()}


def _as_pictures(form: PictureForm) -> Callable[[Sequence[SavedRun]], Contents]:
    def pictures(runs: Sequence[SavedRun]) -> Contents:
        charts = all_charts(runs)
        if not charts:
            raise GgbenchError("there is nothing to draw of these runs", "write the report as .html or .md")
        return pictures_of(charts, [one.summary for one in runs], form)

    return pictures


_FORMS: Mapping[str, Callable[[Sequence[SavedRun]], Contents]] = {
    ".html": _as_html,
    ".md": _as_markdown,
    ".csv": csv_of,
    ".svg": _as_pictures("svg"),
    ".png": _as_pictures("png"),
}
ENDINGS = tuple(_FORMS)
"""Of the names of files that a report can be."""


def check_ending(path: Path) -> None:
    """Raise UsageError for a name that says no form."""
    if path.suffix.lower() not in _FORMS:
        what = f"{plain(path.suffix)!r} is not a format of a report" if path.suffix else "the file's name has no ending"
        raise UsageError(what, f"end it in {in_words(ENDINGS[:-1])} or {ENDINGS[-1]}")


def report_files(runs: Sequence[SavedRun], ending: str) -> Contents:
    """Return the report in the form of an ending. Raises GgbenchError without anything to draw, and StoreError."""
    return _FORMS[ending.lower()](runs)


def save_report(runs: Sequence[SavedRun], ending: str, folder: Path) -> tuple[Path, ...]:
    """Write the report in the form of an ending under new names, `ggbench-runs-1-4.html`, and return the paths.

    Raises as `report_files`, and GgbenchError where the folder cannot be written.
    """
    # Names are made of run numbers alone: a model's name is untrusted text.
    numbers = [str(one.run_id) for one in runs]
    stem = f"ggbench-{'run' if len(runs) == 1 else 'runs'}-"
    stem += "-".join(numbers) if len(numbers) <= _NAMED_RUNS else f"{numbers[0]}-and-{len(numbers) - 1}-more"
    contents = report_files(runs, ending)
    return tuple(write_new(folder, f"{stem}{part}", ending, content) for part, content in contents.items())
