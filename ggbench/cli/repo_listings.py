"""`ggbench models --repo` and `--search`: what the Hub has."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from ggbench.cli.options import HubOptions
from ggbench.cli.output import Output
from ggbench.errors import GgbenchError, UsageError
from ggbench.plain import plain

if TYPE_CHECKING:
    from ggbench.hub.access import HubAccess
    from ggbench.hub.repo_records import RepoListing, RepoVariant


def show_repo(repo: str, hub: HubOptions, output: Output) -> None:
    """Every variant of a repo: `org/name` with or without `hf:` and `@revision`, or the address of its page.

    Raises as `list_repo` does.
    """
    from ggbench.catalog.hub_address import parse_address
    from ggbench.catalog.reference import MAIN, HubRef, parse_model
    from ggbench.hub.hf_cache import cached_paths
    from ggbench.hub.listing import list_repo
    from ggbench.report.model_documents import repo_document

    address = parse_address(repo)
    try:
        ref = parse_model(f"hf:{address or repo}" if not repo.lower().startswith("hf:") else repo)
    except UsageError:
        ref = None
    if not isinstance(ref, HubRef) or (ref.quant is not None and address is None):
        raise UsageError(
            f"{plain(repo) or repr(repo)} is not a repo",
            f"write it as org/name; ggbench models --search {plain(shlex.quote(repo))} looks for one",
        )
    access = hub.access()
    listing = list_repo(access, ref.repo, ref.revision)
    paths = {each.name: cached_paths(access, listing, listing.repo, each) for each in listing.variants}
    here = {name: found for name, found in paths.items() if found}
    here_bytes = {each.name: _here_bytes(access, listing, each) for each in listing.variants}
    if output.as_json:
        output.document("models.repo", **repo_document(listing, here, here_bytes))
    else:
        from ggbench.report.terminal.repo_tables import repo_report

        output.show(repo_report(listing, here, here_bytes, width=output.console().width))
        name = ref.repo if ref.revision == MAIN else f"{ref.repo}@{ref.revision}"
        output.notice(plain(f"What each needs, with nothing downloaded: ggbench plan {name}"))


def show_search(text: str, limit: int, hub: HubOptions, output: Output) -> None:
    """Repos with GGUF files that the Hub's search finds. Raises as `search_repos` does."""
    from ggbench.hub.listing import search_repos

    found = search_repos(hub.access(), text, limit)
    if output.as_json:
        output.document("models.search", search=text, rows=found)
        return
    if not found:
        output.notice(plain(f"The Hub finds no GGUF repo for {text!r}; try fewer or other words."))
        return
    from ggbench.report.terminal.repo_tables import search_table

    output.show(search_table(found, width=output.console().width))
    what, repo = ("it", found[0].repo) if len(found) == 1 else ("one of them", "org/name")
    output.notice(plain(f"What is in {what}: ggbench models --repo {repo}"))


def _here_bytes(access: HubAccess, listing: RepoListing, variant: RepoVariant) -> int:
    """What of a variant is in Hugging Face's cache, unfinished parts included."""
    from ggbench.hub.download import needed_bytes

    try:
        return variant.file_bytes - needed_bytes(access, listing, variant)
    except GgbenchError:
        return 0  # a file whose hash is none cannot have been downloaded
