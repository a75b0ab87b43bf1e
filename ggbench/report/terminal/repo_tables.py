"""What a repo of the Hub holds, and what a search found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table

from ggbench.hub.repo_records import RepoListing, RepoSummary, RepoVariant
from ggbench.plain import plain
from ggbench.report.columns import UNKNOWN
from ggbench.report.terminal.fitted import fitted_table, left, names, notes, right
from ggbench.report.terminal.layout import facts_table
from ggbench.units import format_bytes, format_count, format_percent


def repo_report(
    listing: RepoListing, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int], *, width: int
) -> RenderableType:
    """The repo's facts and a line for each variant; `here` has what is whole on this disk, by the variant's name, and
    `here_bytes` what is there of any.
    """
    variants = listing.variants
    sidecars = [f"{file.name} ({format_bytes(file.n_bytes)})" for file in listing.sidecars]
    commit = listing.commit if listing.revision == listing.commit else f"{listing.commit} ({listing.revision})"
    facts = [
        ("commit", commit),
        ("listed", listing.listed_at),
        ("in all", f"{format_bytes(listing.total_bytes)} in {len(variants)} variant{'s' if len(variants) > 1 else ''}"),
        ("sidecars", ", ".join(sidecars)),
        ("other files", format_count(listing.n_other_files)),
    ]
    table = fitted_table(
        [
            names("quant", (each.quant or UNKNOWN for each in variants)),
            right("size", (format_bytes(each.file_bytes) for each in variants)),
            right("files", (format_count(len(each.files)) for each in variants), priority=2),
            left("here", (_here(each, here, here_bytes) for each in variants), priority=1),
            names("name", (each.name for each in variants), 3),
            notes(_missing(each.missing) for each in variants),
        ],
        labels=[plain(each.quant or each.name) for each in variants],
        dim=[bool(each.missing) for each in variants],
        width=width,
    )
    return Group(Padding(facts_table(listing.repo, facts), (0, 0, 1, 0)), table)


def search_table(found: Iterable[RepoSummary], *, width: int) -> Table:
    """The repos that a search found, in the Hub's order."""
    found = tuple(found)
    return fitted_table(
        [
            names("repo", (each.repo for each in found)),
            right("downloads", (format_count(each.downloads) for each in found), "30 days", 1),
            right("likes", (format_count(each.likes) for each in found), priority=3),
            left("changed", ((each.last_modified or UNKNOWN)[:10] for each in found), priority=2),
            left("gated", ("yes" if each.gated else "" for each in found), priority=1),
        ],
        dim=[each.gated for each in found],
        width=width,
    )


def _here(variant: RepoVariant, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int]) -> str:
    """`yes`, `13 %`, or nothing."""
    if variant.name in here:
        return "yes"
    n_bytes = here_bytes.get(variant.name, 0)
    return format_percent(min(0.99, n_bytes / variant.file_bytes)) if n_bytes else ""


def _missing(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return f"missing: {paths[0]}{more}" if paths else ""
