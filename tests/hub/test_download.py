"""Downloads against the test Hub, with each fault that a network or a disk has."""

from __future__ import annotations

import errno
import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path

import pytest

from ggbench.errors import BadFile, DoesNotFit, GgbenchError, NetworkError, UsageError
from ggbench.hub import transfer
from ggbench.hub.access import HubAccess
from ggbench.hub.cached import cached_paths, repo_folder
from ggbench.hub.download import download, needed_bytes
from ggbench.hub.part_file import PART_SUFFIX
from ggbench.hub.records import RepoFile, RepoListing, RepoVariant
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

MIB = 1 << 20
REPO = "org/tiny-GGUF"
CONTENT = random.Random(1).randbytes(3 * MIB)
SHARDS = tuple(random.Random(number).randbytes(MIB) for number in (2, 3, 4))
FILE = "tiny-q8_0.gguf"
SHARD_PATHS = tuple(f"q4_k_m/tiny-q4_k_m-{number:05}-of-00003.gguf" for number in (1, 2, 3))
BODIES = "/cdn/*.gguf"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once, and a hang is noticed soon."""
    monkeypatch.setattr(transfer, "BACKOFF_S", (0.001,) * 4)
    monkeypatch.setattr(transfer, "READ_TIMEOUT_S", 0.2)


@pytest.fixture
def hub() -> Iterator[TestHub]:
    with TestHub() as hub:
        hub.add_repo(REPO, {FILE: CONTENT, **dict(zip(SHARD_PATHS, SHARDS, strict=True)), "README.md": b"# tiny\n"})
        yield hub
    assert not hub.errors


@pytest.fixture
def access(hub: TestHub, tmp_path: Path) -> HubAccess:
    return HubAccess(
        offline=False,
        endpoint=hub.url,
        hub_cache=tmp_path / "hub",
        listings_dir=tmp_path / "listings",
        headers_dir=tmp_path / "headers",
    )


@pytest.fixture
def listing(hub: TestHub) -> RepoListing:
    ((commit, held),) = hub.repos[REPO].commits.items()

    def variant(quant: str, paths: Sequence[str]) -> RepoVariant:
        files = [RepoFile(path, held[path].n_bytes, held[path].sha256, held[path].blob_id) for path in paths]
        return RepoVariant(f"tiny-{quant}", quant, tuple(files))

    variants = (variant("q8_0", [FILE]), variant("q4_k_m", SHARD_PATHS))
    return RepoListing(REPO, "main", commit, variants, (), 1, "2026-01-02T03:04:05Z")


@pytest.fixture
def one(listing: RepoListing) -> RepoVariant:
    """A variant of one file."""
    return listing.variants[0]


@pytest.fixture
def split(listing: RepoListing) -> RepoVariant:
    """A variant of three shards."""
    return listing.variants[1]


def _part_of(access: HubAccess, variant: RepoVariant) -> Path:
    return repo_folder(access, REPO) / "blobs" / f"{variant.files[0].etag}{PART_SUFFIX}"


def _put_part(access: HubAccess, variant: RepoVariant, content: bytes) -> Path:
    part = _part_of(access, variant)
    part.parent.mkdir(parents=True)
    part.write_bytes(content)
    return part


def _files_under(folder: Path) -> list[Path]:
    """Links included, locks left out."""
    return [path for path in folder.rglob("*") if not path.is_dir() and path.suffix != ".lock"]


def _assert_nothing_has_its_name(access: HubAccess) -> None:
    assert all(path.name.endswith(PART_SUFFIX) for path in _files_under(access.hub_cache))


def test_a_download_lies_in_the_cache_as_huggingface_hub_itself_would_put_it(
    access: HubAccess, listing: RepoListing, one: RepoVariant
) -> None:
    """Its own commands see one whole revision named main, and its own download finds the file there."""
    from huggingface_hub import scan_cache_dir, try_to_load_from_cache

    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    seen = scan_cache_dir(access.hub_cache)
    assert not seen.warnings and not seen.incomplete_files
    ((repo, revision),) = [(repo, revision) for repo in seen.repos for revision in repo.revisions]
    assert (repo.repo_id, repo.size_on_disk) == (REPO, len(CONTENT))
    assert (revision.commit_hash, revision.refs) == (listing.commit, frozenset({"main"}))
    assert try_to_load_from_cache(REPO, FILE, cache_dir=access.hub_cache) == str(path)


def test_huggingface_hub_takes_a_file_that_ggbench_downloaded(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """Its own download of the branch asks for no byte of it."""
    from huggingface_hub import hf_hub_download

    (path,) = download(access, listing, one)
    hub.forget_requests()
    assert hf_hub_download(REPO, FILE, cache_dir=access.hub_cache, endpoint=hub.url) == str(path)
    assert hub.sent_bytes() == 0


def test_what_is_whole_is_not_asked_for_again(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """A second download makes no request, also offline."""
    paths = download(access, listing, one)
    hub.forget_requests()
    assert needed_bytes(access, listing, one) == 0
    assert download(replace(access, offline=True), listing, one) == paths
    assert hub.requests == []


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
    part = _put_part(access, one, CONTENT[:MIB])
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
    _put_part(access, one, CONTENT[:MIB])
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
    part = _put_part(access, one, CONTENT[:MIB])
    hub.fail(BODIES, fault, times=None)
    with pytest.raises(NetworkError, match=reason) as caught:
        download(access, listing, one)
    assert "stopped at 1.00 MiB of 3.00 MiB" in caught.value.message
    assert "same command continues" in caught.value.hint
    assert part.read_bytes() == CONTENT[:MIB]
    _assert_nothing_has_its_name(access)
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


def test_a_mistake_of_the_programs_own_is_not_hidden(
    access: HubAccess, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a thread dies of comes out, and is not taken for the end of the work."""

    def fail(*_: object) -> None:
        raise IndexError("a bug")

    monkeypatch.setattr("ggbench.hub.download.fill_from_hub", fail)
    with pytest.raises(IndexError, match="a bug"):
        download(access, listing, split)


def test_no_connection_is_a_network_error(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """With nothing at the other end the error says so, and no empty part is left."""
    with pytest.raises(NetworkError, match="no connection"):
        download(replace(access, endpoint="http://127.0.0.1:9"), listing, one)
    assert _files_under(access.hub_cache) == []


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
    assert _files_under(access.hub_cache) == []


@pytest.mark.parametrize("part", [CONTENT[:-MIB][::-1], CONTENT[::-1], CONTENT + b"x"], ids=["part", "whole", "longer"])
def test_a_part_that_was_damaged_on_this_disk_is_begun_anew(
    access: HubAccess, listing: RepoListing, one: RepoVariant, part: bytes
) -> None:
    """Also where the part is as long as the file, or longer."""
    _put_part(access, one, part)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT


def test_a_whole_part_needs_no_byte_more(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """A kill between the last byte and the name costs a hash and no request."""
    _put_part(access, one, CONTENT)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert hub.requests == []


def test_a_link_in_place_of_the_part_is_not_followed(
    access: HubAccess, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    """A folder that others may write into: what it leads to stays as it is."""
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine" * MIB)
    part = _put_part(access, one, b"")
    part.unlink()
    part.symlink_to(mine)
    with pytest.raises(UsageError, match="cannot write into"):
        download(access, listing, one)
    assert mine.read_bytes() == b"mine" * MIB


def test_a_blob_that_was_cut_off_is_replaced(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """What has a blob's name and not its size does not count as the file."""
    (path,) = download(access, listing, one)
    os.truncate(path, MIB)
    assert cached_paths(access, listing, REPO, one) is None
    assert download(access, listing, one) == (path,)
    assert path.read_bytes() == CONTENT


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
    assert _files_under(access.hub_cache) == []


def test_shards_come_together_and_count_as_one(access: HubAccess, listing: RepoListing, split: RepoVariant) -> None:
    """All shards lie in one folder in order, and progress ends at the bytes of all of them."""
    told: list[tuple[int, int]] = []
    paths = download(access, listing, split, on_progress=lambda done, total: told.append((done, total)))
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert [path.name for path in paths] == [Path(path).name for path in SHARD_PATHS]
    assert len({path.parent for path in paths}) == 1
    assert told[-1] == (3 * MIB, 3 * MIB)


def test_two_shards_come_at_a_time(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first hangs the second and then the third come."""
    monkeypatch.setattr(transfer, "READ_TIMEOUT_S", 60)
    hub.fail(f"*{SHARD_PATHS[0]}", Hang())
    blobs = [_part_of(access, split).with_name(str(file.sha256)) for file in split.files]
    with pytest.raises(CancelledError):
        download(access, listing, split, cancel=lambda: blobs[1].exists() and blobs[2].exists())
    assert not blobs[0].exists()


def test_a_shard_that_is_there_is_not_moved_again(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant
) -> None:
    """When one shard fails the others' bytes stay, whole or in part."""
    hub.fail(f"*{SHARD_PATHS[1]}", Cut(MIB // 2))
    hub.fail(f"*{SHARD_PATHS[1]}", Unavailable(404), times=None)
    with pytest.raises(GgbenchError):
        download(access, listing, split)
    hub.heal()
    there = hub.sent_bytes()
    assert needed_bytes(access, listing, split) <= 3 * MIB
    assert len(download(access, listing, split)) == 3
    assert hub.sent_bytes() - there <= 3 * MIB


def test_a_missing_shard_is_named_before_anything_is_moved(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant
) -> None:
    """The error has its path, and the Hub was not asked."""
    broken = replace(split, files=split.files[:2], missing=(SHARD_PATHS[2],))
    with pytest.raises(BadFile, match="00003-of-00003"):
        download(access, listing, broken)
    assert hub.requests == []


def test_a_path_that_leads_out_of_its_folder_is_refused(
    access: HubAccess, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    """Whatever a listing says, no file lands beside the folder."""
    for path in ("../evil.gguf", "/tmp/evil.gguf", "a/../../evil.gguf", "..\\evil.gguf"):
        evil = replace(one, files=(replace(one.files[0], path=path),))
        for to in (None, tmp_path / "to"):
            with pytest.raises(BadFile, match="out of its folder"):
                download(access, listing, evil, to=to)


def test_a_hash_that_is_none_names_no_file(access: HubAccess, listing: RepoListing, one: RepoVariant) -> None:
    """Names of blobs come from the Hub as well: they may not lead anywhere."""
    for evil in ("../../../evil", "", "0" * 63):
        variant = replace(one, files=(replace(one.files[0], sha256=evil, blob_id=evil),))
        with pytest.raises(BadFile, match="hash"):
            download(access, listing, variant)
    with pytest.raises(BadFile, match="hash"):
        download(access, replace(listing, commit="../../evil"), one)


def test_a_large_file_is_asked_for_in_pieces(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request asks for more than the Hub's network gives at once."""
    monkeypatch.setattr(transfer, "RANGE_BYTES", 2 * MIB)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    asked = [each.range for each in hub.requests if each.path.startswith("/cdn/")]
    assert asked == [f"bytes=0-{2 * MIB - 1}", f"bytes={2 * MIB}-{3 * MIB - 1}"]


def test_cancelling_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends although the Hub hangs, by CancelledError, and the next call asks only for the rest."""
    monkeypatch.setattr(transfer, "READ_TIMEOUT_S", 60)
    hub.fail(BODIES, Hang(MIB))
    part = _part_of(access, one)
    with pytest.raises(CancelledError):
        download(access, listing, one, cancel=lambda: part.is_file() and part.stat().st_size == MIB)
    assert part.read_bytes() == CONTENT[:MIB]
    hub.forget_requests()
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_what_progress_raises_comes_out_and_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """A front end stops a download from within its own callback."""
    hub.fail(BODIES, Hang(MIB), times=None)

    def stop_at_a_third(done: int, total: int) -> None:
        if done >= total // 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(access, listing, one, on_progress=stop_at_a_third)
    assert _part_of(access, one).stat().st_size == MIB


_KILLED = """
import sys
from pathlib import Path
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.records import RepoFile, RepoListing, RepoVariant
endpoint, cache, repo, commit, path, n_bytes, sha256 = sys.argv[1:]
folder = Path(cache)
access = HubAccess(False, endpoint, folder, folder, folder)
variant = RepoVariant("killed", None, (RepoFile(path, int(n_bytes), sha256, ""),))
listing = RepoListing(repo, "main", commit, (variant,), (), 0, "")
download(access, listing, variant, on_progress=lambda done, total: print(done, flush=True))
"""


def test_a_kill_loses_nothing(access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant) -> None:
    """After three kills and one more run the file is right, and the Hub has sent each byte once."""
    file = one.files[0]
    command = [sys.executable, "-c", _KILLED, hub.url, str(access.hub_cache), REPO, listing.commit]
    command += [file.path, str(file.n_bytes), str(file.sha256)]
    reached = 0
    for n_bytes in (300_000, 1, 1_500_000):
        hub.fail(BODIES, Hang(n_bytes))
        reached += n_bytes
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(int(line) == reached for line in process.stdout)
            process.send_signal(signal.SIGKILL)
        _assert_nothing_has_its_name(access)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    paths = cached_paths(access, listing, REPO, one)
    assert paths is not None and paths[0].read_bytes() == CONTENT
    assert hub.sent_bytes() == len(CONTENT)


def test_two_downloads_at_once_move_the_file_once(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """The second waits for the first and then finds the file."""
    found: list[tuple[Path, ...]] = []
    threads = [threading.Thread(target=lambda: found.append(download(access, listing, one))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and len(set(found)) == 1
    assert hub.sent_bytes() == len(CONTENT)


def test_room_is_looked_at_first(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says how much is missing, the part counts as there, and nothing is asked for."""
    _put_part(access, one, CONTENT[:MIB])
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(0, 0, MIB // 2))
    with pytest.raises(DoesNotFit, match=r"1\.50 MiB missing: 2\.00 MiB have to come, 512\.0 KiB are free"):
        download(access, listing, one)
    assert hub.requests == []


def test_a_disk_that_fills_up_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program took the room meanwhile: the error says so, and after making room it continues."""
    really_write = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_write(descriptor, data[: MIB - offset], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(DoesNotFit, match="filled up"):
            download(access, listing, one)
    assert _part_of(access, one).read_bytes() == CONTENT[:MIB]
    hub.forget_requests()
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_a_cache_that_cannot_be_written_is_told_with_what_to_do(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file where the cache should be, and a file system that takes no writes."""
    access.hub_cache.write_text("not a folder")
    with pytest.raises(UsageError, match="cannot write into") as caught:
        download(access, listing, one)
    assert "HF_HUB_CACHE" in caught.value.hint
    access.hub_cache.unlink()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(UsageError, match="Read-only file system"):
        download(access, listing, one)
    assert hub.requests == []


def test_where_no_links_can_be_made_the_snapshot_has_the_file_itself(
    access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is on the disk once, is found again, and huggingface_hub's own commands count it."""
    from huggingface_hub import scan_cache_dir

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "symlink_to", refuse)
    paths = download(access, listing, split)
    assert [path.read_bytes() for path in paths] == list(SHARDS)
    assert not any(path.is_symlink() for path in paths)
    assert list((repo_folder(access, REPO) / "blobs").iterdir()) == []
    assert scan_cache_dir(access.hub_cache).size_on_disk == 3 * MIB
    hub.forget_requests()
    assert download(access, listing, split) == paths
    assert hub.requests == []


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


@pytest.mark.parametrize("revision", ["main", "refs/pr/7", "v1.0"])
def test_the_branch_is_remembered_as_the_cache_does(
    access: HubAccess, listing: RepoListing, one: RepoVariant, revision: str
) -> None:
    """A revision that is no commit names it under refs."""
    download(access, replace(listing, revision=revision), one)
    assert (repo_folder(access, REPO) / "refs" / revision).read_text() == listing.commit


def test_a_commit_or_a_crooked_revision_names_nothing(
    access: HubAccess, listing: RepoListing, one: RepoVariant
) -> None:
    """Neither is written under refs."""
    for revision in (listing.commit, "../../evil", "/evil"):
        shutil.rmtree(access.hub_cache, ignore_errors=True)
        download(access, replace(listing, revision=revision), one)
        assert not (repo_folder(access, REPO) / "refs").exists()
        assert not (access.hub_cache / "evil").exists()


def test_offline_without_the_file_says_so_and_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """No request is made."""
    part = _put_part(access, one, CONTENT[:MIB])
    with pytest.raises(NetworkError):
        download(replace(access, offline=True), listing, one)
    assert hub.requests == []
    assert part.read_bytes() == CONTENT[:MIB]


class TestTo:
    """Downloads into a folder of the person's choice."""

    def test_files_keep_their_folders_and_nothing_else_stays(
        self, access: HubAccess, listing: RepoListing, split: RepoVariant, tmp_path: Path
    ) -> None:
        """Shards lie below the folder as in the repo; no part, no lock, no cache."""
        to = tmp_path / "models"
        paths = download(access, listing, split, to=to)
        assert paths == tuple(to / path for path in SHARD_PATHS)
        assert [path.read_bytes() for path in paths] == list(SHARDS)
        assert sorted(path for path in to.rglob("*") if path.is_file()) == sorted(paths)
        assert not access.hub_cache.exists()

    def test_a_part_is_continued(
        self, access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
    ) -> None:
        """After a network error the rest alone is asked for."""
        hub.fail(BODIES, Cut(MIB))
        hub.fail(BODIES, Cut(0), times=None)
        with pytest.raises(NetworkError):
            download(access, listing, one, to=tmp_path / "to")
        assert not (tmp_path / "to" / FILE).exists()
        assert needed_bytes(access, listing, one, tmp_path / "to") == 2 * MIB
        hub.heal()
        hub.forget_requests()
        (path,) = download(access, listing, one, to=tmp_path / "to")
        assert path.read_bytes() == CONTENT
        assert hub.sent_bytes() == 2 * MIB

    def test_the_right_file_is_used_as_it_is(
        self, access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
    ) -> None:
        """It is hashed and not moved."""
        (tmp_path / FILE).write_bytes(CONTENT)
        assert download(access, listing, one, to=tmp_path) == (tmp_path / FILE,)
        assert hub.requests == []

    @pytest.mark.parametrize("content", [b"mine", CONTENT[::-1]], ids=["other size", "same size"])
    def test_another_file_is_never_overwritten(
        self,
        access: HubAccess,
        hub: TestHub,
        listing: RepoListing,
        one: RepoVariant,
        tmp_path: Path,
        content: bytes,
    ) -> None:
        """A file of that name with other content stays, and the error says why."""
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(UsageError, match="nothing is overwritten"):
            download(access, listing, one, to=tmp_path)
        assert (tmp_path / FILE).read_bytes() == content
        assert hub.requests == []

    def test_a_file_that_appears_meanwhile_is_not_overwritten(
        self, access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
    ) -> None:
        """The name was free at the start and is not at the end."""
        hub.fail(BODIES, Hang(MIB))

        def take_the_name(done: int, total: int) -> None:
            (tmp_path / FILE).write_bytes(b"mine")

        with pytest.raises(UsageError, match="nothing is overwritten"):
            download(access, listing, one, to=tmp_path, on_progress=take_the_name)
        assert (tmp_path / FILE).read_bytes() == b"mine"

    def test_the_cache_fills_the_folder_without_a_request(
        self, access: HubAccess, hub: TestHub, listing: RepoListing, split: RepoVariant, tmp_path: Path
    ) -> None:
        """Offline too, and the copies are files of their own."""
        cached = download(access, listing, split)
        hub.forget_requests()
        to = tmp_path / "to"
        assert needed_bytes(access, listing, split, to) == 0
        paths = download(replace(access, offline=True), listing, split, to=to)
        assert [path.read_bytes() for path in paths] == list(SHARDS)
        assert not any(path.samefile(other) for path, other in zip(paths, cached, strict=True))
        assert hub.requests == []

    def test_a_damaged_file_in_the_cache_is_not_passed_on(
        self, access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, tmp_path: Path
    ) -> None:
        """What the disk has spoilt is fetched from the Hub instead."""
        (cached,) = download(access, listing, one)
        cached.write_bytes(CONTENT[::-1])
        (path,) = download(access, listing, one, to=tmp_path / "to")
        assert path.read_bytes() == CONTENT
