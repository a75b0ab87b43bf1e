"""Faults of the network and of the Hub: on a listing, on the ranges of a header, and on a download."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.headers import read_variant_header
from ggbench.hub.listing import list_repo
from ggbench.hub.repo_records import RepoListing, repo_folder
from tests.fakes.hub import (
    Corrupt,
    Cut,
    Fault,
    Gated,
    Hang,
    IgnoresRanges,
    Says,
    TestHub,
    TooMany,
    Unavailable,
    WrongLength,
    WrongRange,
)
from tests.hardening.served import served_hub
from tests.hardening.trials import Trials

_REPO = "org/faulty-GGUF"
_PORTAL = b"<html><body>Log in to the hotel's network\x1b[2J</body></html>"
FAULTS: dict[str, Fault] = {
    "cut at once": Cut(0),
    "cut after 1 byte": Cut(1),
    "cut in the middle": Cut(1500),
    "silent from the start": Hang(),
    "silent in the middle": Hang(1500),
    "a byte of the header flipped": Corrupt(30),
    "a byte of the weights flipped": Corrupt(150_000),
    "longer than listed": WrongLength(7),
    "shorter than listed": WrongLength(-7),
    "ranges ignored": IgnoresRanges(),
    "another range, 1 byte later": WrongRange(),
    "another range, far later": WrongRange(100_000),
    "too many requests": TooMany(),
    "too many requests, wait an hour": TooMany(3600),
    "service unavailable": Unavailable(),
    "internal error": Unavailable(500),
    "bad gateway": Unavailable(502),
    "terms not accepted": Gated(),
    "a captive portal's page": Says(_PORTAL, 200, "text/html"),
    "an empty answer": Says(b""),
    "JSON of another shape": Says(json.dumps([{"path": {"a": "\x1b[2J"}, "size": "many"}]).encode()),
    "JSON without end": Says(b"[" * 200_000),
    "a redirect in a circle": Says(b"", 302, headers={"Location": "/org/faulty-GGUF/resolve/main/m-q4_1.gguf"}),
    "redirects in a circle, each of 16 MiB": Says(
        bytes(16 << 20), 302, headers={"Location": "/org/faulty-GGUF/resolve/main/m-q4_1.gguf"}
    ),
    "an error of 16 MiB": Says(bytes(16 << 20), 500),
    "a redirect to a file": Says(b"", 302, headers={"Location": "file:///etc/passwd"}),
}
"""Each is tried once, and for as long as the command runs."""


def network_faults(folder: Path, n_faults: int | None = None) -> Trials:
    """Try each fault on each of the three; what has its final name must be whole and right."""
    row = Trials("network faults on listings, headers and downloads")
    header = sorted((Path(__file__).parent.parent / "data" / "headers").iterdir())[0].read_bytes()
    content = header + bytes(range(256)) * 800
    caches = folder / "cache"
    for label, fault in list(FAULTS.items())[:n_faults]:
        for times in (1, None):
            for what, path_glob in (("listing", "/api/*"), ("header", "*m-q4_1.gguf"), ("download", "*m-q4_1.gguf")):
                with served_hub() as (hub, access):
                    hub.add_repo(_REPO, {"m-q4_1.gguf": content})
                    listing = list_repo(access, _REPO)
                    shutil.rmtree(caches, ignore_errors=True)
                    hub.fail(path_glob, fault, times)
                    row.attempt(f"{what}, {label} {times or 'always'}", _CALLS[what](access, listing), 30)
                    _check(row, f"{what}, {label}", hub, access)
    return row


_CALLS: dict[str, Callable[[HubAccess, RepoListing], Callable[[], object]]] = {
    "listing": lambda access, _: lambda: list_repo(access, _REPO),
    "header": lambda access, listing: lambda: read_variant_header(access, listing, listing.variants[0]),
    "download": lambda access, listing: lambda: download(access, listing, listing.variants[0]),
}


def _check(row: Trials, label: str, hub: TestHub, access: HubAccess) -> None:
    for error in hub.errors:
        row.fault(f"{label}: the test Hub failed, {error!r}")
    for blob in (repo_folder(access, _REPO) / "blobs").glob("*"):
        if blob.suffix != ".incomplete" and hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name:
            row.unverified_bytes += blob.stat().st_size
            row.fault(f"{label}: a damaged file has its final name")
