"""Repos of the Hub as JSON has them: names as in every command, null for unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.hub.records import RepoFile, RepoListing, RepoSummary

if TYPE_CHECKING:
    from ggbench.catalog.repo_variants import FoundVariant


def repo_document(listing: RepoListing, here: Mapping[str, Sequence[Path]]) -> dict[str, object]:
    """The fields of a repo's listing; `here` has the local files of what is on this disk, by the variant's name."""
    return {
        "repo": listing.repo,
        "revision": listing.revision,
        "commit": listing.commit,
        "listed_at": listing.listed_at or None,
        "total_bytes": listing.total_bytes,
        "n_other_files": listing.n_other_files,
        "rows": [
            {
                "model": variant.name,
                "quant": variant.quant,
                "file_bytes": variant.file_bytes,
                "repo_files": [_file(file) for file in variant.files],
                "missing": list(variant.missing),
                "files": [str(path) for path in here.get(variant.name, ())],
            }
            for variant in listing.variants
        ],
        "sidecars": [_file(file) for file in listing.sidecars],
    }


def summary_document(summary: RepoSummary) -> dict[str, object]:
    """A repo that a search found."""
    return asdict(summary)


def pulled_document(found: FoundVariant, paths: Sequence[Path]) -> dict[str, object]:
    """A variant that was downloaded."""
    return {
        "model": found.repo,
        "quant": found.variant.quant,
        "commit": found.commit,
        "file_bytes": found.variant.file_bytes,
        "files": [str(path) for path in paths],
        "sha256": [file.sha256 for file in found.variant.files],
    }


def _file(file: RepoFile) -> dict[str, object]:
    return {"path": file.path, "n_bytes": file.n_bytes, "sha256": file.sha256}
