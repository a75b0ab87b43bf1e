"""What the shells are offered, asked as their own scripts ask."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Run

Complete = Callable[..., list[str]]


@pytest.fixture
def complete(ggbench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    def ask(*words: str, shell: str) -> list[str]:
        line = " ".join(["ggbench", *words])
        cword = words[-1] if shell == "fish" else str(len(words))
        for name, value in {"COMP_WORDS": line, "COMP_CWORD": cword, "_GGBENCH_COMPLETE": f"{shell}_complete"}.items():
            monkeypatch.setenv(name, value)
        ran = ggbench()
        assert (ran.code, ran.err) == (0, "")
        lines = ran.out.strip("\n").splitlines()
        if shell == "zsh":
            return lines[1::3]
        return [line.split(",", 1)[1].split("\t")[0] for line in lines]

    return ask


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_commands_options_choices_and_models_are_offered(complete: Complete, shell: str) -> None:
    assert complete("pl", shell=shell) == ["plan"]
    assert complete("results", "r", shell=shell) == ["rm"]
    assert "--flash-attn" in complete("plan", "x", "--fl", shell=shell)
    assert complete("plan", "x", "--flash-attn", "o", shell=shell) == ["on", "off"]
    assert complete("decode", "qwen2.5-14", shell=shell) == ["qwen2.5-14b"]
    assert complete("decode", "x::y", shell=shell) == ["x::y"]  # for the shell, as a file
