"""What a repo holds and what a search found, on a screen: names that nobody vouches for, at any width."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench.hub.repo_records import RepoFile, RepoListing, RepoVariant
from ggbench.show.models import repo_report

SHARDS = tuple(RepoFile(f"q8_0/m-q8_0-0000{n}-of-00003.gguf", 5 << 30, "a" * 64, "b" * 40) for n in (1, 3))
LISTING = RepoListing(
    "org/name",
    "main",
    "c" * 40,
    (
        RepoVariant("q8_0/m-q8_0", "q8_0", SHARDS, ("q8_0/m-q8_0-00002-of-00003.gguf",)),
        RepoVariant("m-UD-Q4_K_XL", "ud-q4_k_xl", (RepoFile("m-UD-Q4_K_XL.gguf", 4 << 30, "d" * 64, "e" * 40),)),
    ),
    (RepoFile("mmproj-[bold]f16\x1b[31m.gguf", 1 << 20, "f" * 64, "0" * 40),),
    7,
    "2026-11-21T12:00:00+00:00",
)


@pytest.mark.parametrize("width", [60, 120])
def test_a_repo_on_a_screen(width: int, render: Callable[..., str]) -> None:
    text = render(
        repo_report(LISTING, {"m-UD-Q4_K_XL": [Path("m.gguf")]}, {"q8_0/m-q8_0": 13 << 27}, width=width), width=width
    )
    assert "14.0 GiB in 2 variants" in text
    assert "mmproj-[bold]f16[31m.gguf (1.00 MiB)" in " ".join(text.split())
    assert "\x1b" not in text
    assert "missing: q8_0/m-q8_0-00002-of-00003.gguf" in " ".join(text.split())
    [q8, q4] = [line for line in text.splitlines() if line.startswith(("q8_0 ", "ud-q4_k_xl "))][:2]
    assert ("10.0 GiB" in q8, "yes" in q8, "16 %" in q8) == (True, False, True)
    assert ("4.00 GiB" in q4, "yes" in q4) == (True, True)
    assert max(map(len, text.splitlines())) <= width
