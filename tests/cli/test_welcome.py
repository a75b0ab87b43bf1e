"""`ggbench` alone, in a terminal."""

from pathlib import Path

import pytest

from ggbench.cli import welcome
from tests.cli.conftest import Run
from tests.fakes.model_stores import gguf_bytes, hide_model_stores, put_in_hub_cache

no_system_folders = pytest.fixture(autouse=True)(hide_model_stores)


def welcomed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    welcome.show_welcome()
    return capsys.readouterr().out.splitlines()


def test_without_a_model_it_says_how_to_find_one(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    lines = welcomed(capsys)
    assert lines[:2] == ["No model on this disk.", "ggbench pick"]
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "ggbench demo", "ggbench results", "ggbench tui", "ggbench doctor", "ggbench --help"
    ]  # fmt: skip
    assert max(map(len, lines[1:])) <= 80
    assert not list(home.rglob("*.sqlite*")), "nothing was asked to be stored"


def test_with_models_it_names_one_of_them(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    put_in_hub_cache(home / "cache/huggingface/hub", "org/repo", "m-q8_0.gguf", gguf_bytes())
    folder = home / ".lmstudio/models/publisher/My Repo"
    folder.mkdir(parents=True)
    (folder / "small-q4_0.gguf").write_bytes(b"not a model")
    lines = welcomed(capsys)
    assert lines[0].startswith("1 model on this disk (")
    assert lines[1] == "ggbench pick --local"
    assert lines[3].split("  ")[0] == "ggbench decode org/repo q8_0"


def test_it_is_what_ggbench_alone_prints(ggbench: Run) -> None:
    assert ggbench().out.startswith("No model on this disk")
    assert ggbench("--help").out.startswith("Usage: ggbench")
