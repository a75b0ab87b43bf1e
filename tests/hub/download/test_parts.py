"""Parts left by interrupted downloads, and how the next download resumes them."""

import errno
import os
import signal
import subprocess
import sys
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from ggbench.errors import DoesNotFit, UsageError
from ggbench.hub import part_file
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.repo_records import RepoListing, RepoVariant
from tests.fakes.hub import Hang, TestHub
from tests.fakes.tiny_repo import BODIES, CONTENT, MIB, REPO, assert_nothing_has_its_name, part_of, put_part

KILLED = """
import sys
from pathlib import Path
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
endpoint, cache, repo, commit, path, n_bytes, sha256 = sys.argv[1:]
folder = Path(cache)
access = HubAccess(False, endpoint, folder, folder, folder)
variant = RepoVariant("killed", None, (RepoFile(path, int(n_bytes), sha256, ""),))
listing = RepoListing(repo, "main", commit, (variant,), (), "")
download(access, listing, variant, on_progress=lambda files: print(files[0].done_bytes, flush=True))
"""


@pytest.mark.parametrize("part", [CONTENT[:-MIB][::-1], CONTENT[::-1], CONTENT + b"x"], ids=["part", "whole", "longer"])
def test_a_part_damaged_on_disk_is_restarted(
    access: HubAccess, listing: RepoListing, one: RepoVariant, part: bytes
) -> None:
    put_part(access, one, part)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT


def test_a_link_in_place_of_the_part_is_not_followed(
    access: HubAccess, listing: RepoListing, one: RepoVariant, tmp_path: Path
) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"mine" * MIB)
    part = put_part(access, one, b"")
    part.unlink()
    part.symlink_to(mine)
    with pytest.raises(UsageError, match="cannot write to"):
        download(access, listing, one)
    assert mine.read_bytes() == b"mine" * MIB


def test_cancelling_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(part_file, "READ_TIMEOUT_S", 2)
    hub.fail(BODIES, Hang(MIB))
    part = part_of(access, one)
    with pytest.raises(CancelledError):
        download(access, listing, one, cancel=lambda: part.is_file() and part.stat().st_size == MIB)
    assert part.read_bytes() == CONTENT[:MIB]
    hub.forget_requests()
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_a_kill_loses_no_byte(access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant) -> None:
    file = one.files[0]
    command = [sys.executable, "-c", KILLED, hub.url, str(access.hub_cache), REPO, listing.commit]
    command += [file.path, str(file.n_bytes), str(file.sha256)]
    reached = 0
    for n_bytes in (300_000, 1_500_000):
        hub.fail(BODIES, Hang(n_bytes))
        reached += n_bytes
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(int(line) == reached for line in process.stdout)
            process.send_signal(signal.SIGKILL)
        assert_nothing_has_its_name(access)
    (path,) = download(access, listing, one)
    assert path.read_bytes() == CONTENT
    assert hub.sent_bytes() == len(CONTENT)


def test_a_full_disk_keeps_the_part(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    really_write = os.pwrite

    def write(descriptor: int, data: bytes, offset: int) -> int:
        if offset >= MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return really_write(descriptor, data[: MIB - offset], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", write)
        with pytest.raises(DoesNotFit, match="filled up"):
            download(access, listing, one)
    assert part_of(access, one).read_bytes() == CONTENT[:MIB]
    hub.forget_requests()
    download(access, listing, one)
    assert hub.sent_bytes() == 2 * MIB


def test_a_complete_part_needs_no_request(
    access: HubAccess, hub: TestHub, listing: RepoListing, one: RepoVariant
) -> None:
    """A kill between the last byte and the rename leaves it."""
    put_part(access, one, CONTENT)
    (path,) = download(access, listing, one)
    assert (path.read_bytes(), hub.requests) == (CONTENT, [])
