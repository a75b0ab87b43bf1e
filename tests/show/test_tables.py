"""Tables in a narrow terminal."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console, RenderableType

from ggbench.hub.repo_records import RepoFile, RepoListing, RepoSummary, RepoVariant
from ggbench.models.catalog import load_catalog
from ggbench.models.disk import LocalModel
from ggbench.show.models import catalog_table, local_models_listing, repo_report, search_table
from ggbench.show.tables import fitted_table, names, right


def _lines(width: int) -> list[str]:
    """Return a table of two models with long names, as a terminal of this width shows it."""
    models = ("Meta-Llama-3.1-8B-Instruct-Abliterated", "DeepSeek-R1-Distill-Qwen-14B-Uncensored")
    columns = [
        names("", ("→ pick", "more context")),
        names("model", models),
        names("quant", ("q4_k_m", "q8_0")),
        right("loss", ("~0.021", "~0.00086"), "nats"),
        right("answer", ("≤ 38.0", "≤ 46.2"), "tok/s"),
        right("max n_ctx", ("14,336", "66,304*"), "tokens"),
        right("file", ("8.37 GiB", "14.6 GiB"), "", 1),
    ]
    return _text(fitted_table(columns, width=width), width).splitlines()


def _text(shown: RenderableType, width: int) -> str:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_long_names_wrap_and_no_number_is_cut() -> None:
    """The file's size, of the least importance, is left out."""
    text = "\n".join(_lines(80))
    assert "…" not in text
    assert all(part in text for part in ("~0.00086", "≤ 46.2", "66,304*", "more context", "answer"))
    assert "omitted for width: file; --json has them all" in text


def test_columns_are_left_out_whole() -> None:
    lines = _lines(48)
    assert "…" not in "\n".join(lines)
    assert max(map(len, lines)) <= 48
    assert "~0.00086" in "\n".join(lines)
    assert "omitted for width: answer, max n_ctx, file;" in " ".join("\n".join(lines).split())


SHARDS = tuple(RepoFile(f"q8_0/m-q8_0-0000{n}-of-00003.gguf", 5 << 30, "a" * 64, "b" * 40) for n in (1, 3))
LISTING = RepoListing(
    "org/name", "main", "c" * 40,
    (
        RepoVariant("q8_0/m-q8_0", "q8_0", SHARDS, ("q8_0/m-q8_0-00002-of-00003.gguf",)),
        RepoVariant("m-UD-Q4_K_XL", "ud-q4_k_xl", (RepoFile("m-UD-Q4_K_XL.gguf", 4 << 30, "d" * 64, "e" * 40),)),
    ),
    (RepoFile("mmproj-[bold]f16\x1b[31m.gguf", 1 << 20, "f" * 64, "0" * 40),),
    7, "2026-11-21T12:00:00+00:00",
)  # fmt: skip


@pytest.mark.parametrize("width", [60, 120])
def test_a_repo_is_shown_with_what_is_here_and_what_is_missing(width: int) -> None:
    """Whoever wrote the repo cannot steer the terminal by the names in it."""
    shown = repo_report(LISTING, {"m-UD-Q4_K_XL": [Path("m.gguf")]}, {"q8_0/m-q8_0": 13 << 27}, width=width)
    text = _text(shown, width)
    words = " ".join(text.split())
    assert "14.0 GiB in 2 variants" in words and "mmproj-[bold]f16[31m.gguf (1.00 MiB)" in words
    assert "\x1b" not in text
    assert "missing: q8_0/m-q8_0-00002-of-00003.gguf" in words
    [q8, q4] = [line for line in text.splitlines() if line.startswith(("q8_0 ", "ud-q4_k_xl "))][:2]
    assert ("10.0 GiB" in q8, "yes" in q8, "16 %" in q8) == (True, False, True)
    assert ("4.00 GiB" in q4, "yes" in q4) == (True, True)
    assert max(map(len, text.splitlines())) <= width


def test_unknown_counts_of_found_repos_are_no_zeros() -> None:
    found = [
        RepoSummary("org/one", 12345, 6, "2026-01-02T03:04:05Z", False),
        RepoSummary("o/2", None, None, None, True),
    ]
    one, two = _text(search_table(found, width=80), 80).splitlines()[-2:]
    assert all(word in one for word in ("org/one", "12,345", "6", "2026-01-02"))
    assert ("—" in two, "yes" in two, "0" in two) == (True, True, False)


def test_ones_own_model_is_marked_and_a_file_shown_with_what_is_wrong() -> None:
    (shipped, *_) = load_catalog()
    own = replace(shipped, id="mine", title="My [own] model", repo=None, origin="user")
    text = _text(catalog_table([shipped, own], {shipped.id: ("q4_k_m", "q8_0")}, width=120), 120)
    assert "mine*" in text and "My [own] model" in text and "*: from your own models.toml" in text
    assert f"{shipped.id}*" not in text and "q4_k_m q8_0" in text
    shards = (Path("/m/big-00001-of-00003.gguf"), Path("/m/big-00003-of-00003.gguf"))
    found = [
        LocalModel("LM Studio", "big", str(shards[0]), None, shards, 9 << 30, reason="1 of 3 shards is missing"),
        LocalModel("Ollama", "gone:latest", "", None, (), None, reason="its blob is not there"),
        LocalModel("folder", "a b", "~/My Models/a b.gguf", None, (Path("/h/My Models/a b.gguf"),), 1 << 20),
    ]
    _, _, big, gone, spaced = local_models_listing(found).plain.splitlines()
    assert big.endswith("  /m/big-00001-of-00003.gguf  (1 of 3 shards is missing)")
    assert "Ollama" in gone and gone.endswith("  gone:latest  (its blob is not there)")
    assert spaced.endswith("  ~/'My Models/a b.gguf'")
