"""What QUANTs mean in a repo of the Hub: which of its variants, and which of them are on this disk.

What Hugging Face's cache holds answers first, so that a file that was downloaded once needs no network again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ggbench.catalog.quant_choice import choose_by_quant
from ggbench.catalog.reference import MAIN
from ggbench.errors import UsageError
from ggbench.gguf_file.quants import names_quant
from ggbench.hub.repo_records import RepoListing, RepoVariant
from ggbench.hub.variant_grouping import require_all_shards
from ggbench.plain import plain
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.catalog.models import CatalogModel
    from ggbench.hub.access import HubAccess

NO_QUANT = "unknown"
"""What a quant is called that neither the file's name nor its header tells."""


@dataclass(frozen=True, slots=True)
class RepoRequest:
    """Which variants of which repo."""

    repo: str
    revision: str = MAIN
    quants: tuple[str, ...] = ()
    """In lower case; none means every variant."""
    file_pattern: str | None = None
    """Name of a file with `{quant}` in it; other variants are left out."""
    known_quants: tuple[str, ...] = ()
    """What is taken where `quants` is empty; empty takes all."""

    @classmethod
    def of_model(cls, model: CatalogModel, quants: tuple[str, ...]) -> RepoRequest:
        """The variants of the repo of a catalog model, which has one."""
        assert model.repo is not None
        return cls(model.repo, quants=quants, file_pattern=model.file_pattern, known_quants=model.quants)

    def takes(self, variant: RepoVariant) -> bool:
        """Whether the file's name is of the model that is meant."""
        if self.file_pattern is None:
            return True
        pattern = re.escape(self.file_pattern.removesuffix(".gguf")).replace(r"\{quant\}", r"(.+)")
        match = re.fullmatch(pattern, variant.name.rsplit("/", 1)[-1], re.IGNORECASE)
        return match is not None and names_quant(match[1], variant.quant, ())


@dataclass(frozen=True, slots=True)
class FoundVariant:
    """One variant of a repo that was asked for."""

    listing: RepoListing
    """Of the repo; where the cache answered alone, of what it holds."""
    variant: RepoVariant
    paths: tuple[Path, ...] | None = None
    """All its files on this disk, whole; None where any is not."""

    @property
    def repo(self) -> str:
        """`org/name`."""
        return self.listing.repo

    @property
    def commit(self) -> str:
        """Of which the files are."""
        return self.listing.commit

    @property
    def origin(self) -> str:
        """`org/name@0123456789ab`, for what is made of it."""
        return f"{self.repo}@{self.commit[:12]}"

    @property
    def quant(self) -> str:
        """In lower case; `unknown` where no name tells it."""
        return self.variant.quant or NO_QUANT

    @property
    def selector(self) -> str:
        """The QUANT that means this variant and no other of the repo: its quant, else its name."""
        same = [other.name for other in self.listing.variants if other.answers_to(self.quant)]
        return self.quant if same == [self.variant.name] else self.variant.name

    def sizes(self) -> dict[str, int]:
        """Bytes of each whole variant of the repo, by quant."""
        return {other.quant: other.file_bytes for other in self.listing.variants if other.quant and not other.missing}

    def require_all_shards(self) -> None:
        """Raise BadFile, which names the first that is missing, where the repo lacks a shard."""
        require_all_shards(self.repo, self.variant)


def find_variants(
    access: HubAccess, request: RepoRequest, *, refresh: bool = False, local_only: bool = False
) -> tuple[FoundVariant, ...]:
    """The variants that were asked for, in the order of the quants, each once; largest first without any.

    Where the cache holds every quant that was named, nothing is asked of the network; `refresh` asks it all the same
    where there is one. With no network, a request without quants means what was listed before, or with `local_only`,
    and where nothing was, what is on this disk. Raises UnknownName for a quant that the repo lacks, UsageError for one that
    several files answer to, and as `hub.listing.list_repo` does.
    """
    from ggbench.hub.hf_cache import cached_paths
    from ggbench.hub.listing import list_repo

    if access.offline or not refresh:
        here = _from_cache(access, request, local_only=local_only)
        if here:
            return here
    listing = list_repo(access, request.repo, request.revision)
    return tuple(
        FoundVariant(listing, variant, cached_paths(access, listing, listing.repo, variant))
        for variant in choose(listing, request)
    )


def _from_cache(access: HubAccess, request: RepoRequest, *, local_only: bool) -> tuple[FoundVariant, ...]:
    """What Hugging Face's cache holds of it, where that is all that is meant; empty where the repo has to be listed."""
    from ggbench.hub.hf_cache import cached_commit, cached_variants
    from ggbench.hub.listing import cached_listing

    if not request.quants and not access.offline:
        return ()
    kept = cached_listing(access, request.repo, request.revision)
    if not request.quants and kept is not None and not local_only:
        return ()
    commits = {request.revision, kept and kept.commit, cached_commit(access, request.repo, request.revision)}
    cached = [
        each
        for each in cached_variants(access, request.repo)
        if request.takes(each.variant) and (request.revision == MAIN or each.commit in commits)
    ]
    by_commit: dict[str, RepoListing] = {}
    for each in cached:
        before = by_commit.get(each.commit)
        variants = (*before.variants, each.variant) if before else (each.variant,)
        by_commit[each.commit] = RepoListing(request.repo, request.revision, each.commit, variants, (), 0, "")
    if kept is not None and kept.commit in by_commit:
        by_commit[kept.commit] = kept
    found: dict[str, FoundVariant] = {}
    for each in cached:
        found.setdefault(each.variant.name, FoundVariant(by_commit[each.commit], each.variant, each.paths))
    if not request.quants:
        return tuple(found.values())
    chosen: dict[str, FoundVariant] = {}
    for quant in request.quants:
        matches = [each for each in found.values() if each.variant.answers_to(quant)]
        if len(matches) != 1:
            return ()
        chosen[matches[0].variant.name] = matches[0]
    return tuple(chosen.values())


def choose(listing: RepoListing, request: RepoRequest) -> tuple[RepoVariant, ...]:
    """The variants of a listing that were asked for. Raises UnknownName and UsageError as `find_variants` does."""
    variants = [variant for variant in listing.variants if request.takes(variant)]
    if not variants:
        raise UsageError(
            f"no file in {plain(listing.repo)} is named as {request.file_pattern}",
            f"there is {list_variants(listing.variants)}; say which with {plain(listing.repo)} and a file's name",
        )
    if not request.quants:
        known = [variant for variant in variants if variant.quant in request.known_quants]
        return tuple(known or variants)
    return choose_by_quant(request.quants, variants, plain(listing.repo), list_variants)


def list_variants(variants: Sequence[RepoVariant]) -> str:
    """Each quant with its size; names instead where the quants do not tell them apart."""
    distinct = len({variant.quant for variant in variants}) == len(variants)
    return ", ".join(
        f"{variant.quant if distinct and variant.quant else plain(variant.name)} ({format_bytes(variant.file_bytes)})"
        for variant in variants
    )
