"""Downloads through each fault that a network or a server has."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.errors import BadFile, GgbenchError, NetworkError
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download, needed_bytes
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.hub.session import Stop
from tests.fakes.hub import (
    MEMBER_TOKEN,
    Corrupt,
    Cut,
    Fault,
    Hang,
    IgnoresRanges,
    Says,
    TestHub,
    TooMany,
    Unavailable,
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
        pytest.param([Unavailable(), Unavailable(502)], id="503"),
        pytest.param([WrongRange()], id="wrong range"),
        pytest.param([WrongLength(7)], id="too long"),
        pytest.param([WrongLength(-7)], id="too short"),
        pytest.param([Says(b"<html>Please log in</html>", content_type="text/html")], id="another page"),
    ],
)
def test_a_fault_that_passes_costs_no_byte_twice(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, faults: list[Fault]
) -> None:
    """The file is complete in one call, and what arrived before the fault is not fetched again."""
    part = put_part(access, one, CONTENT[:MIB])
    for fault in faults:
        hub.fail(BODIES, fault)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert not part.exists()
    ranges = [each.range for each in hub.requests if each.path.startswith("/cdn/")]
    assert ranges[0] == f"bytes={MIB}-{len(CONTENT) - 1}" and "bytes=0" not in str(ranges)


def test_a_server_that_ignores_ranges_is_read_past_what_is_there(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """The file is right although each answer begins at its first byte."""
    put_part(access, one, CONTENT[:MIB])
    hub.fail(BODIES, IgnoresRanges(), times=None)
    hub.fail(BODIES, Cut(2 * MIB))
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Cut(0), "was cut, 4 times without a byte", id="cut"),
        pytest.param(Unavailable(), "answered 503, 4 times", id="503"),
        pytest.param(Hang(), "no answer came in time, 4 times", id="hang"),
        pytest.param(WrongLength(7), "3145735 bytes, and 3145728 were listed", id="too long"),
        pytest.param(WrongLength(-7), "3145721 bytes, and 3145728 were listed", id="too short"),
        pytest.param(WrongRange(), "the bytes that it was asked for", id="wrong range"),
        pytest.param(Says(b"x" * 9, headers={"Content-Encoding": "gzip"}), "that it was asked for", id="packed"),
        pytest.param(Says(b"<html>Please log in</html>"), "has 26 bytes", id="another page"),
        pytest.param(TooMany(3600), "asks to wait 1:00:00", id="429"),
    ],
)
def test_a_fault_that_stays_ends_in_a_network_error_and_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, fault: Fault, reason: str
) -> None:
    """The error says what happened, how far it got and that the same command continues; and it does."""
    part = put_part(access, one, CONTENT[:MIB])
    hub.fail(BODIES, fault, times=None)
    with pytest.raises(NetworkError, match=reason) as caught:
        download(access, listing, one)
    assert "stopped at 1.00 MiB of 3.00 MiB" in caught.value.message
    assert "same command continues" in caught.value.hint
    assert part.read_bytes() == CONTENT[:MIB]
    assert_nothing_has_its_name(access)
    hub.heal()
    hub.forget_requests()
    assert needed_bytes(access, listing, one) == 2 * MIB
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_a_busy_server_is_left_alone_for_as_long_as_it_asks(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Retry-After goes before the usual pause."""
    waits: list[float] = []
    monkeypatch.setattr(Stop, "wait", lambda self, seconds: waits.append(seconds))
    hub.fail(BODIES, TooMany(7))
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert waits == [7.0]


def test_no_connection_is_a_network_error(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """With nothing at the other end the error says so, and no empty part is left."""
    with pytest.raises(NetworkError, match="no connection"):
        download(replace(access, endpoint="http://127.0.0.1:9"), listing, one)
    assert files_under(access.hub_cache) == []


def test_a_byte_damaged_on_the_way_is_fetched_once_more(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """The hash does not agree, so the file comes again from its beginning."""
    hub.fail(BODIES, Corrupt(MIB + 5))
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert hub.sent_bytes() == 2 * len(CONTENT)


def test_a_byte_damaged_every_time_never_gets_the_files_name(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """After a second try it is a bad file, and nothing of it stays."""
    hub.fail(BODIES, Corrupt(MIB + 5), times=None)
    with pytest.raises(BadFile, match="damaged twice"):
        download(access, listing, one)
    assert hub.sent_bytes() == 2 * len(CONTENT)
    assert files_under(access.hub_cache) == []


def test_a_file_that_git_keeps_is_verified_by_gits_name(access: HubAccess, hub: TestHub, tmp_path: Path) -> None:
    """Without a sha256 the blob's SHA-1 decides, and a damaged byte is noticed."""
    content = b"small"
    commit = hub.add_repo("org/git", {"a.gguf": content}, in_git=("a.gguf",))
    blob_id = hashlib.sha1(b"blob 5\0" + content).hexdigest()
    variant = RepoVariant("a", None, (RepoFile("a.gguf", len(content), None, blob_id),))
    listing = RepoListing("org/git", "main", commit, (variant,), (), 0, "2026-01-02T03:04:05Z")
    hub.fail("*/a.gguf", Corrupt(2))
    (path,) = download(access, listing, variant)
    assert path.read_bytes() == content
    assert path.resolve().name == blob_id


def test_the_token_goes_to_the_hub_alone(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gated repo opens to a member, whose token does not follow the redirect to another origin."""
    monkeypatch.setenv("HF_TOKEN", MEMBER_TOKEN)
    hub.repos[REPO].gated = True
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert [each.had_token for each in hub.requests] == [True, False]


def test_a_gated_repo_is_refused_and_leaves_nothing(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """Without a token it is one clear error, asked once."""
    hub.repos[REPO].gated = True
    with pytest.raises(GgbenchError) as caught:
        download(access, listing, one)
    assert caught.value.hint
    assert len(hub.requests) == 1
    assert files_under(access.hub_cache) == []
