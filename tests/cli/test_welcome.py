"""`ggbench` alone, in a terminal."""

import contextlib
import sqlite3
import sys
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.cli import welcome
from ggbench.models.catalog import load_catalog
from ggbench.runs.store.database import Store
from tests.cli.conftest import Run
from tests.fakes.model_stores import gguf_bytes, hide_model_stores, put_in_hub_cache

no_system_folders = pytest.fixture(autouse=True)(hide_model_stores)


def welcomed(capsys: pytest.CaptureFixture[str]) -> list[str]:
    welcome.show_welcome()
    return capsys.readouterr().out.splitlines()


def test_without_a_model_it_names_a_family_to_choose_from(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    lines = welcomed(capsys)
    assert lines[0].startswith("this machine  ") and " of main memory; " in lines[0]
    assert lines[1:3] == [
        "on this disk  no model in the folders of Hugging Face, llama.cpp, LM Studio and Ollama",
        "measured      nothing yet",
    ]
    assert [line.split("  ")[1] for line in lines[4:7]] == [
        f"ggbench pick --family {welcome.FAMILY}", "ggbench demo", "ggbench tui"
    ]  # fmt: skip
    assert max(map(len, lines[1:])) <= 86
    assert not list(home.rglob("*.sqlite*")), "nothing was asked to be stored"


def test_the_family_is_in_the_catalog_in_many_sizes() -> None:
    assert sum(model.family == welcome.FAMILY for model in load_catalog()) > 3


def test_with_models_it_names_one_of_them(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    put_in_hub_cache(home / "cache/huggingface/hub", "org/repo", "m-q8_0.gguf", gguf_bytes())
    folder = home / ".lmstudio/models/publisher/My Repo"
    folder.mkdir(parents=True)
    (folder / "small-q4_0.gguf").write_bytes(b"not a model")
    lines = welcomed(capsys)
    assert lines[1].startswith("on this disk  1 GGUF model, ")
    assert lines[4:6] == [
        "  ggbench pick                  which of them to run here, and why",
        "  ggbench decode org/repo q8_0  how fast the smallest is, as its context grows",
    ]


def test_results_that_cannot_be_read_are_not_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open():
        pass
    with contextlib.closing(sqlite3.connect(paths.results_file())) as newer:
        newer.execute("PRAGMA user_version = 999")
    assert welcomed(capsys)[2] == "measured      the results cannot be read; see why with: ggbench doctor"
    paths.results_file().write_text("not a database")
    assert welcomed(capsys)[2].startswith("measured      the results file was damaged; it is kept as ")


def test_a_terminal_gets_it_and_a_pipe_gets_help(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ggbench().out.startswith("Usage: ggbench")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ggbench().out.startswith("this machine  ")
    assert ggbench("--help").out.startswith("Usage: ggbench")
