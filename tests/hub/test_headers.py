"""Headers of published variants: content, cost in bytes, and caching."""

import hashlib
import os
import re
import threading
from pathlib import Path

import msgspec.structs
import pytest

from ggbench.errors import BadFile, NetworkError
from ggbench.gguf_file.header import encode_header, read_model_file
from ggbench.gguf_file.model_file import ModelFile, TensorInfo
from ggbench.hub import api, headers
from ggbench.hub.access import HubAccess
from ggbench.hub.headers import read_headers, read_variant_header
from ggbench.hub.listing import list_repo
from ggbench.hub.repo_records import RepoListing
from tests.fakes.hub import (
    Hang,
    TestHub,
    WrongLength,
)

REPO = "org/name"
SHAPE: dict[str, object] = {
    "general.architecture": "qwen2", "qwen2.block_count": 1, "qwen2.embedding_length": 64,
    "qwen2.feed_forward_length": 64, "qwen2.attention.head_count": 2, "qwen2.context_length": 512,
}  # fmt: skip


def tensor(name: str, rows: int) -> TensorInfo:
    return TensorInfo(name, (64, rows), "F32", 256 * rows)


def model(extra: dict[str, object] | None = None, tensors: tuple[TensorInfo, ...] = ()) -> bytes:
    header = encode_header({**SHAPE, **(extra or {})}, tensors or (tensor("token_embd.weight", 8),))
    return header.data + bytes(header.file_bytes - len(header.data))


def list_files(access: HubAccess, hub: TestHub, files: dict[str, bytes]) -> RepoListing:
    """The repo with these files; requests count from here."""
    hub.add_repo(REPO, files)
    listing = list_repo(access, REPO)
    hub.forget_requests()
    return listing


def offline(access: HubAccess) -> HubAccess:
    return msgspec.structs.replace(access, offline=True)


def test_a_remote_header_equals_the_local_one(access: HubAccess, hub: TestHub, tiny_twin: Path) -> None:
    listing = list_files(access, hub, {"m-q8_0.gguf": tiny_twin.read_bytes()})
    [read] = read_headers(access, listing, listing.variants)
    local = read_model_file(tiny_twin)
    assert read == msgspec.structs.replace(local, name=f"{REPO} q8_0", paths=())
    hub.add_repo("org/copy", {"other-q8_0.gguf": tiny_twin.read_bytes()})
    copy = list_repo(access, "org/copy")
    hub.forget_requests()
    for using in (access, offline(access)):
        for where in (listing, copy):
            [again] = read_headers(using, where, where.variants)
            assert again == msgspec.structs.replace(local, name=f"{where.repo} q8_0", paths=())
    assert hub.requests == []


def test_a_large_vocabulary_costs_little_more_than_its_length(access: HubAccess, hub: TestHub, tmp_path: Path) -> None:
    vocabulary = {"tokenizer.ggml.tokens": [f"token{n:06}" for n in range(151_936)]}
    merges = {"tokenizer.ggml.merges": [f"tok{n:06} en" for n in range(151_387)]}
    encoded = encode_header({**SHAPE, **vocabulary, **merges}, [tensor("token_embd.weight", 1 << 22)])
    path = tmp_path / "m-q8_0.gguf"
    path.write_bytes(encoded.data)
    os.truncate(path, encoded.file_bytes)
    hub.add_repo(REPO, {path.name: path}, sha256={path.name: hashlib.sha256(path.name.encode()).hexdigest()})
    listing = list_repo(access, REPO)
    [read] = read_headers(access, listing, listing.variants)
    assert isinstance(read, ModelFile) and read.n_layer == 1
    assert len(encoded.data) > 5 << 20
    assert len(encoded.data) <= hub.sent_bytes() < 1.1 * len(encoded.data)


def test_shards_are_one_model(access: HubAccess, hub: TestHub) -> None:
    parts = [
        model({"split.no": n, "split.count": 3, "split.tensors.count": 3}, (tensor(f"blk.{n}.weight", n + 1),))
        for n in range(3)
    ]
    listing = list_files(access, hub, {f"Q4/m-{n + 1:05}-of-00003.gguf": part for n, part in enumerate(parts)})
    file = read_variant_header(access, listing, listing.variants[0])
    assert [(each.name, each.shard) for each in file.tensors] == [(f"blk.{n}.weight", n) for n in range(3)]
    assert file.file_bytes == listing.total_bytes
    assert read_variant_header(offline(access), listing, listing.variants[0]) == file


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"m-00001-of-00003.gguf": model()}, r"org/name is missing m-00002-of-00003.gguf and 1 more"),
        ({"m-00001-of-00002.gguf": model(), "m-00002-of-00002.gguf": model()}, "place 1 of 2"),
        ({"m.gguf": model({"split.no": 0, "split.count": 4})}, "one of 4 shards"),
        ({"m.gguf": model()[:-64]}, "truncated"),
        ({"m.gguf": model()[:100]}, "metadata|header|fit"),
        ({"m.gguf": b""}, "not a GGUF"),
        ({"m.gguf": b"<html>no</html>"}, "not a GGUF"),
        ({"m.gguf": b"GGUF\x03\0\0\0" + b"\xff" * 64}, "cannot fit"),
        ({"m\u202e.gguf": b"no"}, "^m.gguf"),
    ],
)
def test_an_unreadable_header_has_a_reason(
    access: HubAccess, hub: TestHub, files: dict[str, bytes], expected: str
) -> None:
    listing = list_files(access, hub, {**files, "good-q8_0.gguf": model() + bytes(1 << 20)})
    good, bad = read_headers(access, listing, listing.variants)
    assert isinstance(good, ModelFile)
    assert isinstance(bad, BadFile) and re.search(expected, bad.message) and bad.hint


def test_a_damaged_cache_entry_is_fetched_again(access: HubAccess, hub: TestHub, tiny_twin: Path) -> None:
    listing = list_files(access, hub, {"m-q8_0.gguf": tiny_twin.read_bytes()})
    file = read_variant_header(access, listing, listing.variants[0])
    [kept] = access.headers_dir.iterdir()
    damaged = bytearray(kept.read_bytes())
    damaged[40] ^= 1
    for content in (bytes(damaged), bytes(damaged[:1000]), b""):
        kept.write_bytes(content)
        [read] = read_headers(offline(access), listing, listing.variants)
        assert "needs the network" in str(read)
        assert read_variant_header(access, listing, listing.variants[0]) == file
        assert kept.stat().st_size == len(damaged)
    assert [each.name for each in access.headers_dir.iterdir()] == [kept.name]


@pytest.mark.parametrize("cap_bytes", [1 << 10, headers.MAX_HEADER_BYTES])
def test_a_header_not_readable_by_range_is_not_cached(
    access: HubAccess, hub: TestHub, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, cap_bytes: int
) -> None:
    listing = list_files(access, hub, {"m-q8_0.gguf": tiny_twin.read_bytes()})
    hub.fail("/cdn/*", WrongLength(1), times=None)
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", cap_bytes)
    with pytest.raises(BadFile, match="the repo listing"):
        read_variant_header(access, listing, listing.variants[0])
    hub.heal()
    if cap_bytes < headers.FIRST_BYTES:
        with pytest.raises(BadFile, match="larger than"):
            read_variant_header(access, listing, listing.variants[0])
    with pytest.raises(NetworkError, match="needs the network"):
        read_variant_header(offline(access), listing, listing.variants[0])


def test_offline_returns_cached_headers(access: HubAccess, hub: TestHub) -> None:
    listing = list_files(access, hub, {f"m-{n}.gguf": model() + bytes(n) for n in range(12)})
    *_, last = listing.variants
    read_headers(access, listing, [last])
    reads = read_headers(offline(access), listing, listing.variants)
    assert [isinstance(read, ModelFile) for read in reads] == [False] * 11 + [True]
    assert all("needs the network" in str(read) for read in reads[:-1])


def test_an_interrupt_does_not_wait_for_a_hang(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "READ_TIMEOUT_S", 0.5)
    listing = list_files(access, hub, {"silent.gguf": model() + bytes(64), "m.gguf": model()})
    hub.fail("/cdn/*silent.gguf", Hang(), times=None)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read_headers(access, listing, listing.variants, interrupt)
    for thread in threading.enumerate():
        if thread.name.startswith("header"):
            assert thread.daemon
            thread.join(20)
            assert not thread.is_alive()


def test_a_header_that_cannot_be_kept_is_read(access: HubAccess, hub: TestHub, tiny_twin: Path) -> None:
    access.headers_dir.parent.mkdir(parents=True, exist_ok=True)
    access.headers_dir.write_text("a file")
    listing = list_files(access, hub, {"m-q8_0.gguf": tiny_twin.read_bytes()})
    assert read_variant_header(access, listing, listing.variants[0]).architecture == "qwen2"


def test_a_repo_of_broken_headers_costs_a_bounded_number_of_bytes_once(
    access: HubAccess, hub: TestHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headers, "MAX_HEADER_BYTES", 3 << 20)
    long = encode_header({**SHAPE, "tokenizer.ggml.scores": [0.5] * (1 << 19)}, [tensor("token_embd.weight", 8)]).data
    broken = {f"m{n}-q{n}_0.gguf": long[:-200] + b"\xff" * (400 + n) for n in range(9)}
    listing = list_files(access, hub, broken)
    sent: list[int] = []
    for _ in range(4):
        reads = read_headers(access, listing, listing.variants)
        assert all(isinstance(read, BadFile) and read.hint for read in reads)
        sent.append(hub.sent_bytes() - sum(sent))
    # four are read at once, and one more begins when the first has ended
    assert len(long) < sent[0] <= 5 * max(map(len, broken.values())) and sent[-1] == 0
