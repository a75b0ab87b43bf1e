"""Reading the first bytes of a published file: how few are fetched, and that they are right despite faults."""

import random

import pytest

from ggbench.errors import BadFile, NetworkError
from ggbench.hub import api, headers
from ggbench.hub.access import HubAccess
from ggbench.hub.headers import FIRST_BYTES, RangeSource
from ggbench.hub.listing import list_repo
from tests.fakes.hub import (
    Cut,
    Fault,
    Hang,
    IgnoresRanges,
    Says,
    TestHub,
    TooMany,
    WrongLength,
    WrongRange,
)

CONTENT = random.Random(1).randbytes(5 << 20)
CHUNK = 256 << 10


def open_source(access: HubAccess, hub: TestHub, content: bytes = CONTENT, path: str = "m-q8_0.gguf") -> RangeSource:
    """A source over the one file of a repo; requests count from here."""
    hub.add_repo("org/name", {path: content})
    listing = list_repo(access, "org/name")
    hub.forget_requests()
    return RangeSource(access, listing.repo, listing.commit, listing.variants[0].files[0])


def read_in_chunks(source: RangeSource, n_bytes: int) -> bytes:
    data = bytearray()
    while len(data) < n_bytes and (chunk := source.read(CHUNK)):
        data += chunk
    return bytes(data[:n_bytes])


def test_only_the_first_bytes_are_fetched(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    source = open_source(access, hub)
    assert source.read(100) == CONTENT[:100]
    assert read_in_chunks(source, 1000) == CONTENT[100:1100]
    first = f"bytes=0-{FIRST_BYTES - 1}"
    assert [(each.range, each.had_token) for each in hub.requests] == [(first, True), (first, False)]
    assert hub.sent_bytes() == FIRST_BYTES


def test_more_is_fetched_as_the_parser_reads(access: HubAccess, hub: TestHub) -> None:
    source = open_source(access, hub)
    assert read_in_chunks(source, 3 << 20) == CONTENT[: 3 << 20]
    assert hub.sent_bytes() == len(source.held) == 3 << 20
    source.seek(10)
    assert source.read(5) == CONTENT[10:15]
    assert read_in_chunks(source, len(CONTENT)) == CONTENT[15:]
    assert source.read(CHUNK) == b""
    assert len(source.held) == len(CONTENT)


def test_a_server_that_ignores_ranges_is_read_no_further(access: HubAccess, hub: TestHub) -> None:
    hub.fail("*", IgnoresRanges(), times=None)
    source = open_source(access, hub)
    assert source.read(10) == CONTENT[:10]
    assert len(source.held) == FIRST_BYTES
    with pytest.raises(NetworkError, match="returned other bytes"):
        read_in_chunks(source, len(CONTENT))


def test_a_dropped_connection_resumes(access: HubAccess, hub: TestHub) -> None:
    hub.fail("/cdn/*", Cut(1000), times=2)
    source = open_source(access, hub)
    assert source.read(CHUNK) == CONTENT[:CHUNK]
    assert len(source.held) == FIRST_BYTES
    begins = [each.range for each in hub.requests if each.path.startswith("/cdn/")]
    assert begins == [f"bytes={n}-{FIRST_BYTES - 1}" for n in (0, 1000, 2000)]


@pytest.mark.parametrize(
    ("fault", "kind", "expected"),
    [
        (Cut(0), NetworkError, "lost"),
        (TooMany(3600), NetworkError, "rate limit"),
        (WrongLength(7), BadFile, "the repo listing"),
        (WrongRange(), NetworkError, "returned other bytes"),
        (Says(b"x", 206, headers={"Content-Range": "bytes x-y/z"}), NetworkError, "returned other bytes"),
        (Says(b"x", 206, headers={"Content-Range": f"bytes {'9' * 5000}-1/2"}), NetworkError, "returned other bytes"),
        (Says(b"<html>", 200), BadFile, "6 bytes"),
        (Says(b"x" * 99, 200, headers={"Content-Encoding": "gzip"}), NetworkError, "returned other bytes"),
        (Says(b"", 404, headers={"X-Error-Code": "EntryNotFound"}), NetworkError, "cannot find"),
    ],
)
def test_a_permanent_fault_is_an_error(
    access: HubAccess, hub: TestHub, fault: Fault, kind: type[Exception], expected: str
) -> None:
    source = open_source(access, hub)
    hub.fail("/cdn/*", fault, times=None)
    with pytest.raises(kind, match=expected):
        source.read(CHUNK)
    assert len(hub.requests) <= 2 * (len(api.BACKOFF_S) + 1)
    assert source.held == b""


def test_a_hang_times_out_and_is_retried(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "READ_TIMEOUT_S", 0.1)
    hub.fail("/cdn/*", Hang(500))
    source = open_source(access, hub)
    assert source.read(CHUNK) == CONTENT[:CHUNK]
    assert len(source.held) == FIRST_BYTES


def test_the_header_limit_is_enforced(access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes up to the limit can be read, even in a chunk that exceeds it; a larger read is rejected at once."""
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", (2 << 20) + 10)
    source = open_source(access, hub)
    with pytest.raises(BadFile, match="larger than"):
        source.read(3 << 20)
    assert hub.requests == []
    with pytest.raises(BadFile, match=r"larger than 2.00 MiB") as raised:
        read_in_chunks(source, len(CONTENT))
    assert "path" in raised.value.hint
    assert source.held == CONTENT[: (2 << 20) + 10]
