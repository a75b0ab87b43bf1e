"""`ggbench report`: stored runs as an HTML page or as CSV."""

from __future__ import annotations

from pathlib import Path

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, quiet_option
from ggbench.commands.output import Output
from ggbench.text import sanitize


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench report 3 4 7 -o report.html
    ggbench report 3 4 --without-paths -o report.csv
    """,
)
@click.argument("run_ids", metavar="RUN...", type=int, nargs=-1, required=True)
@option("-o --output path", "Write to FILE: .html or .csv.", PATH, metavar="FILE", required=True)
@option("--without-paths", "Leave out folders, server names, serial numbers.", is_flag=True)
@option("--force", "Overwrite files that exist.", is_flag=True)
@quiet_option
def command(run_ids: tuple[int, ...], path: Path, without_paths: bool, force: bool, output: Output) -> None:
    """Write a report of stored runs, by their numbers in `ggbench results`.

    FILE.html is a single file that needs no network: the runs side by side as `ggbench compare` sets them, sortable
    tables, curves that show the value under the pointer, quality against speed, and every run in full with the
    command that repeats it. It can be printed. FILE.csv has the table.
    """
    from ggbench.files import check_free, write_as
    from ggbench.formats.report import check_ending, report_text
    from ggbench.runs.comparable import setting_of
    from ggbench.runs.store.database import Store
    from ggbench.show.listed_runs import SavedRun

    check_ending(path)
    check_free(path, force=force)
    with Store.open() as store:
        output.notice(*store.notices)
        runs = [SavedRun.load(store, run_id) for run_id in dict.fromkeys(run_ids)]
    apart = [setting_of(each.run) for each in runs]
    if without_paths:
        from ggbench.show.anonymous import anonymous_run

        runs = [anonymous_run(each) for each in runs]
    write_as(path, report_text(runs, path.suffix, apart), force=force)
    output.notice(f"saved {sanitize(str(path))}")
