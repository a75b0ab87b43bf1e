"""WikiText-2's test text, the one of published perplexities, from the archive that llama.cpp's script downloads.

Source: llama.cpp, scripts/get-wikitext-2.sh. The archive lies in Hugging Face's cache, and the text is read from it
into memory. Nothing in the archive is trusted: not the sizes that it states, and not that it has the text.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from ggbench.errors import BadFile, NetworkError
from ggbench.hub.access import HubAccess
from ggbench.hub.download import download
from ggbench.hub.download_progress import FileProgress
from ggbench.hub.hf_cache import cached_file, verify_blob
from ggbench.hub.listing import find_file
from ggbench.text import plain
from ggbench.units import format_bytes

WIKITEXT_2 = "wikitext-2"
REPO = "datasets/ggml-org/ci"
ARCHIVE = "wikitext-2-raw-v1.zip"
MEMBER = "wikitext-2-raw/wiki.test.raw"
SHA256 = "173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08"
"""Of the text that published figures are of, 1,290,590 bytes: a file with this hash is it, whatever its name."""

_LARGEST_BYTES = 1 << 26
_OTHER_TEXT = "score another text with --text FILE"


def find_archive(access: HubAccess) -> Path | None:
    """Return the archive where it is on this disk, without the network; else None."""
    return cached_file(access, REPO, ARCHIVE)


def fetch_archive(
    access: HubAccess,
    *,
    on_progress: Callable[[tuple[FileProgress, ...]], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> Path:
    """Return the archive, downloaded and verified where it is not on this disk. Raises as `hub.download.download`."""
    found = find_archive(access)
    if found is not None:
        return found
    if access.offline:
        raise NetworkError(
            f"{WIKITEXT_2} is not on this disk, and there is no network by --offline or HF_HUB_OFFLINE",
            f"run it once with a network, or {_OTHER_TEXT}",
        )
    listing = find_file(access, REPO, ARCHIVE)
    (path,) = download(access, listing, listing.variants[0], on_progress=on_progress, cancel=cancel)
    return path


def read_text_bytes(archive: Path) -> bytes:
    """Return the text's bytes. Raises BadFile for an archive that is damaged or does not have it."""
    name = plain(str(archive))
    if verify_blob(archive).matches is False:
        raise BadFile(f"{name} is damaged: its SHA-256 is not the one in its name", "remove it, to download it again")
    try:
        with zipfile.ZipFile(archive) as opened:
            member = opened.getinfo(MEMBER)
            if member.file_size > _LARGEST_BYTES:
                raise BadFile(f"{MEMBER} in {name} would take {format_bytes(member.file_size)}", _OTHER_TEXT)
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile(f"{MEMBER} is compressed in another way")
            with opened.open(member) as stream:
                return stream.read(_LARGEST_BYTES)
    except KeyError:
        raise BadFile(f"{name} has no {MEMBER}", _OTHER_TEXT) from None
    except (zipfile.BadZipFile, zlib.error, RuntimeError, EOFError, OSError, ValueError) as error:
        raise BadFile(f"{name} cannot be read: {plain(str(error)) or type(error).__name__}", _OTHER_TEXT) from None
