"""Resolve QUANTs in a Hub repo, first in Hugging Face's cache: a downloaded file needs no network. Also twins."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from ggbench import paths
from ggbench.engines.contract import EngineConfig
from ggbench.errors import UnknownName, UsageError
from ggbench.gguf_file.header import read_model_file
from ggbench.gguf_file.model_file import ModelFile
from ggbench.gguf_file.quants import MIXTURE, canonical_quant, known_quants, plain_quant, quant_label, role
from ggbench.gguf_file.twin import cached_twin, plan_twin, scaled, twin_of, write_cached
from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import (
    RepoListing,
    RepoVariant,
    cached_paths,
    recorded_commit,
    repo_folder,
    snapshots,
)
from ggbench.models.catalog import CatalogModel
from ggbench.models.local_files import variants_in
from ggbench.models.reference import MAIN
from ggbench.record import Record
from ggbench.text import sanitize
from ggbench.units import format_bytes

if TYPE_CHECKING:
    from ggbench.hub.download import FileProgress


_Variant = TypeVar("_Variant", bound=RepoVariant)
NO_QUANT = "unknown"
"""Label of a quant that neither the file name nor the header states."""
OnProgress = Callable[[int, int], None]
"""Receives the bytes present and the total; may raise to cancel."""


class RepoRequest(Record):
    repo: str
    revision: str = MAIN
    quants: tuple[str, ...] = ()
    """Lower case; empty means every variant."""
    file_pattern: str | None = None
    """File name with `{quant}` as a placeholder; other variants are excluded."""

    def takes(self, variant: RepoVariant) -> bool:
        if self.file_pattern is None:
            return True
        pattern = re.escape(self.file_pattern.removesuffix(".gguf")).replace(r"\{quant\}", r"(.+)")
        match = re.fullmatch(pattern, variant.stem, re.IGNORECASE)
        return match is not None and canonical_quant(match[1]) == variant.quant


class ModelSource(Record):
    """How to obtain a target's model, and how to load it."""

    @property
    def download_bytes(self) -> int:
        return 0

    @property
    def words(self) -> tuple[str, ...]:
        """MODEL and QUANT that select it from any folder; empty if they are its target's."""
        return ()

    def header(self) -> ModelFile:
        """Return the model that would be loaded. Raises GgbenchError."""
        raise NotImplementedError

    def setup(self, given: EngineConfig) -> EngineConfig:
        """Return the config to load it with, given the user's. Raises Unsupported."""
        return given

    def check_runs(self) -> None:
        """Raise EngineFailed if this machine lacks a package to run it."""

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Make or download it, and return it with its path. Raises GgbenchError."""
        raise NotImplementedError


class FoundVariant(ModelSource):
    """One requested variant of a repo."""

    access: HubAccess
    listing: RepoListing
    """The repo's files; only the cached files if the Hub was not asked."""
    variant: RepoVariant
    paths: tuple[Path, ...] | None = None
    """All its files on this disk, complete; None if any is missing."""

    @property
    def repo(self) -> str:
        return self.listing.repo

    @property
    def commit(self) -> str:
        return self.listing.commit

    @property
    def origin(self) -> str:
        """`org/name@0123456789ab`, recorded in twins made from it."""
        return f"{self.repo}@{self.commit[:12]}"

    @property
    def quant(self) -> str:
        return self.variant.quant or NO_QUANT

    @property
    def selector(self) -> str:
        """QUANT argument that selects only this variant of the repo."""
        return selector_in(self.listing.variants, self.variant)

    def require_all_shards(self) -> None:
        """Raise BadFile, naming the first missing shard, if the variant is incomplete."""
        self.variant.require_all_shards(self.repo)

    @property
    def download_bytes(self) -> int:
        """Size of the files not yet downloaded; 0 if the repo lacks a shard."""
        from ggbench.hub.download import needed_bytes

        return 0 if self.variant.missing else needed_bytes(self.access, self.listing, self.variant)

    def header(self) -> ModelFile:
        """Return the header, from this disk or by range from the Hub, cached. Raises NetworkError, BadFile."""
        self.require_all_shards()
        here = self.paths or cached_paths(self.access, self.listing, self.variant)
        if here:
            return read_model_file(here[0])
        from ggbench.hub.headers import read_variant_header

        return read_variant_header(self.access, self.listing, self.variant)

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        """Download missing files into Hugging Face's cache. Raises like `download`."""
        return read_model_file(download_first(self.access, self.listing, self.variant, on_progress))


def download_first(
    access: HubAccess, listing: RepoListing, variant: RepoVariant, on_progress: OnProgress | None
) -> Path:
    """Download a variant into Hugging Face's cache, and return its first file. Raises like `download`."""
    from ggbench.hub.download import download, summed

    def on_files(files: tuple[FileProgress, ...]) -> None:
        if on_progress is not None:
            on_progress(*summed(files)[:2])

    return download(access, listing, variant, on_progress=on_files)[0]


def find_variants(
    access: HubAccess, request: RepoRequest, *, refresh: bool = False, local_only: bool = False
) -> tuple[FoundVariant, ...]:
    """Return the requested variants in the order of the quants, without duplicates; largest first without quants.

    If the cache has every named quant, the Hub is not asked, unless `refresh`. Offline, a request without quants
    returns the cached listing or, with `local_only` or without a cached listing, the local variants. Raises UnknownName
    for a quant missing in the repo, UsageError for one that several files match, and like `hub.listing.list_repo`.
    """
    if access.offline or not refresh:
        here = _from_cache(access, request, local_only=local_only)
        if here:
            return here
    from ggbench.hub.listing import list_repo

    listing = list_repo(access, request.repo, request.revision)
    try:
        chosen = choose(listing, request)
    except UsageError:
        listing = _by_headers(access, listing)
        chosen = choose(listing, request)
    return tuple(
        FoundVariant(access, listing, variant, cached_paths(access, listing, variant)) for variant in chosen
    )


def _by_headers(access: HubAccess, listing: RepoListing) -> RepoListing:
    """Return a listing in which the headers say what those variants are that their names leave open: without a quant,
    or with that of another.
    """
    from ggbench.hub.headers import read_headers

    times = Counter(each.quant for each in listing.models)
    unclear = [each for each in listing.models if each.quant is None or times[each.quant] > 1]
    reads = zip(unclear, read_headers(access, listing, unclear), strict=True)
    known = {each.name: _as_read(each, file) for each, file in reads if isinstance(file, ModelFile)}
    return replace(listing, variants=tuple(known.get(each.name, each) for each in listing.variants))


def _as_read(variant: RepoVariant, file: ModelFile) -> RepoVariant:
    path = variant.files[0].path
    return replace(
        variant, quant=quant_label(path, file.metadata), role=role(path, file.metadata, file.tensors)
    )


def _from_cache(access: HubAccess, request: RepoRequest, *, local_only: bool) -> tuple[FoundVariant, ...]:
    """Return the variants from Hugging Face's cache, each at the newest commit that has it, `main` first.

    Empty if the cache lacks some and the repo must be listed.
    """
    if not request.quants and not access.offline:
        return ()
    from ggbench.hub.listing import cached_listing

    kept = cached_listing(access, request.repo, request.revision)
    if not request.quants and kept is not None and not local_only:
        return ()
    found = _cached_variants(access, request, kept)
    largest_first = sorted(found.values(), key=lambda each: -each.variant.file_bytes)
    if not request.quants:
        return tuple(each for each in largest_first if each.variant.role == "model")
    try:
        chosen = choose_by_quant(request.quants, [each.variant for each in largest_first], "")
    except UsageError:
        return ()
    return tuple(found[variant.name] for variant in chosen)


def _cached_variants(
    access: HubAccess, request: RepoRequest, kept: RepoListing | None
) -> dict[str, FoundVariant]:
    """Return the complete variants in Hugging Face's cache, by name; `kept` is the cached listing."""
    folder = repo_folder(access, request.repo)
    commits = {request.revision, kept and kept.commit, recorded_commit(folder, request.revision)}
    found: dict[str, FoundVariant] = {}
    for snapshot in snapshots(folder, recorded_commit(folder, MAIN)):
        if request.revision != MAIN and snapshot.name not in commits:
            continue
        with contextlib.suppress(OSError):
            cached = tuple(each for each in variants_in(snapshot)[0] if not each.missing)
            listing = RepoListing(request.repo, request.revision, snapshot.name, cached, (), "")
            if kept is not None and kept.commit == snapshot.name:
                listing = kept
            for each in filter(request.takes, cached):
                found.setdefault(each.name, FoundVariant(access, listing, each, each.paths))
    return found


def choose(listing: RepoListing, request: RepoRequest) -> tuple[RepoVariant, ...]:
    """Return the requested variants of a listing. Raises UnknownName and UsageError like `find_variants`."""
    variants = [variant for variant in listing.variants if request.takes(variant)]
    if not variants:
        raise UsageError(
            f"no file in {sanitize(listing.repo)} matches {request.file_pattern}",
            f"it has {list_variants(listing.models)}; select one with {sanitize(listing.repo)} and a file name",
        )
    if not request.quants:
        return tuple(each for each in variants if each.role == "model") or tuple(variants)
    return choose_by_quant(request.quants, variants, sanitize(listing.repo))


def choose_by_quant(quants: Sequence[str], variants: Sequence[_Variant], place: str) -> tuple[_Variant, ...]:
    """Return the variant that each quant selects, in order; `q4_k_m` selects `UD-Q4_K_M` if no other file is one.

    Raises UnknownName for no match, UsageError for several.
    """
    chosen: dict[_Variant, None] = {}
    for quant in quants:
        matches = _matching(quant, variants)
        if not matches:
            hint = f"{place} contains {list_variants([each for each in variants if each.role == 'model'])}"
            if canonical_quant(quant) in known_quants():
                hint += f"; llama-quantize makes {canonical_quant(quant)} from a 16-bit file"
            raise UnknownName("quant", quant, (), hint)
        if len(matches) > 1:
            raise UsageError(
                f"{len(matches)} files in {place} match {quant!r}; give a file name instead",
                f"candidates: {list_variants(matches)}",
            )
        chosen[matches[0]] = None
    return tuple(chosen)


def _matching(quant: str, variants: Sequence[_Variant]) -> list[_Variant]:
    """Return the variants that a quant names, by the first rule that any variant meets."""
    rules: tuple[Callable[[_Variant], bool], ...] = (
        lambda variant: variant.name.lower() == quant.lower(),
        lambda variant: variant.answers_to(quant),
        lambda variant: variant.answers_to(f"{MIXTURE}{quant}"),
    )
    return next((found for rule in rules if (found := list(filter(rule, variants)))), [])


def selector_in(variants: Sequence[RepoVariant], variant: RepoVariant) -> str:
    """Return the QUANT argument that selects only this variant: its quant, or else its name."""
    quant = variant.quant or NO_QUANT
    return (
        quant
        if [other.name for other in variants if other.answers_to(quant)] == [variant.name]
        else variant.name
    )


def list_variants(variants: Sequence[RepoVariant]) -> str:
    """Return the QUANT argument and the size of each variant, as text."""
    return ", ".join(f"{selector_in(variants, each)} ({format_bytes(each.file_bytes)})" for each in variants)


ARTICLE_QUANTS = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_0", "q3_k_m", "q2_k")
"""Default quants of a twin: the article's eight, in its order."""


_LADDER = ("q8_0", "q6_k", "q5_k_m", "q5_0", "q4_k_m", "q4_k_s", "q4_0", "iq4_xs", "q3_k_m", "q2_k")
"""Default quants of a plan."""
_IF_PUBLISHED = frozenset({"q5_0", "q4_k_s", "q4_0", "iq4_xs"})
"""Those that many publishers leave out."""


def usual_quants(model: CatalogModel) -> tuple[str, ...]:
    """Return the quants to plan by default, or those published if the article's are not; some only if published."""
    if model.quants and not set(model.quants) & set(ARTICLE_QUANTS):
        return model.quants
    return tuple(quant for quant in _LADDER if quant not in _IF_PUBLISHED or is_published(model, quant))


def is_published(model: CatalogModel, quant: str) -> bool:
    """Return whether the model's repo is known to have a quant, or the publisher's own mixture of its name."""
    return not {quant, f"{MIXTURE}{quant}"}.isdisjoint((*model.quants, *model.file_bytes))


_ALIKE = 0.005
"""Share by which the published file of llama.cpp's own mixture may differ in size: its tokenizer, and rounding."""
_TYPICAL = {"ud-q2_k_xl": 1.03, "ud-q3_k_xl": 1.02, "ud-q4_k_xl": 1.01, "ud-q6_k_xl": 1.07, "ud-q8_k_xl": 1.11}
"""Sizes of Unsloth's mixtures, to those of the quants that they are named after: medians of 126 to 200 models.

Most are within 10 % of it, of `ud-q8_k_xl` within 16 %. Source: the listing of models.toml.
"""


def planned_files(model: CatalogModel, quants: Sequence[str], source: str = "") -> dict[str, ModelFile]:
    """Return the files of a catalog model as llama.cpp would make them, or scaled to another published size.

    The bytes of the quantized matrices of a publisher's own mixture are in proportion to those of the quant that it is
    named after; without a published size it has a typical one. As in a repo, `q4_k_m` is `ud-q4_k_m` if only that is
    published. Raises like `plan_twin`.
    """
    plain = {quant: plain_quant(quant) for quant in quants}
    planned = plan_twin(model.hyper, list(dict.fromkeys(plain.values())), name=model.id, source=source)
    files = {quant: planned[name] for quant, name in plain.items()}
    for quant, file in files.items():
        published = model.file_bytes.get(quant) or model.file_bytes.get(f"{MIXTURE}{quant}")
        size = published or round(_TYPICAL.get(quant, 1) * file.file_bytes)
        if quant.startswith(MIXTURE) or abs(size - file.file_bytes) > _ALIKE * file.file_bytes:
            files[quant] = scaled(file, size, f"{model.id} {quant}", "" if published else "~")
    return files


class CatalogTwin(ModelSource):
    model: CatalogModel
    quant: str

    def header(self) -> ModelFile:
        return plan_twin(self.model.hyper, [self.quant], name=self.model.id)[self.quant]

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        model = self.model
        return read_model_file(cached_twin(model.id, model.hyper, self.quant, paths.twins_dir(), on_progress))


class PublishedTwin(ModelSource):
    """A twin of a Hub file, made from its real header."""

    found: FoundVariant

    def header(self) -> ModelFile:
        return twin_of(self.found.header(), self.found.origin)

    def materialize(self, on_progress: OnProgress | None = None) -> ModelFile:
        name = f"{self.found.repo}-{self.found.variant.name}"
        return read_model_file(write_cached(self.header(), name, paths.twins_dir(), on_progress))
