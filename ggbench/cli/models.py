"""`ggbench models`: models in the catalog, on this disk and on the Hub."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ggbench.commands.documented import DocumentedCommand
from ggbench.commands.options import HubOptions, offline_option, option, output_options
from ggbench.commands.output import Output
from ggbench.errors import UsageError
from ggbench.paths import expand_path
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.models.reference import ModelRef


@click.command(
    cls=DocumentedCommand,
    examples="""
    ggbench models qwen3.6
    ggbench models ~/gguf
    ggbench models Qwen/Qwen2.5-7B-Instruct-GGUF
    """,
)
@click.argument("words", nargs=-1, metavar="[WORD... | FOLDER | ORG/NAME]")
@option("--search", "Search the Hub for GGUF repos.", metavar="TEXT")
@offline_option
@output_options
def command(words: tuple[str, ...], search: str | None, hub: HubOptions, output: Output) -> None:
    """List the GGUF files on this disk, and the models of the catalog.

    With WORDs, list only names that contain all of them; with a FOLDER, e.g. ~/gguf, the files in and below it; with
    ORG/NAME, also org/name@revision, those of a Hub repo.

    ~/models and the folders of Hugging Face, llama.cpp, LM Studio, Ollama and ggbench's twins are searched; each file
    is listed with the MODEL and QUANT that select it. To add models to the catalog, or override some, write a
    models.toml in the config folder (~/.config/ggbench on Linux), in the format explained in ggbench's own
    models.toml. It overrides the shipped catalog model by model and key by key.
    """
    from ggbench.models.reference import looks_like_path

    if words and search is not None:
        raise click.UsageError("--search excludes names; give one of them")
    name = words[0] if len(words) == 1 else ""
    if search is not None:
        _show_search(search, hub.access(), output)
    elif looks_like_path(name) or ("/" in name and expand_path(name).is_dir()):
        _list_folder(expand_path(name), output)
    elif "/" in name:
        _show_repo(name, hub.access(), output)
    else:
        _list_all(words, output)


def _list_all(words: Sequence[str], output: Output) -> None:
    from ggbench.models.catalog import load_catalog
    from ggbench.models.disk import find_local_models
    from ggbench.show.model_documents import MODELS
    from ggbench.show.models import catalog_rows, matching_answer, models_answer

    on_disk = find_local_models()
    rows = catalog_rows(load_catalog())
    rows = tuple(row for row in rows if _matches(words, row.id, row.title))
    found = tuple(each for each in on_disk if _matches(words, each.name, each.model))
    answer = matching_answer(" ".join(words), rows, found) if words else models_answer(rows, found)
    output.either(MODELS, {"rows": rows, "files": found}, answer)


def _matches(words: Sequence[str], *names: str) -> bool:
    from ggbench.models.catalog import pattern_of, squeezed

    return all(pattern_of(squeezed(word)).search(squeezed("/".join(names))) for word in words)


def _list_folder(folder: Path, output: Output) -> None:
    from ggbench.models.disk import models_in_place
    from ggbench.show.model_documents import MODELS
    from ggbench.show.models import folder_answer

    found = models_in_place(folder)
    output.either(MODELS, {"rows": [], "files": found}, folder_answer(folder, found))


def _show_repo(repo: str, access: HubAccess, output: Output) -> None:
    """Show every variant of a repo."""
    from ggbench.hub.download import needed_bytes
    from ggbench.hub.listing import list_repo
    from ggbench.hub.repo_records import cached_paths
    from ggbench.models.reference import MAIN
    from ggbench.show.model_documents import REPO, listed_repo
    from ggbench.show.models import VariantRow, repo_answer

    ref = _repo_ref(repo)
    listing = list_repo(access, ref.name, ref.revision)
    rows = tuple(
        VariantRow(
            each,
            cached_paths(access, listing, each) or (),
            each.file_bytes - needed_bytes(access, listing, each),
        )
        for each in listing.variants
    )
    name = ref.name if ref.revision == MAIN else f"{ref.name}@{ref.revision}"
    output.either(REPO, listed_repo(listing, rows), repo_answer(listing, rows, name))


def _repo_ref(repo: str) -> ModelRef:
    """Parse `org/name` with or without `hf:` and `@revision`, or the URL of its page. Raises UsageError."""
    from ggbench.models.reference import parse_address, parse_model

    address = parse_address(repo)
    with contextlib.suppress(UsageError):
        ref = parse_model(f"hf:{address or repo.removeprefix('hf:')}")
        if ref.kind == "hub" and (address is not None or not ref.quants):
            return ref
    raise UsageError(
        f"{sanitize(repo) or repr(repo)} is not a repo",
        f"write it as org/name; ggbench models --search {sanitize(shlex.quote(repo))} searches for one",
    )


def _show_search(text: str, access: HubAccess, output: Output) -> None:
    from ggbench.hub.listing import search_repos
    from ggbench.show.model_documents import SEARCH
    from ggbench.show.models import search_answer

    found = search_repos(access, text)
    output.either(SEARCH, {"search": text, "rows": found}, search_answer(text, found))
