"""`ggbench pull`: files of the Hub onto this disk, resumable and verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.cli.hub_options import HubOptions, offline_option
from ggbench.cli.output import Output, output_options
from ggbench.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from ggbench.catalog.repo_variants import FoundVariant
    from ggbench.hub.access import HubAccess


@click.command()
@click.argument("model")
@click.argument("quants", nargs=-1)
@click.option(
    "--to",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Put the files into this folder. Default: Hugging Face's cache, which llama.cpp and others use too.",
)
@click.option("--yes", is_flag=True, help="Taken as elsewhere; to pull is to say yes.")
@offline_option
@output_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    quants: tuple[str, ...],
    folder: Path | None,
    hub: HubOptions,
    output: Output,
) -> None:
    """Download QUANTS of MODEL, a repo org/name of the Hub or a catalog id, and print where they are.

    What was moved before is not moved again: an interrupted download goes on where it was. A file appears under its
    name only when its sha256 is right. Without QUANTS the repo has to hold a single one.
    """
    from ggbench.report.repo_document import pulled_document
    from ggbench.units import format_bytes

    access = hub.access()
    found = _found(model, quants, access)
    rows = []
    for index, variant in enumerate(found):
        title = f"[{index + 1}/{len(found)}] {variant.repo} {variant.selector}"
        paths = _pull(title, variant, folder, access, output)
        if paths is None:
            again = "the same command goes on from there"
            output.notice(f"interrupted; what was moved is kept, and {again}")
            ctx.exit(ExitCode.INTERRUPTED)
        is_old = folder is None and variant.paths is not None
        size = format_bytes(variant.variant.file_bytes)
        output.notice(f"{title}: {size}, {'already on this disk' if is_old else 'sha256 verified'}")
        rows.append(pulled_document(variant, paths))
        if not output.as_json:
            for path in paths:
                click.echo(path)
    if output.as_json:
        output.document("pull", rows=rows)


def _found(model: str, quants: tuple[str, ...], access: HubAccess) -> tuple[FoundVariant, ...]:
    """What MODEL and QUANTs mean on the Hub. Raises UsageError for what is not to be downloaded."""
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.reference import CatalogRef, HubRef, PathRef, model_label, parse_model, wanted_quants
    from ggbench.catalog.repo_variants import list_variants
    from ggbench.catalog.selector import find_published

    ref = parse_model(model)
    label = model_label(model, ref)
    if isinstance(ref, PathRef):
        raise UsageError(f"{label} is a path, and pull downloads from the Hub", "name a repo as hf:org/name")
    if not isinstance(ref, HubRef | CatalogRef):
        raise UsageError(
            f"{label} is a twin, and pull downloads what is published",
            f"leave {label.partition(':')[0]}: out; a twin is made where it is measured",
        )
    found = find_published(ref, wanted_quants(ref, quants), access, load_catalog(), fresh=True)
    if len(found) > 1 and not quants and ref.quant is None:
        raise UsageError(
            f"{label} holds {len(found)} quants; name those to download",
            f"there is {list_variants([each.variant for each in found])}",
        )
    for each in found:
        each.require_all_shards()
    return found


def _pull(
    title: str, found: FoundVariant, folder: Path | None, access: HubAccess, output: Output
) -> tuple[Path, ...] | None:
    """Where the files are at the end; None where the person stopped it."""
    import contextlib
    import threading
    from concurrent.futures import CancelledError

    from ggbench.cli.live import interrupt_sets
    from ggbench.cli.transfer import transfer_progress

    if folder is None and found.paths is not None:
        return found.paths
    from ggbench.hub.download import download

    cancel = threading.Event()
    with interrupt_sets(cancel), transfer_progress(output, title) as on_progress, contextlib.suppress(CancelledError):
        return download(access, found.listing, found.variant, to=folder, on_progress=on_progress, cancel=cancel.is_set)
    return None
