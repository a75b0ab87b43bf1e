"""What the shells are offered, asked as their own scripts ask, and in a real bash."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggbench import paths
from ggbench.models.added_places import add_server
from ggbench.runs.store.database import Store
from tests.cli.conftest import Run
from tests.fakes.measured import put_run, start

SHELLS = ("bash", "zsh", "fish")
Complete = Callable[..., list[str]]


@pytest.fixture
def complete(ggbench: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Complete:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    def ask(*words: str, shell: str = "bash") -> list[str]:
        line = " ".join(["ggbench", *words])
        cword = {"bash": "", "zsh": str(len(words)), "fish": words[-1]}[shell]
        given = {"COMP_WORDS": line, "COMP_CWORD": cword, "COMP_LINE": line}
        for name, value in (given | {"_GGBENCH_COMPLETE": f"{shell}_complete"}).items():
            monkeypatch.setenv(name, value)
        ran = ggbench()
        lines = ran.out.strip("\n").splitlines()
        assert (ran.code, ran.err) == (0, "")
        if shell == "zsh":
            return lines[1::3]
        return [line.split(",", 1)[1].split("\t")[0] for line in lines]

    return ask


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_choices_are_offered(complete: Complete, shell: str) -> None:
    assert complete("pl", shell=shell) == ["plan"]
    assert complete("results", "r", shell=shell) == ["rm"]
    assert "--flash-attn" in complete("plan", "x", "--fl", shell=shell)
    assert complete("plan", "x", "--flash-attn", "o", shell=shell) == ["on", "off"]
    assert complete("help", "num", shell=shell) == ["numbers"]


@pytest.mark.parametrize("shell", SHELLS)
def test_models_are_offered_by_id_twin_server_and_download(
    complete: Complete, shell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bash keeps the part of a word before a colon, so it gets only the rest."""
    add_server("http://127.0.0.1:8080")
    snapshot = tmp_path / "hub/models--org--tiny-GGUF/snapshots/abc"
    snapshot.mkdir(parents=True)
    (snapshot / "tiny-Q4_K_M.gguf").write_bytes(b"")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    assert complete("decode", "qwen2.5-14", shell=shell) == ["qwen2.5-14b"]
    assert complete("plan", "org", shell=shell) == ["org/tiny-GGUF"]
    assert complete("plan", "org/tiny-GGUF", "q", shell=shell) == ["q4_k_m"]
    twin = {"bash": "qwen1.5-14b", "zsh": "twin\\:qwen1.5-14b", "fish": "twin:qwen1.5-14b"}
    assert complete("decode", "twin:qwen1.5-14", shell=shell) == [twin[shell]]
    server = {"bash": "8080", "zsh": "http\\://127.0.0.1\\:8080", "fish": "http://127.0.0.1:8080"}
    assert complete("decode", "http://127.0.0.1:", shell=shell) == [server[shell]]


def test_quants_are_those_of_the_model(complete: Complete, tiny_twin: Path) -> None:
    assert {"q4_0", "q4_k_m"} <= set(complete("plan", "qwen2.5-7b", "q4"))
    assert "q8_0" in complete("decode", "twin:qwen1.5-0.5b", "")
    assert "q4_0" not in complete("plan", "qwen2.5-7b", "q4_0", "q4")
    shutil.copy(tiny_twin, "tiny-q5_k_m.gguf")
    assert complete("plan", "./", "") == ["q5_k_m"]


def test_runs_are_offered_newest_first_and_the_results_file_stays_as_it_is(complete: Complete) -> None:
    assert complete("results", "show", "") == [""]
    assert not Path(os.environ["HOME"]).joinpath(".local/share/ggbench").exists()
    with Store.open() as store:
        for quant in ("q8_0", "q4_0"):
            put_run(store, start(quant=quant), n_gen=3)
        path = store.path
    before = path.read_bytes()
    assert complete("results", "show", "") == complete("compare", "") == ["2", "1"]
    assert complete("compare", "2", "") == ["1"]
    assert complete("compare", "--model", "twi") == ["twin:qwen1.5-0.5b"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("words", [("decode", "x::y", ""), ("plan", "nothing", "")])
def test_what_cannot_be_known_offers_nothing_and_says_nothing(complete: Complete, words: tuple[str, ...]) -> None:
    """A message would appear in the middle of the line being typed."""
    assert set(complete(*words)) <= {""}


def test_models_are_offered_without_what_lists_and_reads_files() -> None:
    asked = {"COMP_LINE": "ggbench plan qw", "_GGBENCH_COMPLETE": "bash_complete"}
    command = [sys.executable, "-X", "importtime", "-P", "-m", "ggbench"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | asked)
    assert "plain,qwen2.5-14b" in ran.stdout.splitlines()
    imported = {line.split("|")[-1].strip() for line in ran.stderr.splitlines()}
    assert "ggbench.models.catalog" in imported
    assert not imported & {"ggbench.models.disk", "ggbench.models.reference", "ggbench.gguf_file.header", "numpy"}


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_twin_after_its_colon(tmp_path: Path) -> None:
    program = tmp_path / "ggbench"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ggbench "$@"\n')
    program.chmod(0o755)
    script = f"""
    PATH={tmp_path}:$PATH
    eval "$(_GGBENCH_COMPLETE=bash_source ggbench)"
    COMP_LINE="ggbench plan twin:qwen1.5-14" COMP_POINT=29
    COMP_WORDS=(ggbench plan twin : qwen1.5-14) COMP_CWORD=4
    _ggbench_completion ggbench
    echo "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "qwen1.5-14b\n"


def test_gpus_are_offered_and_damage_says_nothing(complete: Complete) -> None:
    """The command itself reports it once it runs."""
    assert "rtx-4090" in complete("plan", "x", "--gpu", "rtx-40")
    for file in (paths.user_models_file(), paths.results_file()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"= no\x00 =")
    assert complete("plan", "q") == []
    assert complete("results", "show", "") == [""]
