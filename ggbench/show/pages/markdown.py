"""A report as Markdown: tables and sentences, and the lines that measure everything again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ggbench import __version__
from ggbench.decisions.compare.show import sentence_of
from ggbench.show.contents import ReportedModel
from ggbench.show.presenter import presenter_of
from ggbench.show.provenance import machine_text, reproducing
from ggbench.show.saving import SavedRun
from ggbench.show.text import markdown_code, markdown_escaped, rows_as_markdown
from ggbench.units import counted


def report_markdown(models: Sequence[ReportedModel]) -> str:
    """Return the report. Raises StoreError for a run of a kind that this ggbench does not have."""
    n_runs = sum(len(model.runs) for model in models)
    parts = ["# ggbench report", f"{counted(n_runs, 'run')}, written by ggbench {__version__}."]
    for model in models:
        parts.append(f"## {markdown_escaped(model.title)}")
        if model.comparison is not None:
            parts.append(markdown_escaped(sentence_of(model.comparison)))
        parts.append(rows_as_markdown(model.summaries, model.columns).rstrip("\n"))
        parts += [_run(one, name) for one, name in zip(model.runs, model.names, strict=True)]
    return "\n\n".join(parts) + "\n"


def _run(one: SavedRun, name: str) -> str:
    """What a run found, where it was measured, and the line that measures it again."""
    return "\n".join(_lines(one, name))


def _lines(one: SavedRun, name: str) -> Iterator[str]:
    run = one.summary.run
    ending = presenter_of(run.head.kind).ending(run)
    yield f"- run {one.run_id}, {markdown_escaped(run.head.kind)}, {markdown_escaped(f'{name}: {ending}')}"
    if machine := machine_text(run.head.environment):
        yield f"  - {markdown_escaped(machine)}"
    if run.head.started_at:
        yield f"  - {markdown_escaped(run.head.started_at)}"
    yield f"  - {markdown_code(reproducing(run))}"
