"""`ggbench pull`: download files from the Hub, resumable and verified."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import HubOptions, model_arguments, offline_option, output_options
from ggbench.commands.output import Output
from ggbench.errors import NetworkError, UsageError

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.hub.download import FileProgress
    from ggbench.models.reference import ModelRef
    from ggbench.models.sources import FoundVariant


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench pull qwen2.5-7b q4_k_m
    ggbench pull org/name-GGUF q8_0
    """,
)
@model_arguments
@offline_option
@output_options
def command(ref: ModelRef, hub: HubOptions, output: Output) -> None:
    """Download QUANTS of MODEL, a Hub repo org/name or a catalog id, and print their paths.

    QUANTS may be omitted if the repo has only one.

    An interrupted download keeps what has arrived, and the same command continues it. A file gets its final name only
    after its SHA-256 has been verified. A gated or private repo needs `hf auth login` once; ggbench neither asks for a
    token nor shows one.

    Files go into Hugging Face's cache, which llama.cpp and others use too; HF_HUB_CACHE names another folder. Partial
    files are blobs/<sha256>.ggbench.incomplete there; `ggbench models ORG/NAME` shows how much has arrived. Do not run
    `hf cache prune` during a pull: it deletes them.
    """
    from ggbench.commands.output import interruptible
    from ggbench.show.model_documents import PULLED, pulled_row
    from ggbench.show.words import say
    from ggbench.units import format_bytes

    access = hub.access()
    with interruptible(output):
        found = _found(ref, access)
    rows = []
    for index, variant in enumerate(found):
        title = f"[{index + 1}/{len(found)}] {variant.repo} {variant.selector}"
        pulled = _pull(title, variant, access, output)
        key = "downloaded" if any(arrival.moved_bytes for _, arrival in pulled) else "already_here"
        output.notice(say(f"pull.{key}", title=title, size=format_bytes(variant.variant.file_bytes)))
        rows.append(pulled_row(variant, pulled))
        if not output.as_json:
            for path, _ in pulled:
                click.echo(path)
    if output.as_json:
        output.record(PULLED, {"rows": rows})


def _found(ref: ModelRef, access: HubAccess) -> tuple[FoundVariant, ...]:
    """Find the files of MODEL and QUANTs on the Hub. Raises UsageError for other kinds of MODEL."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.sources import list_variants
    from ggbench.models.targets import find_published

    label = ref.label
    if ref.kind not in ("hub", "catalog"):
        raise UsageError(f"pull downloads GGUF files of the Hub, not {label}", "name a repo: hf:org/name")
    try:
        found = find_published(ref, access, load_catalog(), refresh=True)
    except NetworkError as error:
        raise error.without_twin() from error
    if len(found) > 1 and not ref.quants:
        raise UsageError(
            f"{label} has {len(found)} quants; name those to download",
            f"available: {list_variants([each.variant for each in found])}",
        )
    for each in found:
        each.require_all_shards()
    return found


def _pull(
    title: str, found: FoundVariant, access: HubAccess, output: Output
) -> tuple[tuple[Path, FileProgress], ...]:
    """Download the files, and return their paths and how each was obtained; Ctrl-C ends the command."""
    from ggbench.commands.downloads import downloading
    from ggbench.hub.download import download

    arrived: tuple[FileProgress, ...] = ()
    with downloading(output, title) as (on_progress, cancel):

        def on_file_progress(files: tuple[FileProgress, ...]) -> None:
            nonlocal arrived
            arrived = files
            on_progress(files)

        paths = download(access, found.listing, found.variant, on_progress=on_file_progress, cancel=cancel)
    return tuple(zip(paths, arrived, strict=True))
