"""WikiText-2 from the test Hub: downloaded once, verified, and read from its archive into memory."""

import hashlib

import msgspec.structs
import pytest

from ggbench.errors import BadFile, NetworkError
from ggbench.experiments.quality import texts
from ggbench.experiments.quality.texts import (
    ARCHIVE,
    MEMBER,
    REPO,
    WIKITEXT_2,
    fetch_archive,
    find_archive,
    find_text,
    read_text,
    text_argument,
)
from ggbench.hub.access import HubAccess
from tests.fakes.hub import Corrupt, TestHub
from tests.fakes.wikitext import TEXT, archive


@pytest.fixture
def access(hub: TestHub) -> HubAccess:
    hub.add_repo(REPO, {"README.md": b"# ci", ARCHIVE: archive()})
    return HubAccess.from_environment()


def test_it_is_downloaded_once(access: HubAccess, hub: TestHub) -> None:
    source, text = find_text(WIKITEXT_2, access)
    assert text == TEXT.decode()[:-1]
    assert (source.name, source.path, source.source) == (WIKITEXT_2, "", REPO)
    assert (source.sha256, source.n_bytes) == (hashlib.sha256(TEXT).hexdigest(), len(TEXT))
    found = find_archive(access)
    assert found is not None
    assert found.parts[-5:-2] == ("hub", "datasets--ggml-org--ci", "snapshots")
    assert found.resolve().name == hashlib.sha256(archive()).hexdigest()
    hub.forget_requests()
    assert find_text(WIKITEXT_2, access)[1] == text
    assert read_text(source) == text
    assert hub.requests == []
    assert text_argument(source) == WIKITEXT_2


def test_without_a_network_it_has_to_be_there(access: HubAccess, hub: TestHub) -> None:
    offline = msgspec.structs.replace(access, offline=True)
    with pytest.raises(NetworkError, match="wikitext-2 is not on this disk") as caught:
        find_text(WIKITEXT_2, offline)
    assert "--text FILE" in caught.value.hint
    assert hub.requests == []
    fetch_archive(access)
    assert find_text(WIKITEXT_2, offline)[0].name == WIKITEXT_2


def test_what_arrives_damaged_is_not_kept(access: HubAccess, hub: TestHub) -> None:
    hub.fail(f"/cdn/{REPO}/*", Corrupt(10), times=None)
    with pytest.raises(BadFile, match="arrived damaged twice"):
        fetch_archive(access)
    assert find_archive(access) is None


def test_a_damaged_file_in_the_cache_is_named(access: HubAccess) -> None:
    path = fetch_archive(access).resolve()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(BadFile, match="SHA-256 is not the one in its name") as caught:
        find_text(WIKITEXT_2, access)
    assert "remove it" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (archive(member="wiki.test.raw"), BadFile, f"has no {MEMBER}"),
        (b"not a zip", BadFile, "cannot be read: File is not a zip file"),
        (archive(TEXT).replace(b"PK\x01\x02", b"PK\x01\x03"), BadFile, "cannot be read"),
        (archive(bytes(2000)), BadFile, "would take 1.95 KiB"),
        (archive(b"\xff\xfe"), BadFile, "wikitext-2 is not UTF-8: byte 0 is 0xff"),
    ],
)
def test_an_archive_that_is_no_good_is_one_line(
    hub: TestHub, monkeypatch: pytest.MonkeyPatch, content: bytes, error: type[Exception], message: str
) -> None:
    monkeypatch.setattr(texts, "_LARGEST_MEMBER_BYTES", 1000)
    hub.add_repo(REPO, {ARCHIVE: content})
    with pytest.raises(error, match=message):
        find_text(WIKITEXT_2, HubAccess.from_environment())
