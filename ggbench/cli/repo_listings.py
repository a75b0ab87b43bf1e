"""`ggbench models --repo` and `--search`: what the Hub has."""

from __future__ import annotations

from ggbench.cli.hub_options import HubOptions
from ggbench.cli.output import Output
from ggbench.errors import UsageError
from ggbench.plain import plain


def show_repo(repo: str, hub: HubOptions, output: Output) -> None:
    """Every variant of a repo, `org/name` with or without `hf:` and `@revision`. Raises as `list_repo` does."""
    from ggbench.catalog.reference import HubRef, parse_model
    from ggbench.hub.cached import cached_paths
    from ggbench.hub.listing import list_repo
    from ggbench.report.repo_document import repo_document

    ref = parse_model(repo if repo.lower().startswith("hf:") else f"hf:{repo}")
    if not isinstance(ref, HubRef) or ref.quant is not None:
        raise UsageError(f"{plain(repo)} is not a repo", "write it as org/name")
    access = hub.access()
    listing = list_repo(access, ref.repo, ref.revision)
    paths = {each.name: cached_paths(access, listing, listing.repo, each) for each in listing.variants}
    here = {name: found for name, found in paths.items() if found}
    if output.as_json:
        output.document("models", **repo_document(listing, here))
    else:
        from ggbench.report.terminal.repo_tables import repo_report

        output.show(repo_report(listing, here, width=output.console().width))
        output.notice(plain(f"What each needs, with nothing downloaded: ggbench plan {repo}"))


def show_search(text: str, limit: int, hub: HubOptions, output: Output) -> None:
    """Repos with GGUF files that the Hub's search finds. Raises as `search_repos` does."""
    from ggbench.hub.listing import search_repos
    from ggbench.report.repo_document import summary_document

    found = search_repos(hub.access(), text, limit)
    if output.as_json:
        output.document("models", search=text, rows=[summary_document(each) for each in found])
        return
    if not found:
        output.notice(plain(f"The Hub finds no GGUF repo for {text!r}; try fewer or other words."))
        return
    from ggbench.report.terminal.repo_tables import search_table

    output.show(search_table(found, width=output.console().width))
    output.notice("What is in one of them: ggbench models --repo org/name")
