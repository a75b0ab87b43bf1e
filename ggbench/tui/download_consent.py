"""Whether what a person starts may be downloaded: nothing offline, a little at once, more after a question."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.catalog.file_sources import CONFIRM_ABOVE_BYTES
from ggbench.catalog.selector import Target
from ggbench.errors import GgbenchError, NetworkError, UsageError
from ggbench.plain import plain
from ggbench.units import format_bytes


def refusal(targets: Sequence[Target], download_bytes: int, *, is_offline: bool) -> GgbenchError | None:
    """Why it cannot begin, with what to do; None where it can."""
    if not targets:
        why = "a twin is made where it is measured, and the others are on this disk"
        return UsageError("nothing to download", why)
    if download_bytes and is_offline:
        what = f"{format_bytes(download_bytes)} would have to be downloaded, and this is offline"
        return NetworkError(what, "a twin needs no network: see synth: on the left")
    return None


def download_question(targets: Sequence[Target], download_bytes: int) -> str | None:
    """What to ask first, printable; None where it may begin at once."""
    if download_bytes <= CONFIRM_ABOVE_BYTES:
        return None
    names = ", ".join(dict.fromkeys(f"{target.model} {target.quant}" for target in targets))
    return plain(f"Download {format_bytes(download_bytes)} into Hugging Face's cache: {names}?")
