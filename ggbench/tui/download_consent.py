"""Ask before a large download: up to 1 GB proceeds, more asks, and nothing is downloaded offline."""

from __future__ import annotations

from collections.abc import Sequence

from ggbench.catalog.file_sources import CONFIRM_ABOVE_BYTES
from ggbench.catalog.selector import Target
from ggbench.errors import GgbenchError, NetworkError, UsageError
from ggbench.plain import plain
from ggbench.units import format_bytes


def refusal(targets: Sequence[Target], download_bytes: int, *, is_offline: bool) -> GgbenchError | None:
    """Return why it cannot start, with a hint; None if it can."""
    if not targets:
        hint = "twins are written when they are measured; the other files are already on this disk"
        return UsageError("nothing to download", hint)
    if download_bytes and is_offline:
        message = f"{format_bytes(download_bytes)} must be downloaded, but ggbench is offline"
        return NetworkError(message, "twins need no network: see synth: on the left")
    return None


def download_question(targets: Sequence[Target], download_bytes: int) -> str | None:
    """Return the question to ask first, printable; None if the download may start at once."""
    if download_bytes <= CONFIRM_ABOVE_BYTES:
        return None
    names = ", ".join(dict.fromkeys(f"{target.model} {target.quant}" for target in targets))
    return plain(f"Download {format_bytes(download_bytes)} into Hugging Face's cache: {names}?")
