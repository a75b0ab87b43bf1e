"""What `models` and `inspect` say of unmeasured models."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from ggbench.gguf_file.model_file import LayerState, ModelFile
from ggbench.hub.repo_records import RepoFile, RepoListing, RepoSummary, RepoVariant
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel
from ggbench.show.models import (
    HEADER,
    VariantRow,
    catalog_rows,
    folder_answer,
    header_answer,
    matching_answer,
    models_answer,
    repo_answer,
    search_answer,
)

Golden = Callable[[str, str], None]
Render = Callable[..., str]
SHARDS = tuple(RepoFile(f"q8_0/m-q8_0-0000{n}-of-00003.gguf", 5 << 30, "a" * 64, "b" * 40) for n in (1, 3))
LISTING = RepoListing(
    "org/name", "main", "c" * 40,
    (
        RepoVariant("q8_0/m-q8_0", "q8_0", SHARDS, ("q8_0/m-q8_0-00002-of-00003.gguf",)),
        RepoVariant("m-UD-Q4_K_XL", "ud-q4_k_xl", (RepoFile("m-UD-Q4_K_XL.gguf", 4 << 30, "d" * 64, "e" * 40),)),
    ),
    (RepoFile("mmproj-[bold]f16\x1b[31m.gguf", 1 << 20, "f" * 64, "0" * 40),),
    "2026-11-21T12:00:00+00:00",
)  # fmt: skip
ROWS = (VariantRow(LISTING.variants[0], (), 13 << 27), VariantRow(LISTING.variants[1], (Path("m.gguf"),), 4 << 30))
TWIN = LocalModel("twins", "qwen3-4b-q4_k_m", "twin:qwen3-4b", "q4_k_m", (Path("/t.gguf"),), 2 << 30, is_twin=True)
FOUND = (
    LocalModel(
        "LM Studio", "big", "/m/big.gguf", None, (Path("/m/big.gguf"),), 9 << 30, reason="1 of 3 shards is missing"
    ),
    LocalModel("Ollama", "gone:latest", "", None, (), None, reason="its blob is not there"),
    LocalModel("folder", "a b", "~/My Models/a b.gguf", None, (Path("/h/My Models/a b.gguf"),), 1 << 20),
    TWIN,
)


def test_what_is_there_is_counted_on_the_first_line(render: Render) -> None:
    """The current models of the catalog take a line a family; each model with its repo is behind --why."""
    catalog = catalog_rows(load_catalog())
    answer = models_answer(catalog, FOUND)
    lines = render(answer).splitlines()
    assert lines[:2] == [f"{len(catalog)} models in the catalog, 3 models (11.0 GiB) on this disk.", "ggbench pick"]
    big, gone, spaced, twin = (" ".join(line.split()) for line in lines[4:8])
    assert big == "LM Studio — 9.00 GiB /m/big.gguf 1 of 3 shards is missing"
    assert gone == "Ollama — — gone:latest its blob is not there"
    assert spaced.endswith("~/'My Models/a b.gguf'") and twin.endswith("twin:qwen3-4b")
    (gpt,) = [line.split() for line in lines if line.startswith("gpt ")]
    assert gpt == ["gpt", "gpt-oss-120b", "gpt-oss-20b"]
    assert len(render(models_answer(catalog, ())).splitlines()) < 24
    assert "Qwen/Qwen3-4B-GGUF" in render(answer.rich(why=True), 120) and "Qwen/Qwen3-4B-GGUF" not in render(answer)


def test_models_that_match_name_the_command_to_type(render: Render) -> None:
    rows = [row for row in catalog_rows(load_catalog()) if row.id == "qwen3-4b"]
    own = replace(rows[0], id="mine", title="My [own] model", repo=None, origin="user")
    assert matching_answer("4b", [*rows, own], FOUND).command == "ggbench bench ~/'My Models/a b.gguf'"
    answer = matching_answer("4b", [*rows, own], ())
    assert answer.command == "ggbench pick qwen3-4b"
    shipped, mine = render(answer, 140).splitlines()[-2:]
    assert shipped.split()[0] == "qwen3-4b" and mine.split()[0] == "mine" and mine.endswith("your models.toml")
    assert matching_answer("a b", (), ()).command == "ggbench models --search 'a b'"
    assert folder_answer(Path("/a b"), FOUND[2:]).command == "ggbench pick '/a b'"
    assert folder_answer(Path("/a b"), FOUND[:1]).command == "", "none of them can be run"


@pytest.mark.parametrize("width", [60, 120])
def test_a_repo_is_shown_with_what_is_here_and_what_is_missing(render: Render, width: int) -> None:
    """Whoever wrote the repo cannot steer the terminal by the names in it."""
    answer = repo_answer(LISTING, ROWS, "org/name")
    text = render(answer.rich(why=True), width)
    assert text.splitlines()[:2] == ["org/name has 2 quants, 14.0 GiB in all, 1 of them here.", "ggbench plan org/name"]
    assert "mmproj-[bold]f16[31m.gguf (1.00 MiB)" in text
    assert "\x1b" not in text
    [q8, q4] = [line for line in text.splitlines() if line.startswith(("q8_0 ", "ud-q4_k_xl "))]
    assert ("10.0 GiB" in q8, "100 %" in q8, "16 %" in q8) == (True, False, True)
    assert ("4.00 GiB" in q4, "100 %" in q4) == (True, True)
    assert "q8_0/m-q8_0-00002-of-00003.gguf" in " ".join(text.split())


def test_unknown_counts_of_found_repos_are_no_zeros(render: Render) -> None:
    found = [
        RepoSummary("org/one", 12345, "2026-01-02T03:04:05Z", False),
        RepoSummary("o/2", None, None, True),
    ]
    one, two = render(search_answer("x", found), 80).splitlines()[-2:]
    assert one.split() == ["org/one", "12,345", "2026-01-02", "no"]
    assert two.split() == ["o/2", "—", "—", "yes"]


def test_a_header(model_file: ModelFile, render: Render, golden: Golden) -> None:
    answer = header_answer(model_file, "/models/tiny-moe-q4_k_m.gguf")
    golden("inspect.txt", render(answer))
    golden("inspect_why.txt", render(answer.rich(why=True)))


def test_what_the_header_cannot_tell_is_a_note(model_file: ModelFile, render: Render) -> None:
    recurrent = replace(model_file, no_kv_reason="keeps a recurrent state")
    assert "it keeps a recurrent state" in render(header_answer(recurrent, "x.gguf"))
    assert {figure.key: figure.get(recurrent) for figure in HEADER}["kv_bytes_per_token"] is None


def test_windows_and_recurrent_states_are_figures_of_their_own(model_file: ModelFile, render: Render) -> None:
    states = (model_file.states[0].within(1024), LayerState(recurrent_elements=1 << 18))
    text = render(header_answer(replace(model_file, sliding_window=1024, states=states), "x.gguf").rich(why=True), 140)
    assert "1,024" in text and "1.00 MiB" in text
