"""`ggbench pull`: download files of the Hub, resumable and verified."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, HubOptions, model_arguments, offline_option, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import ExitCode, UsageError
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.hub.download import FileProgress
    from ggbench.models.reference import ModelRef
    from ggbench.models.sources import FoundVariant


def _folder(_ctx: click.Context, _param: click.Parameter, folder: Path | None) -> Path | None:
    """DIR with the home folder in it. Raises UsageError where it is a file."""
    if folder is None:
        return None
    from ggbench.hub.part_file import file_bytes
    from ggbench.paths import expand_path

    folder = expand_path(str(folder))
    if file_bytes(folder) is not None:
        raise UsageError(f"--to {sanitize(str(folder))} is a file", "give a folder; it is created if missing")
    return folder


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench pull qwen2.5-7b q4_k_m
    ggbench pull org/name-GGUF q8_0 --to ~/models
    """,
)
@model_arguments
@option(
    "--to folder",
    "Put the files into this folder. Default: Hugging Face's cache, which llama.cpp and others use too.",
    PATH,
    callback=_folder,
    metavar="DIR",
)
@offline_option
@output_options
def command(ref: ModelRef, folder: Path | None, hub: HubOptions, output: Output) -> None:
    """Download QUANTS of MODEL, a repo org/name of the Hub or a catalog id, and print where they are.

    Of transformers:org/name, a checkpoint of Transformers, config.json and safetensors are downloaded, without a QUANT.

    Ctrl-C, a kill or a lost network keeps what has arrived, and the same command continues. A file gets its name only
    when its SHA-256 is right and it is on the disk. Without QUANTS the repo has to hold a single one. A gated or
    private repo needs `hf auth login` once; ggbench neither asks for a token nor shows one.

    A part is blobs/<sha256>.ggbench.incomplete in the repo's cache folder; `ggbench models --repo` shows how much of it
    is there. `hf cache prune` deletes it, so do not run that during a pull.
    """
    from ggbench.commands.process import DOWNLOAD_INTERRUPTED, interruptible

    access = hub.access()
    with interruptible(output):
        found = _found(ref, access)
    rows = []
    for index, variant in enumerate(found):
        title = f"[{index + 1}/{len(found)}] {variant.repo} {variant.selector}"
        pulled = _pull(title, variant, folder, access, output)
        if pulled is None:
            output.notice(DOWNLOAD_INTERRUPTED)
            raise click.exceptions.Exit(ExitCode.INTERRUPTED)
        output.notice(f"{title}: {_ending([arrival for _, arrival in pulled], folder)}")
        rows.append((variant, pulled))
        if not output.as_json:
            for path, _ in pulled:
                click.echo(path)
    if output.as_json:
        from ggbench.show.model_documents import PULLED, PULLED_QUANT

        output.document(PULLED, rows=[PULLED_QUANT.value(each, files=files) for each, files in rows])


def _found(ref: ModelRef, access: HubAccess) -> tuple[FoundVariant, ...]:
    """What MODEL and QUANTs mean on the Hub. Raises UsageError for what is not to be downloaded."""
    from ggbench.models.catalog import load_catalog
    from ggbench.models.engine_models import engine_models
    from ggbench.models.sources import list_variants
    from ggbench.models.targets import find_published

    if ref.engine:
        return (engine_models(ref.engine).files(ref, access),)
    label = ref.label
    if ref.kind in ("path", "server"):
        kind = "server" if ref.is_server else "path"
        raise UsageError(f"{label} is a {kind}, and pull downloads from the Hub", "name a repo as hf:org/name")
    if ref.kind not in ("hub", "catalog"):
        raise UsageError(
            f"{label} is a twin, and pull downloads what is published",
            f"leave {label.partition(':')[0]}: out; a twin is made where it is measured",
        )
    found = find_published(ref, access, load_catalog(), refresh=True)
    if len(found) > 1 and not ref.quants:
        raise UsageError(
            f"{label} holds {len(found)} quants; name those to download",
            f"there is {list_variants([each.variant for each in found])}",
        )
    for each in found:
        each.require_all_shards()
    return found


def _pull(
    title: str, found: FoundVariant, folder: Path | None, access: HubAccess, output: Output
) -> tuple[tuple[Path, FileProgress], ...] | None:
    """Where the files are at the end, and how each came there; None where the person stopped it."""
    import threading
    from concurrent.futures import CancelledError

    from ggbench.commands.downloads import download_progress
    from ggbench.commands.process import interrupt_sets
    from ggbench.hub.download import FileProgress

    if folder is None and found.paths is not None:
        there = [FileProgress(file, file.n_bytes) for file in found.variant.files]
        return tuple(zip(found.paths, there, strict=True))
    from ggbench.hub.download import download

    cancel = threading.Event()
    arrived: tuple[FileProgress, ...] = ()
    with interrupt_sets(cancel), download_progress(output, title) as on_progress, contextlib.suppress(CancelledError):

        def on_file_progress(files: tuple[FileProgress, ...]) -> None:
            nonlocal arrived
            arrived = files
            on_progress(files)

        paths = download(
            access, found.listing, found.variant, to=folder, on_progress=on_file_progress, cancel=cancel.is_set
        )
        return tuple(zip(paths, arrived, strict=True))
    return None


def _ending(files: Sequence[FileProgress], folder: Path | None) -> str:
    """`4.43 GiB, sha256 verified`, and where it comes from if not from the Hub alone."""
    from ggbench.units import format_bytes

    text = format_bytes(sum(each.file.n_bytes for each in files))
    if all(each.outcome == "already_here" for each in files):
        return f"{text}, already on this disk" + ("" if folder is None else ", sha256 verified")
    if all(each.outcome == "copied" for each in files):
        text += " copied from the cache"
    return f"{text}, sha256 verified"
