"""A repo to download, and faults that end quickly."""

import pytest

from ggbench.hub import part_file
from ggbench.hub.repo_records import RepoListing, RepoVariant
from tests.fakes.hub import TestHub
from tests.fakes.tiny_repo import add_tiny_repo, tiny_listing


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(part_file, "BACKOFF_S", (0.001,) * 4)
    monkeypatch.setattr(part_file, "READ_TIMEOUT_S", 0.2)


@pytest.fixture
def hub(hub: TestHub) -> TestHub:
    add_tiny_repo(hub)
    return hub


@pytest.fixture
def listing(hub: TestHub) -> RepoListing:
    return tiny_listing(hub)


@pytest.fixture
def one(listing: RepoListing) -> RepoVariant:
    return listing.variants[0]


@pytest.fixture
def split(listing: RepoListing) -> RepoVariant:
    return listing.variants[1]
