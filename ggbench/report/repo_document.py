"""Repos of the Hub as JSON has them: names as in every command, null for unknown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.hub.repo_records import RepoFile, RepoListing, RepoSummary

if TYPE_CHECKING:
    from ggbench.catalog.repo_variants import FoundVariant
    from ggbench.hub.download_progress import FileProgress


def repo_document(
    listing: RepoListing, here: Mapping[str, Sequence[Path]], here_bytes: Mapping[str, int]
) -> dict[str, object]:
    """The fields of a repo's listing; `here` has the local files of what is whole on this disk, by the variant's name,
    and `here_bytes` what is there of any.
    """
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
                "here_bytes": here_bytes.get(variant.name, 0),
            }
            for variant in listing.variants
        ],
        "sidecars": [_file(file) for file in listing.sidecars],
    }


def summary_document(summary: RepoSummary) -> dict[str, object]:
    """A repo that a search found."""
    return asdict(summary)


def pulled_document(found: FoundVariant, pulled: Sequence[tuple[Path, FileProgress]]) -> dict[str, object]:
    """A variant that was downloaded: where each of its files is, and how it came there."""
    return {
        "model": found.repo,
        "quant": found.variant.quant,
        "commit": found.commit,
        "file_bytes": found.variant.file_bytes,
        "files": [
            {
                "path": str(path),
                "n_bytes": arrival.file.n_bytes,
                "sha256": arrival.file.sha256,
                "outcome": arrival.outcome,
                "moved_bytes": arrival.moved_bytes,
            }
            for path, arrival in pulled
        ],
    }


def _file(file: RepoFile) -> dict[str, object]:
    return {"path": file.path, "n_bytes": file.n_bytes, "sha256": file.sha256}
