"""WikiText-2 from the test Hub: downloaded once, verified, and read from its archive into memory."""

import pytest

from ggbench.errors import BadFile
from ggbench.experiments.quality import texts
from ggbench.experiments.quality.texts import (
    ARCHIVE,
    MEMBER,
    REPO,
    WIKITEXT_2,
    fetch_archive,
    find_archive,
    find_text,
)
from ggbench.hub.access import HubAccess
from tests.fakes.hub import Corrupt, TestHub
from tests.fakes.wikitext import TEXT, archive


@pytest.fixture
def access(hub: TestHub) -> HubAccess:
    hub.add_repo(REPO, {"README.md": b"# ci", ARCHIVE: archive()})
    return HubAccess.from_environment()


def test_what_arrives_damaged_is_not_kept(access: HubAccess, hub: TestHub) -> None:
    hub.fail(f"/cdn/{REPO}/*", Corrupt(10), times=None)
    with pytest.raises(BadFile, match="arrived damaged twice"):
        fetch_archive(access)
    assert find_archive(access) is None


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
