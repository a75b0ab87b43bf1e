"""The program that serves: how it is found, asked, and told from others."""

import contextlib
import os
import select
from pathlib import Path

import pytest

from ggbench.commands.measure_options import run_by
from ggbench.engines.http import program
from ggbench.engines.http.config import LlamaServerConfig
from ggbench.engines.http.program import (
    check_words,
    describe_build,
    find_server,
    printed_program,
    unused_gpus,
)
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.machine.address_space import CAN_LIMIT
from tests.fakes.llama_server import install, install_app

on_linux = pytest.mark.skipif(not CAN_LIMIT, reason="needs Linux's limits and /proc")
LLAMA = LlamaConfig(n_ctx=1280, threads=1, type_k="q8_0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vllm", "no engine named 'vllm'"),
        ("llama-server=/no/such", "/no/such was not found"),
        ("llama-server='/no", "unbalanced quotes"),
        ("llama-server={tmp}/plain", "is not executable"),
        ("llama-server={tmp}/llama-server --port 8080", "ggbench sets --port itself"),
        ("llama-server={tmp}/llama-server --host=0.0.0.0", "ggbench sets --host=0.0.0.0 itself"),
        ("llama-server", "llama-server was not found"),
        ("llama-server=llama serve", "llama was not found"),
        ("llama serve", "llama was not found"),
    ],
)
def test_bad_words_are_usage_errors(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    (tmp_path / "plain").write_text("")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsageError, match=message):
        run_by(text.replace("{tmp}", str(tmp_path)), LLAMA)


def test_it_is_found_on_path_also_in_a_folder_with_spaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "my builds"
    folder.mkdir()
    program = install(folder)
    monkeypatch.setenv("PATH", str(folder))
    assert run_by("llama-server", LLAMA) == run_by(f"llama-server={program}", LLAMA)
    for text in (f"llama-server='{program}' -dev Vulkan0", "llama-server -dev Vulkan0", "llama-server=-dev Vulkan0"):
        setup = run_by(text, LLAMA)
        assert isinstance(setup, LlamaServerConfig) and setup.words == [str(program), "-dev", "Vulkan0"]
    assert run_by(setup.engine_option, LLAMA) == setup


@pytest.mark.parametrize("given", ["", "llama server", "{path}", "{path} serve"])
def test_one_program_for_all_serves_by_its_command(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`llama --help` has no option of a server, so `llama serve` is asked; with flags of the user's behind it."""
    path = install_app(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    command = given.format(path=path)
    assert find_server(command.split()) == [str(path), "serve"]
    assert run_by("llama serve -fa off", LLAMA) == run_by("llama-server -fa off", LLAMA)
    setup = run_by(f"llama-server={command} -dev Vulkan0" if command else "llama-server", LLAMA)
    assert isinstance(setup, LlamaServerConfig) and setup.program_words == [str(path), "serve"]
    assert describe_build(setup.program_words).commit == "0c1e570"
    assert run_by(setup.engine_option, LLAMA) == setup


def test_a_build_with_other_commands_ends_in_a_line_with_what_was_run(tmp_path: Path) -> None:
    path = install_app(tmp_path, command="launch")
    with pytest.raises(UsageError, match=f"{path} serve --help does not show .*: error: unknown command 'serve'"):
        check_words(find_server([str(path)]))


@on_linux
def test_a_program_that_hangs_ends_in_a_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ggbench.engines.http.program._ANSWER_S", 0.2)
    program = tmp_path / "llama-server"
    program.write_text(f"#!/bin/sh\nsleep 600 &\necho $! > {tmp_path}/pid\nwait\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match=r"llama-server --help .*: no answer within 0\.2 s"):
        describe_build([str(program)])
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # it is gone already, or never began
        sleeper = os.pidfd_open(int((tmp_path / "pid").read_text()))
        assert select.select([sleeper], [], [], 20)[0]
        os.close(sleeper)


def test_a_program_that_prints_without_end_is_cut(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\nexec yes no llama-server\n")
    program.chmod(0o755)
    with pytest.raises(UsageError, match="does not show the options of a llama-server"):
        describe_build([str(program)])


def _here() -> tuple[str, tuple[str, ...]]:
    """Ask the programs on PATH again; return the printed program and the unused GPUs."""
    program._known.cache_clear()
    return printed_program(), unused_gpus()


def test_the_printed_program_is_the_one_that_is_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert _here() == ("llama-server", ())
    (tmp_path / "other").mkdir()
    install_app(tmp_path / "other", command="launch")
    monkeypatch.setenv("PATH", f"{tmp_path}/other:/usr/bin:/bin")
    assert _here() == ("llama-server", ()), "another llama does not serve"
    path = install_app(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    gpus = ("llvmpipe (LLVM 15.0.6, 256 bits)",)
    assert _here() == ("llama serve", gpus)
    path.write_text(f"#!/bin/sh\n[ $2 = --help ] || touch {tmp_path}/served\n")
    assert _here() == ("llama-server", ())
    assert not (tmp_path / "served").exists(), "another llama is asked for help alone"
    install(tmp_path)
    assert _here() == ("llama-server", gpus)


@on_linux
@pytest.mark.parametrize(
    ("flags", "gpus"),
    [
        ("", {"Vulkan0": 2 << 30}),
        ("-dev vulkan0,cuda7", {"Vulkan0": 2 << 30}),
        ("-dev CUDA1", {}),
        ("-dev none", None),
        ("-ngl 9 -ngl 0", None),
        ("--rpc 10.0.0.7:50052", {"RPC0": 8 << 30, "Vulkan0": 2 << 30}),
        ("--rpc 10.0.0.7:50052 -dev RPC0", {"RPC0": 8 << 30}),
    ],
)
def test_the_gpus_are_those_that_the_program_lists_and_the_users_flags_leave(
    flags: str, gpus: dict[str, int] | None, tmp_path: Path
) -> None:
    setup = run_by(f"llama-server={install(tmp_path)} {flags}", LlamaConfig())
    assert (setup.listed_gpus() if setup.may_use_gpu else None) == gpus
