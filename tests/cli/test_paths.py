"""Where ggbench keeps what is its own, for users without a home too."""

import os
import pwd
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.errors import UsageError
from tests.cli.conftest import Run


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a home, as in a container with an arbitrary uid; the value is the current folder."""

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("HOME", *(name for name in os.environ if name.startswith(("XDG_", "HF_")))):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("named", ["~/.local/share/ggbench", None], ids=["older platformdirs", "platformdirs"])
def test_a_user_without_a_home_is_told_what_to_set(
    named: str | None, no_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is written to a folder named `~`, which older platformdirs return."""
    if named:
        monkeypatch.setattr(type(paths._dirs), "user_data_dir", named)
    with pytest.raises(UsageError, match="no home") as caught:
        paths.results_file()
    assert "XDG_DATA_HOME" in caught.value.hint
    assert list(no_home.iterdir()) == []


@pytest.mark.parametrize("command", [["models"], ["plan", "qwen1.5-0.5b", "q4_0"], ["results"]])
def test_commands_need_no_home_where_the_folders_are_named(
    command: list[str], no_home: Path, ggbench: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATA", "CACHE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(no_home / name))
    assert ggbench(*command).code == 0
    assert {entry.name for entry in no_home.iterdir()} <= {"DATA", "CACHE", "CONFIG"}
