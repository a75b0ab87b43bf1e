"""Faults of the network and of the Hub: on a listing, on the ranges of a header, and on a download."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

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
from tests.hardening.damage import MUTATIONS, TEXT_MUTATIONS, damaged
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


_LIES: tuple[object, ...] = (0, 1, -1, 2**63, 2**70, 1e308, "many", None, [], {}, True)
_NAMES = (
    "../../x-q4_1.gguf", "/etc/x-q4_1.gguf", "", ".", "x" * 5000 + "-q4_1.gguf", "a\0b-q4_1.gguf", "m-q4_1.gguf/",
    "M-Q4_1.GGUF", "m-q4_1-00001-of-00003.gguf", "m-q4_1-00002-of-00001.gguf", "\x1b[2J-q4_1.gguf", "🦙.gguf", "\ud800",
)  # fmt: skip


def lying_hub(n: int, draw: random.Random, folder: Path) -> Trials:
    """Have the list of a repo lie about sizes, names and hashes, in one place or in bytes; nothing false is kept."""
    row = Trials("a Hub that lies about sizes and names")
    header = sorted((Path(__file__).parent.parent / "data" / "headers").iterdir())[0].read_bytes()
    content = header + bytes(range(256)) * 800
    for _ in range(n):
        with served_hub() as (hub, access):
            hub.add_repo(_REPO, {"m-q4_1.gguf": content, "m-q8_0.gguf": content[:-1], "README.md": b"x"})
            with urlopen(f"{hub.url}/api/models/{_REPO}?blobs=true") as answer:
                sound = answer.read()
            label, body = _lied(draw, sound)
            hub.fail("/api/models/*", Says(body), None)
            row.run(f"{label}, models", "models", _REPO, "--json")
            row.run(f"{label}, plan", "plan", f"hf:{_REPO}", "--gpu", "rtx-3060")
            row.run(f"{label}, pull", "pull", f"hf:{_REPO}", "q4_1")
            row.tried -= 2
            _check(row, label, hub, access)
            for path in folder.parent.rglob("*q4_1.gguf*"):
                if not path.is_relative_to(repo_folder(access, _REPO)):
                    row.unverified_bytes += 1
                    row.fault(f"{label}: {path} is outside the repo's folder")
            shutil.rmtree(access.hub_cache, ignore_errors=True)
            shutil.rmtree(access.listings_dir, ignore_errors=True)
            shutil.rmtree(access.headers_dir, ignore_errors=True)
    return row


def _lied(draw: random.Random, sound: bytes) -> tuple[str, bytes]:
    """Return a list of a repo with one lie, and what it is."""
    if draw.randrange(2):
        kind = draw.choice((*MUTATIONS, *TEXT_MUTATIONS))
        return kind, damaged(sound, draw, kind)
    document = json.loads(sound)
    of = draw.choice(document["siblings"])
    of = draw.choice((of, of.get("lfs", of)))
    name = draw.choice(list(of))
    hashes = ("f" * 64, "F" * 64, "../" * 20, "", hashlib.sha256(b"").hexdigest())
    lies: tuple[object, ...] = {"rfilename": _NAMES, "size": _LIES[:5], "sha256": hashes}.get(name, _LIES)
    of[name] = draw.choice(lies if draw.randrange(8) else _LIES)
    document["siblings"] *= draw.choice((1, 1, 1, 2, 3000))
    return f"{name} = {of[name]!r:.60}", json.dumps(document).encode()


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
