"""`ggbench export` and `ggbench import`: runs as files of other tools, as samples, or whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, option, output_options, quiet_option
from ggbench.commands.output import Output
from ggbench.errors import UsageError
from ggbench.text import sanitize
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.formats.llama_bench import BenchRow
    from ggbench.models.published.benches import BenchedRow
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun


_FORMATS = ("llama-bench", "row", "csv", "json")
_STDOUT = Path("-")


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench export 3 --format row
    ggbench export 3 --format csv -o samples.csv
    ggbench export 3 4 --format json -o runs.json
    """,
)
@click.argument("run_ids", metavar="RUN...", type=int, nargs=-1, required=True)
@option(
    "--format form",
    "llama-bench, row, csv or json. llama-bench: its rows, as JSON; row: the line to publish; csv: every sample; json:"
    " whole runs for `ggbench import`.",
    click.Choice(_FORMATS),
    metavar="FORMAT",
    default=_FORMATS[0],
)
@option("-o --output path", "Write to FILE; - is stdout.", PATH, metavar="FILE", default=_STDOUT)
@option("--force", "Overwrite files that exist.", is_flag=True)
@quiet_option
def command(run_ids: tuple[int, ...], form: str, path: Path, force: bool, output: Output) -> None:
    """Write stored runs, by their numbers in `ggbench results`, in formats of other tools. Default: llama-bench's JSON.

    llama.cpp's scripts/compare-llama-bench.py joins the rows with llama-bench's own; --format json writes complete runs
    for `ggbench import` on another machine.

    A decode becomes one row tg N @ d D for all steps and one per 128-token window at depth 256, 512, ...; a prompt
    becomes a row pp N. Each row has one sample per repetition. They are joined by file name, threads and load mode
    (llama-bench -lm mmap). Fields unknown to a run get llama-bench's default and are listed on stderr.

    --format row prints the longest decode of a run, else its prompts, as a row of `ggbench published`: device, backend,
    build, model, quant, depth, tok/s and its deviation. Nothing is sent; the repository has an issue form for it.

    Folders, server names and serial numbers of GPUs are left out.
    """
    from ggbench.files import check_free, write_as
    from ggbench.formats.run_document import as_json, samples_csv
    from ggbench.runs.store.database import Store

    if path != _STDOUT:
        check_free(path, force=force)
    elif force:
        raise UsageError("--force overwrites the file of -o", "add -o FILE, or omit --force")
    with Store.open() as store:
        output.notice(*store.notices)
        runs = [store.load_run(run_id) for run_id in dict.fromkeys(run_ids)]
        if form == "csv":
            pieces = samples_csv(store, runs)
        elif form == "json":
            pieces = as_json(store, runs)
        else:
            pieces = iter([_bench_rows(store, runs, output, form)])
        if path == _STDOUT:
            for piece in pieces:
                click.echo(piece, nl=False)
        else:
            write_as(path, (piece.encode() for piece in pieces), force=force)
            output.notice(f"saved {counted(len(runs), 'run')} in {sanitize(str(path))}")


def _bench_rows(store: Store, runs: list[StoredRun], output: Output, form: str) -> str:
    from ggbench.formats.llama_bench import as_json
    from ggbench.formats.llama_bench_export import export_run
    from ggbench.formats.published_rows import rows_to_publish
    from ggbench.models.published.benches import benches_csv
    from ggbench.runs.stored import read_recording, read_run

    rows: list[BenchRow] = []
    published: list[BenchedRow] = []
    unknown: dict[str, None] = {}
    for stored in runs:
        run = read_run(store, stored)
        exported = export_run(run, read_recording(store, stored))
        if not exported.rows:
            output.notice(f"run {stored.run_id} ({stored.kind}) contains no llama-bench test")
        elif form == "row":
            published += rows_to_publish(run, exported.rows)
            if run.unsteady:
                output.notice(f"run {stored.run_id} was disturbed: measure it again before you publish it")
        rows += exported.rows
        unknown |= dict.fromkeys(exported.unknown)
    if not rows:
        raise UsageError(
            "none of these runs contains a llama-bench test",
            "export decode, prefill or speed runs, or use --format json",
        )
    if form == "row":
        return benches_csv(published)
    if unknown:
        output.notice(f"unknown of some rows, written as llama-bench's default: {', '.join(unknown)}")
    return as_json(rows)


@click.command(
    "import",
    cls=DocumentedCommand,
    examples="""
    ggbench import runs.json
    ggbench import bench.json
    llama-bench -m model.gguf -lm mmap -d 0,4096 -r 5 -o json | ggbench import -
    """,
)
@click.argument("paths", metavar="FILE...", type=PATH, nargs=-1, required=True)
@output_options
def import_command(paths: tuple[Path, ...], output: Output) -> None:
    """Store results of llama-bench (JSON, JSON lines), and whole runs of `ggbench export --format json`.

    The format is recognized from the content; - is stdin. Imported runs are marked as such, and never count as measured
    on this machine.

    A run that is already stored is not stored again. W and B are fitted over llama-bench's depths (interval: three or
    more timings), where a machine that slows down looks like context; memory, percentiles and steadiness are unknown.
    """
    from ggbench.formats.importing import IMPORTED, imported_answer, imported_rows, keep, read_runs
    from ggbench.runs.store.database import Store

    runs = [run for path in paths for run in read_runs(path)]  # all of them before storing any
    with Store.open() as store:
        output.notice(*store.notices)
        kept = keep(store, runs)
    output.either(IMPORTED, imported_rows(kept), imported_answer(kept))
