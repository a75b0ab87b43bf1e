"""`ggbench report`: stored runs as one HTML file, as pictures, as Markdown or as CSV."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option
from ggbench.commands.output import Output
from ggbench.errors import GgbenchError

if TYPE_CHECKING:
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun
    from ggbench.show.listed_runs import SavedRun


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench report 3 4 7 -o report.html
    ggbench report --model qwen1.5-0.5b -o curves.png
    ggbench report 3 4 --without-paths -o report.md
    """,
)
@click.argument("run_ids", metavar="[RUN]...", type=int, nargs=-1)
@option("--model", "Report every run of this MODEL, as it was given then.")
@option("-o --output path", "Write to FILE; .html, .md, .csv, .svg or .png.", PATH, metavar="FILE", required=True)
@option("--without-paths", "Leave out folders, server names and serial numbers of GPUs.", is_flag=True)
@option("--force", "Overwrite files that exist.", is_flag=True)
@option("-q --quiet", "Print no notices.", is_flag=True)
def command(
    run_ids: tuple[int, ...], model: str | None, path: Path, without_paths: bool, force: bool, quiet: bool
) -> None:
    """Write a report of stored runs, by their numbers in `ggbench results`.

    FILE.html is one file that opens without a network: tables that sort, curves with the value under the pointer,
    bars of W and B beside their limits, memory, quality over speed, the probes of a search, and every run in full with
    the line that measures it again. It prints on paper, too. FILE.svg and FILE.png are its charts, further ones beside
    it as FILE-w.svg and the like; FILE.md its tables; FILE.csv its figures, with every sample in FILE-samples.csv.
    """
    from ggbench.cli.named_runs import chosen_runs
    from ggbench.files import check_free
    from ggbench.formats.report import check_ending, report_files, write_all
    from ggbench.runs.store.database import Store
    from ggbench.show.listed_runs import SavedRun

    output = Output(as_json=False, quiet=quiet)
    check_ending(path)
    check_free(path, force=force)
    with Store.open() as store:
        output.notice(*store.notices)
        chosen = chosen_runs(store, run_ids, model)
        runs = [SavedRun.stored(store, each) for each in chosen] if run_ids else _readable(store, chosen, output)
    if without_paths:
        from ggbench.show.anonymous import anonymous_run

        runs = [anonymous_run(each) for each in runs]
    output.notice(*(f"saved {saved}" for saved in write_all(report_files(runs, path.suffix), path, force=force)))


def _readable(store: Store, runs: list[StoredRun], output: Output) -> list[SavedRun]:
    """The runs that this ggbench can read; each other one is left out with a notice. Raises StoreError for the last."""
    from ggbench.show.listed_runs import SavedRun

    found, failed = [], None
    for stored in runs:
        try:
            found.append(SavedRun.stored(store, stored))
        except GgbenchError as error:
            failed = error
            output.notice(f"run {stored.run_id} is left out: {error.message}")
    if not found and failed is not None:
        raise failed
    return found
