"""Downloads through every fault of a network or a server."""

import hashlib
from pathlib import Path

import pytest

from ggbench.errors import BadFile, NetworkError
from ggbench.hub.access import HubAccess
from ggbench.hub.api import Stop
from ggbench.hub.download import download, needed_bytes
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from tests.fakes.hub import (
    MEMBER_TOKEN,
    Corrupt,
    Cut,
    Fault,
    Hang,
    Says,
    TestHub,
    TooMany,
    WrongLength,
    WrongRange,
)
from tests.fakes.tiny_repo import BODIES, CONTENT, MIB, REPO, assert_nothing_has_its_name, files_under, put_part


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([Cut(MIB)] * 2, id="cut"),
        pytest.param([Hang(MIB)], id="hang"),
        pytest.param([TooMany()], id="429"),
        pytest.param([WrongRange()], id="wrong range"),
        pytest.param([WrongLength(7)], id="too long"),
        pytest.param([Says(b"<html>Please log in</html>", content_type="text/html")], id="another page"),
    ],
)
def test_a_transient_fault_fetches_no_byte_twice(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, faults: list[Fault]
) -> None:
    part = put_part(access, one, CONTENT[:MIB])
    for fault in faults:
        hub.fail(BODIES, fault)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert not part.exists()
    ranges = [each.range for each in hub.requests if each.path.startswith("/cdn/")]
    assert ranges[0] == f"bytes={MIB}-{len(CONTENT) - 1}" and "bytes=0" not in str(ranges)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Cut(0), "was lost", id="cut"),
        pytest.param(Hang(), "did not respond in time", id="hang"),
        pytest.param(WrongLength(-7), "3145721 bytes, the repo listing 3145728", id="too short"),
        pytest.param(WrongRange(), "other bytes than requested", id="wrong range"),
        pytest.param(Says(b"x" * 9, headers={"Content-Encoding": "gzip"}), "other bytes than requested", id="packed"),
        pytest.param(Says(b"<html>Please log in</html>"), "other bytes than requested", id="another page"),
        pytest.param(TooMany(3600), "rate limit was reached", id="429"),
    ],
)
def test_a_permanent_fault_is_a_network_error_and_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, fault: Fault, reason: str
) -> None:
    part = put_part(access, one, CONTENT[:MIB])
    hub.fail(BODIES, fault, times=None)
    with pytest.raises(NetworkError, match=reason) as caught:
        download(access, listing, one)
    assert "stopped at 1.00 MiB of 3.00 MiB" in caught.value.message
    assert "same command to continue" in caught.value.hint
    assert part.read_bytes() == CONTENT[:MIB]
    assert_nothing_has_its_name(access)
    hub.heal()
    hub.forget_requests()
    assert needed_bytes(access, listing, one) == 2 * MIB
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_retry_after_is_respected(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(Stop, "wait", lambda self, seconds: waits.append(seconds))
    hub.fail(BODIES, TooMany(7))
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert waits == [7.0]


def test_a_file_damaged_twice_is_rejected(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    hub.fail(BODIES, Corrupt(MIB + 5), times=None)
    with pytest.raises(BadFile, match="damaged twice"):
        download(access, listing, one)
    assert hub.sent_bytes() == 2 * len(CONTENT)
    assert files_under(access.hub_cache) == []


def test_a_file_in_git_is_verified_by_its_object_id(access: HubAccess, hub: TestHub, tmp_path: Path) -> None:
    content = b"small"
    commit = hub.add_repo("org/git", {"a.gguf": content}, in_git=("a.gguf",))
    blob_id = hashlib.sha1(b"blob 5\0" + content).hexdigest()
    variant = RepoVariant("a", None, (RepoFile("a.gguf", len(content), None, blob_id),))
    listing = RepoListing("org/git", "main", commit, (variant,), (), "2026-01-02T03:04:05Z")
    hub.fail("*/a.gguf", Corrupt(2))
    (path,) = download(access, listing, variant)
    assert path.read_bytes() == content
    assert path.resolve().name == blob_id


def test_the_token_is_sent_only_to_the_hub(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gated repo opens to a member, whose token is not sent to the redirect's origin."""
    monkeypatch.setenv("HF_TOKEN", MEMBER_TOKEN)
    hub.repos[REPO].gated = True
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert [each.had_token for each in hub.requests] == [True, False]
