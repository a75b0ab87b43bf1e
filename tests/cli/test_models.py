"""`ggbench models`: the catalog, this disk, and a folder."""

from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.fakes.model_stores import gguf_bytes, hide_model_stores, put_in_hub_cache, put_in_ollama

no_system_folders = pytest.fixture(autouse=True)(hide_model_stores)


@pytest.fixture
def lm_studio(home: Path) -> Path:
    folder = home / ".lmstudio/models/publisher/My Repo"
    folder.mkdir(parents=True)
    return folder


def test_this_disk_is_listed(ggbench: Run, home: Path, lm_studio: Path) -> None:
    put_in_hub_cache(home / "cache/huggingface/hub", "org/repo", "m-q8_0.gguf", gguf_bytes())
    (lm_studio / "it's-q4_0.gguf").write_bytes(gguf_bytes())
    put_in_ollama(home / ".ollama/models", gguf_bytes("llama"), file_type="Q6_K")
    ran = ggbench("models")
    lines = ran.out.splitlines()
    assert " in the catalog, 3 models (" in lines[0]
    assert any(line.startswith("Hugging Face  q8_0") and line.endswith("  org/repo") for line in lines)
    assert any(line.endswith("""~/'.lmstudio/models/publisher/My Repo/it'"'"'s-q4_0.gguf'""") for line in lines)
    assert any(
        line.startswith("Ollama        q6_k") and "  llama3.2:1b  ~/.ollama/models/blobs" in line for line in lines
    )


def test_a_disk_without_models_says_what_to_do(ggbench: Run) -> None:
    ran = ggbench("models")
    assert (ran.code, ran.out.splitlines()[1]) == (0, "ggbench pick")
    assert "none on this disk" in ran.out
    assert ggbench("models", "--json").json["files"] == []


def test_names_that_would_steer_the_terminal_are_defused(ggbench: Run, lm_studio: Path) -> None:
    """The table defuses them; JSON escapes them, so that programs find the file."""
    path = lm_studio / "red\x1b[31m\u202e[bold]-q8_0.gguf"
    path.write_bytes(gguf_bytes("\x1b[2Jevil"))
    shown = ggbench("models", lm_studio).out
    assert "red[31m[bold]-q8_0.gguf" in shown
    assert all(line.isprintable() for line in shown.splitlines())
    (row,) = ggbench("models", lm_studio, "--json").json["files"]
    assert row["paths"] == [str(path)]


def test_a_projector_in_a_folder_is_no_model(ggbench: Run, tmp_path: Path) -> None:
    (tmp_path / "mmproj-m-f16.gguf").write_bytes(gguf_bytes("clip"))
    assert "No GGUF model in or below " in ggbench("models", tmp_path).out
    (tmp_path / "m-q8_0.gguf").write_bytes(gguf_bytes())
    assert [each["name"] for each in ggbench("models", tmp_path, "--json").json["files"]] == ["m-q8_0"]


def test_words_filter_the_catalog_and_the_disk(ggbench: Run, lm_studio: Path) -> None:
    (lm_studio / "Gemma-Tune-q8_0.gguf").write_bytes(gguf_bytes())
    document = ggbench("models", "GEMMA", "--json").json
    assert {row["id"].partition("-")[0] for row in document["rows"]} == {"gemma"}
    assert [each["name"] for each in document["files"]] == ["Gemma-Tune-q8_0"]
    assert [row["id"] for row in ggbench("models", "QAT", "a4b", "--json").json["rows"]] == ["gemma-4-26b-a4b-qat"]
    assert {row["id"][:8] for row in ggbench("models", "qwen3.x", "27b", "--json").json["rows"]} == {
        "qwen3.5-", "qwen3.6-", "qwen3.8-",
    }  # fmt: skip
    assert "--search hal9000" in ggbench("models", "hal9000").out
    assert ggbench("models", "gemma", "--search", "gemma").code == 2


def test_a_path_is_a_folder_to_list(ggbench: Run, tmp_path: Path) -> None:
    (tmp_path / "broken-q4_0.gguf").write_bytes(b"GGUF")
    ran = ggbench("models", tmp_path, "--json")
    assert ran.code == 0
    assert "broken-q4_0" in ran.out


def test_a_folder_that_has_none_or_is_not_there(ggbench: Run, tmp_path: Path) -> None:
    ran = ggbench("models", tmp_path)
    assert (ran.code, ran.err) == (0, "")
    assert ggbench("models", tmp_path, "--json").json["files"] == []
    assert ggbench("models", tmp_path / "nowhere").code == 5
