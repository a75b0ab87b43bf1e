"""`ggbench models`: models in the catalog, on this disk and on the Hub."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import PATH, HubOptions, offline_option, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import BadFile, GgbenchError, UsageError
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.hub.repo_records import RepoListing, RepoVariant
    from ggbench.models.disk import LocalModel


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench models
    ggbench models --dir ~/models
    ggbench models --search qwen2.5 --limit 20
    ggbench models --repo Qwen/Qwen2.5-7B-Instruct-GGUF
    """,
)
@option("--dir folder", "List only the GGUF files in and below this folder.", PATH, metavar="DIR")
@option(
    "--verify blob",
    "Verify a file in Hugging Face's or Ollama's cache against the SHA-256 in its name.",
    PATH,
    metavar="FILE",
)
@option("--repo", "List the files of a Hub repo, e.g. org/name or org/name@revision.", metavar="ORG/NAME")
@option("--search words", "Search the Hub for GGUF repos.", metavar="TEXT")
@option("--limit", "Show at most N repos of a search. Default: 20.", click.IntRange(1, 1000), metavar="N")
@offline_option
@output_options
def command(
    folder: Path | None,
    blob: Path | None,
    repo: str | None,
    words: str | None,
    limit: int | None,
    hub: HubOptions,
    output: Output,
) -> None:
    """List the models of the catalog, then the GGUF files on this disk.

    The folders of Hugging Face, llama.cpp, LM Studio, Ollama and ggbench's twins are searched; each file is listed with
    the MODEL and QUANT that select it. To add models to the catalog, or override some, write a models.toml in the
    config folder (~/.config/ggbench on Linux), in the format explained in ggbench's own models.toml.
    """
    asked = {"--dir": folder, "--verify": blob, "--repo": repo, "--search": words}
    questions = [name for name, value in asked.items() if value is not None]
    if len(questions) > 1:
        raise click.UsageError(f"{' and '.join(questions)} exclude each other; give one of them")
    if limit is not None and words is None:
        raise click.UsageError("--limit requires --search")
    if repo is not None:
        _show_repo(repo, hub.access(), output)
    elif words is not None:
        _show_search(words, limit or 20, hub.access(), output)
    elif blob is not None:
        _verify(blob, output)
    elif folder is not None:
        _list_folder(folder, output)
    else:
        _list_all(output)


def _list_all(output: Output) -> None:
    from ggbench.models.catalog import load_catalog
    from ggbench.models.disk import find_local_models, twins_by_model

    catalog = load_catalog()
    found = find_local_models()
    twins = twins_by_model(found)
    if output.as_json:
        from ggbench.show.model_documents import CATALOG_MODEL, MODELS

        rows = [CATALOG_MODEL.value(model, twins=twins.get(model.id, ())) for model in catalog]
        output.document(MODELS, rows=rows, files=found)
        return
    from ggbench.show.models import catalog_table

    output.show(catalog_table(catalog, twins, width=output.console().width))
    if found:
        output.show("")
        _show_models(found, output)
    else:
        output.notice("Hugging Face, llama.cpp, LM Studio and Ollama have no GGUF file here; list a folder with --dir")
    output.notice("Measure a twin of any model in the catalog with: ggbench bench twin:<id>")


def _list_folder(folder: Path, output: Output) -> None:
    from ggbench.models.disk import models_in_place

    found = models_in_place(folder)
    if output.as_json:
        from ggbench.show.model_documents import MODELS_IN_FOLDER

        output.document(MODELS_IN_FOLDER, rows=found)
    elif found:
        _show_models(found, output)
    else:
        output.notice("No GGUF model in this folder or below it")


def _show_models(found: Sequence[LocalModel], output: Output) -> None:
    from ggbench.show.models import local_models_listing, local_models_total

    console = output.console()
    console.print(local_models_listing(found, width=console.width), soft_wrap=True)
    output.notice(f"{local_models_total(found)}. Measure one with: ggbench bench MODEL QUANT; a path needs no QUANT")


def _verify(blob: Path, output: Output) -> None:
    from ggbench.hub.repo_records import verify_blob

    with output.byte_progress(f"hashing {sanitize(blob.name)}") as on_progress:
        verified = verify_blob(blob, on_progress)
    if output.as_json:
        from ggbench.show.model_documents import VERIFIED

        output.document(VERIFIED, verified)
    name = sanitize(str(blob))
    if verified.matches is None:
        raise UsageError(
            f"the name of {name} has no SHA-256 to verify against",
            f"its sha256 is {verified.sha256_found}; compare it with the one on the file's page",
        )
    if not verified.matches:
        raise BadFile(
            f"{name} is damaged: its sha256 is {verified.sha256_found}, not {verified.sha256_expected} as in its name",
            "delete it and download it again",
        )
    if not output.as_json:
        click.echo(f"{name} is intact: sha256 {verified.sha256_found}")


def _show_repo(repo: str, access: HubAccess, output: Output) -> None:
    """Show every variant of a repo: `org/name` with or without `hf:` and `@revision`, or the URL of its page."""
    from ggbench.hub.listing import list_repo
    from ggbench.hub.repo_records import cached_paths
    from ggbench.models.reference import MAIN, parse_address, parse_model

    address = parse_address(repo)
    try:
        ref = parse_model(f"hf:{address or repo}" if not repo.lower().startswith("hf:") else repo)
    except UsageError:
        ref = None
    if ref is None or ref.kind != "hub" or (ref.quants and address is None):
        raise UsageError(
            f"{sanitize(repo) or repr(repo)} is not a repo",
            f"write it as org/name; ggbench models --search {sanitize(shlex.quote(repo))} searches for one",
        )
    listing = list_repo(access, ref.name, ref.revision)
    here = {each.name: found for each in listing.variants if (found := cached_paths(access, listing, each))}
    here_bytes = {each.name: _here_bytes(access, listing, each) for each in listing.variants}
    if output.as_json:
        from ggbench.show.model_documents import REPO, REPO_VARIANT

        rows = [
            REPO_VARIANT.value(each, files=here.get(each.name, ()), here_bytes=here_bytes[each.name])
            for each in listing.variants
        ]
        output.document(REPO, listing, rows=rows)
    else:
        from ggbench.show.models import repo_report

        output.show(repo_report(listing, here, here_bytes, width=output.console().width))
        name = ref.name if ref.revision == MAIN else f"{ref.name}@{ref.revision}"
        output.notice(sanitize(f"To see the memory each needs, without a download: ggbench plan {name}"))


def _show_search(text: str, limit: int, access: HubAccess, output: Output) -> None:
    from ggbench.hub.listing import search_repos

    found = search_repos(access, text, limit)
    if output.as_json:
        from ggbench.show.model_documents import SEARCH

        output.document(SEARCH, search=text, rows=found)
        return
    if not found:
        output.notice(sanitize(f"The Hub has no GGUF repo matching {text!r}; try fewer or other words."))
        return
    from ggbench.show.models import search_table

    output.show(search_table(found, width=output.console().width))
    repo = found[0].repo if len(found) == 1 else "org/name"
    output.notice(sanitize(f"List a repo's files with: ggbench models --repo {repo}"))


def _here_bytes(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> int:
    """Return how many bytes of a variant are in Hugging Face's cache, including partial files."""
    from ggbench.hub.download import needed_bytes

    try:
        return variant.file_bytes - needed_bytes(access, listing, variant)
    except GgbenchError:
        return 0  # without a valid hash it cannot have been downloaded
