"""Resolution of QUANTs in a repo."""

from pathlib import Path

import pytest

from ggbench.errors import NetworkError, UnknownName, UsageError
from ggbench.hub.access import HubAccess
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.models.sources import RepoRequest, choose, find_variants
from ggbench.units import GIB
from tests.fakes.hub import TestHub


def variant(name: str, quant: str | None, gib: int = 1, missing: tuple[str, ...] = ()) -> RepoVariant:
    return RepoVariant(name, quant, (RepoFile(f"{name}.gguf", gib * GIB, "0" * 64, "1" * 40),), missing)


def listing_of(*variants: RepoVariant) -> RepoListing:
    return RepoListing("org/name", "main", "c" * 40, variants, (), "2026-11-21T12:00:00Z")


PLAIN = listing_of(variant("m-q8_0", "q8_0", 8), variant("m-UD-Q4_K_M", "ud-q4_k_m", 5), variant("m-q4_k_m", "q4_k_m"))


def names(listing: RepoListing, *quants: str, pattern: str | None = None) -> list[str]:
    return [each.name for each in choose(listing, RepoRequest("org/name", "main", quants, pattern))]


def test_a_missing_quant_lists_the_available_ones() -> None:
    with pytest.raises(UnknownName) as caught:
        choose(PLAIN, RepoRequest("org/name", quants=("q2_k",)))
    assert "q8_0 (8.00 GiB), ud-q4_k_m (5.00 GiB)" in caught.value.hint


@pytest.mark.parametrize(("typed", "found"), [("Q80", "m-q8_0"), ("q4km", "m-q4_k_m"), ("ud_q4km", "m-UD-Q4_K_M")])
def test_a_quant_needs_no_separators(typed: str, found: str) -> None:
    assert names(PLAIN, typed) == [found]


def test_a_dynamic_mixture_stands_for_its_plain_type_where_the_repo_has_no_other() -> None:
    """Unsloth's repos of mixtures of experts have UD-Q4_K_M alone; the catalog plans q4_k_m."""
    assert names(listing_of(variant("m-q8_0", "q8_0"), variant("m-UD-Q4_K_M", "ud-q4_k_m")), "Q4_K_M") == [
        "m-UD-Q4_K_M"
    ]


def test_a_catalog_model_is_narrowed_by_its_file_pattern() -> None:
    listing = listing_of(
        variant("qwen-7b-q8_0", "q8_0"), variant("q4/Qwen-7B-Q4_0", "q4_0"), variant("qwen-7b-coder-q8_0-x", "q8_0")
    )
    assert names(listing, pattern="qwen-7b-{quant}.gguf") == ["qwen-7b-q8_0", "q4/Qwen-7B-Q4_0"]
    assert names(listing, pattern="qwen-7b-coder-{quant}-x.gguf") == ["qwen-7b-coder-q8_0-x"]
    with pytest.raises(UsageError, match="no file in org/name matches other"):
        names(listing, pattern="other-{quant}.gguf")


def test_a_cached_revision_needs_no_network(hub: TestHub) -> None:
    from huggingface_hub import hf_hub_download

    hub.add_repo("org/name", {"m-q8_0.gguf": b"new"})
    commit = hub.add_repo("org/name", {"m-q8_0.gguf": b"old"}, revision="v1.0")
    access = HubAccess.from_environment(offline=True)
    path = hf_hub_download("org/name", "m-q8_0.gguf", revision="v1.0", cache_dir=access.hub_cache, endpoint=hub.url)
    [found] = find_variants(access, RepoRequest("org/name", "v1.0", ("q8_0",)))
    assert (found.commit, found.paths) == (commit, (Path(path),))
    with pytest.raises(NetworkError):
        find_variants(access, RepoRequest("org/name", "v2.0", ("q8_0",)))
