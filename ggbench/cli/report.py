"""`ggbench report`: stored runs as one HTML file, as pictures, as Markdown or as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.cli.options import PATH, option
from ggbench.cli.output import Output
from ggbench.errors import GgbenchError, UsageError

if TYPE_CHECKING:
    from ggbench.report.saving import SavedRun
    from ggbench.store.database import Store


@click.command()
@click.argument("run_ids", metavar="[RUN]...", type=int, nargs=-1)
@option("--model", "Report every run of this MODEL, as it was given then.")
@option("-o --output path", "Write to FILE; .html, .md, .csv, .svg or .png.", PATH, metavar="FILE", required=True)
@option("--force", "Overwrite files that exist.", is_flag=True)
@option("-q --quiet", "Print no notices.", is_flag=True)
def command(run_ids: tuple[int, ...], model: str | None, path: Path, force: bool, quiet: bool) -> None:
    """Write a report of stored runs, by their numbers in `ggbench results`.

    FILE.html is one file that opens without a network: tables that sort, curves with the value under the pointer,
    bars of W and B beside their limits, memory, quality over speed, and every run in full with the line that measures
    it again. FILE.svg and FILE.png are its charts, further ones beside it as FILE-w.svg and the like.
    """
    from ggbench.report.report_files import check_ending, report_files
    from ggbench.report.saving import check_free, write_all
    from ggbench.store.database import Store

    output = Output(as_json=False, quiet=quiet)
    check_ending(path)
    check_free(path, force=force)
    with Store.open() as store:
        output.notice(*store.notices)
        runs = _of_numbers(store, run_ids) if _is_by_number(run_ids, model) else _of_model(store, model or "", output)
    output.notice(*(f"saved {saved}" for saved in write_all(report_files(runs, path.suffix), path, force=force)))


def _is_by_number(run_ids: tuple[int, ...], model: str | None) -> bool:
    if bool(run_ids) == bool(model):
        raise UsageError(
            "no run was given" if not run_ids else "RUN and --model exclude each other",
            "give numbers of `ggbench results`, or --model MODEL",
        )
    return bool(run_ids)


def _of_numbers(store: Store, run_ids: tuple[int, ...]) -> list[SavedRun]:
    """Raises UnknownName and StoreError."""
    from ggbench.report.saving import SavedRun

    return [SavedRun.stored(store, store.load_run(run_id)) for run_id in dict.fromkeys(run_ids)]


def _of_model(store: Store, model: str, output: Output) -> list[SavedRun]:
    """Oldest first; one that cannot be read is left out with a notice. Raises UsageError without any."""
    from ggbench.report.saving import SavedRun

    found = []
    for stored in store.list_runs(model=model)[::-1]:
        try:
            found.append(SavedRun.stored(store, stored))
        except GgbenchError as error:
            output.notice(f"run {stored.run_id} is left out: {error.message}")
    if not found:
        raise UsageError(f"no run of {model!r} is stored", "`ggbench results` lists the models")
    return found
