"""`ggbench export`: stored runs as other tools' files, as samples, or as a bundle for another machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, TOKEN_LIST, TOKENS, option
from ggbench.commands.output import Output
from ggbench.errors import UsageError
from ggbench.units import counted

if TYPE_CHECKING:
    from ggbench.formats.llama_bench_export import ExportedRun, ExportOptions
    from ggbench.runs.store.database import Store
    from ggbench.runs.store.runs import StoredRun


_FORMATS = (
    "llama-bench-json",
    "llama-bench-jsonl",
    "llama-bench-csv",
    "llama-bench-sql",
    "llama-bench-md",
    "csv",
    "json",
)
_STDOUT = Path("-")


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench export 3 4 --format llama-bench-jsonl --build mine -o ours.jsonl
    ggbench export 3 --format csv -o samples.csv
    ggbench export 3 4 --bundle runs.zip
    """,
)
@click.argument("run_ids", metavar="[RUN]...", type=int, nargs=-1)
@option("--model", "Export every run of this MODEL, as it was given then.")
@option(
    "--format form",
    "llama-bench-json, llama-bench-jsonl, llama-bench-csv, llama-bench-sql or llama-bench-md: rows of llama-bench;"
    " csv: every sample; json: whole runs.",
    click.Choice(_FORMATS),
    metavar="FORMAT",
)
@option("-o --output path", "Write to FILE; - is stdout.", PATH, metavar="FILE", default=_STDOUT)
@option("--bundle", "Write the runs with their samples to a ZIP file for `ggbench import`.", PATH, metavar="FILE")
@option("--depths", "Depths of the windows of a decode. Default: 256, 512 and so on.", TOKEN_LIST, metavar="N,N,...")
@option("-n --n-gen", "Tokens of each window.", TOKENS, default=128)
@option("--build", "Write NAME as build_commit. Default: llama.cpp's commit, where the run knows it.", metavar="NAME")
@option("--with-paths", "Keep whole paths and serial numbers of GPUs.", is_flag=True)
@option("--force", "Overwrite files that exist.", is_flag=True)
@option("-q --quiet", "Print no notices.", is_flag=True)
def command(
    run_ids: tuple[int, ...],
    model: str | None,
    form: str | None,
    path: Path,
    bundle: Path | None,
    depths: tuple[int, ...] | None,
    n_gen: int,
    build: str | None,
    with_paths: bool,
    force: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Write stored runs, by their numbers in `ggbench results`, in a format of other tools.

    A decode is a row tg N @ d D for all its steps, and one for each window of 128 tokens at depth 256, 512 and so on; a
    prompt is a row pp N; each has a sample for every repetition. llama.cpp's scripts/compare-llama-bench.py joins them
    with rows that llama-bench wrote for the same file name, threads and load mode (llama-bench -lm mmap). What a run
    does not know is listed.

    --bundle takes runs with all they have to another machine, where `ggbench import` reads them; without folders, names
    of servers and serial numbers of GPUs, which --with-paths keeps.
    """
    from ggbench.cli.named_runs import chosen_runs
    from ggbench.files import check_free, write_as
    from ggbench.formats.importing import SAMPLES, WHOLE
    from ggbench.formats.llama_bench_export import DEPTHS, ExportOptions
    from ggbench.formats.run_document import as_json, bundle_of, samples_csv
    from ggbench.runs.store.database import Store

    output = Output(as_json=False, quiet=quiet)
    if (form is None) == (bundle is None):
        raise UsageError("no format was given" if form is None else "--format and --bundle exclude each other",
                         f"give --bundle FILE, or --format with one of {', '.join(_FORMATS)}")  # fmt: skip
    if bundle is not None and path != _STDOUT:
        raise UsageError("--bundle and -o name two files", "omit -o")
    target = bundle or path
    if target == _STDOUT and bundle is not None:
        raise UsageError("a bundle cannot go to stdout", "give --bundle the name of a file")
    if target != _STDOUT:
        check_free(target, force=force)
    with Store.open() as store:
        output.notice(*store.notices)
        runs = chosen_runs(store, run_ids, model)
        if bundle is not None:
            write_as(bundle, bundle_of(store, runs, with_paths=with_paths), force=force)
            output.notice(f"saved {bundle}: {counted(len(runs), 'run')} for `ggbench import`", *_left_out(with_paths))
            return
        if form == SAMPLES:
            content = samples_csv(store, runs)
        elif form == WHOLE:
            content = as_json(store, runs, with_paths=with_paths)
            output.notice(*_left_out(with_paths))
        else:
            options = ExportOptions(DEPTHS if depths is None else depths, n_gen, build or "", with_paths)
            assert form is not None
            content = _bench_rows(store, runs, form, options, output)
    if target == _STDOUT:
        click.echo(content, nl=False)
    else:
        write_as(target, content.encode(), force=force)
        output.notice(f"saved {target}")


def _bench_rows(store: Store, runs: list[StoredRun], form: str, options: ExportOptions, output: Output) -> str:
    from ggbench.formats.importing import LLAMA_BENCH
    from ggbench.formats.llama_bench_export import export_run
    from ggbench.runs.stored import read_recording, read_run

    exported = [export_run(read_run(store, each), read_recording(store, each), options) for each in runs]
    rows = [row for each in exported for row in each.rows]
    empty = [stored for stored, each in zip(runs, exported, strict=True) if not each.rows]
    if not rows:
        raise UsageError(
            "none of these runs has anything that llama-bench measures",
            "export decodes, prefills or speed runs, or use --bundle",
        )
    output.notice(*(f"run {each.run_id} ({each.kind}) has nothing that llama-bench measures" for each in empty))
    output.notice(*_unknown(exported))
    return LLAMA_BENCH[form](rows)


def _unknown(exported: list[ExportedRun]) -> list[str]:
    """A line for each set of fields that runs do not know."""
    runs: dict[tuple[str, ...], list[str]] = {}
    for each in exported:
        if each.unknown:
            runs.setdefault(each.unknown, []).append(str(each.run_id))
    return [
        f"unknown of run{'s' if len(numbers) > 1 else ''} {', '.join(numbers)}, and written as llama-bench's default: "
        f"{', '.join(names)}"
        for names, numbers in runs.items()
    ]  # fmt: skip


def _left_out(with_paths: bool) -> list[str]:
    return (
        []
        if with_paths
        else ["folders, server names and serial numbers of GPUs were left out; --with-paths keeps them"]
    )
