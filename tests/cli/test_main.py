"""The entry point: help, errors in two lines, exit codes, and what it does not import."""

import errno
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import pytest

from ggbench.cli.main import COMMANDS, cli
from ggbench.errors import BadFile, DoesNotFit, EngineFailed, ExitCode, GgbenchError, NetworkError, UsageError
from tests.cli.conftest import Run


def test_help_lists_every_command(ggbench: Run) -> None:
    ran = ggbench("--help")
    assert ran.code == 0
    assert all(name in ran.out for name in COMMANDS)
    assert "ggbench demo" in ran.out


def test_windows_is_refused_at_once(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.cli.main.sys.platform", "win32")
    ran = ggbench("models")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "Error: ggbench does not run on Windows\nHint: run it in WSL 2\n"


_LIGHT = (
    "import sys\nfrom ggbench.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    "heavy = {'numpy', 'llama_cpp', 'rich', 'psutil', 'pynvml', 'msgspec', 'sqlite3'} & set(sys.modules)\n"
)
_ANSWERS = (
    "import sys, ggbench.decisions.pick.candidates, ggbench.decisions.pick.show, ggbench.decisions.plan\n"
    "import ggbench.decisions.doctor.show\nheavy = {'numpy', 'llama_cpp', 'yaml'} & set(sys.modules)\n"
)


@pytest.mark.parametrize("script", [_LIGHT, _ANSWERS])
def test_help_and_answers_import_nothing_heavy(script: str) -> None:
    script += "sys.exit(' '.join(heavy) or 0)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("args", "what", "hint"),
    [
        (["bensh"], "no command named 'bensh'", "nearest: bench"),
        (["help", "workload"], "no command named 'workload'", "see: ggbench help rules"),
        (["maxctx", "m", "--gpu", "m4"], "No such option '--gpu'", "ggbench plan and pick --gpu answer for others"),
        (["pick", "--workload", "documents.txt"], "'documents.txt' is not a workload", "use chat, coding, documents"),
        (["pick", "--as", "preset", "--json"], "--as, --json and --md", "keep one"),
        (["pick", "--as", "sh", "--md"], "--as, --json and --md", "keep one"),
        (["decode", "m", "-n", "0"], "--n-gen: '0' is out of range", "write 1 to 2,147,483,647 tokens"),
        (["decode", "m", "-c", "16,38"], "--n-ctx: '16,38' is not a number of tokens", "write 16384, 16,384 or 16k"),
        (["decode", "m", "-t", "9999"], "9999 is not in the range 1<=x<=512", "see: ggbench decode --help"),
        (["decode", "m", "--type-k", "q9"], "'q9' is not one of 'f32', 'f16'", "see: ggbench decode --help"),
        (["decode", "m", "--bandwidth", "-3GB/s"], "is not a bandwidth", "GiB is 2^30"),
        (["prefill", "m", "--lengths", "1,x"], "--lengths: 'x' is not a number of tokens", "1,25,512,16k"),
        (["decode", "m", "-n", "2147483647"], "llama.cpp's maximum is 2,147,483,392", "fewer tokens"),
        (["decode", "m", "--memory-limit", "6Gb"], "'6Gb' is not a size", "Gb and gbps are bits"),
        (["twin", "org/name"], "no model named 'org/name'", "ggbench models"),
        (["decode", "m", "--n-batches", "8"], "'--n-batch', '--n-ubatch'", "see: ggbench decode --help"),
        (["models", "a/b/c"], "a/b/c is not a repo", "org/name"),
        (["decode", "m", "--tensor-split", "0,0"], "'0,0' is not a split", "above zero"),
        (["decode", "m", "-n", "1000", "--n-ctx", "300"], "n_ctx 300 is too small for the 1025 tokens", "omit --n-ctx"),
        (["decode", "no-such-model"], "no model named 'no-such-model'", ""),
        (["decode", "twin:qwen1.5-0.5b", "q9_9"], "no quant named 'q9_9'", ""),
        (["decode", "twin:qwen1.5-0.5b"], "has 8 quants", "q4_k_m"),
    ],
)
def test_bad_usage_is_two_lines_and_exit_code_2(ggbench: Run, args: list[str], what: str, hint: str) -> None:
    ran = ggbench(*args)
    assert ran.code == ExitCode.USAGE
    error, advice = ran.err.splitlines()
    assert error.startswith("Error: ")
    assert what in error
    assert advice.startswith("Hint: ")
    assert hint in advice
    assert ran.out == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (GgbenchError("what", "do"), 1), (UsageError("what", "do"), 2), (DoesNotFit("what", "do"), 3),
        (NetworkError("what", "do"), 4), (BadFile("what", "do"), 5), (EngineFailed("what", "do"), 6),
        (KeyboardInterrupt(), 130), (ZeroDivisionError("division by zero"), 1), (MemoryError(), 3),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 3),
    ],
)  # fmt: skip
def test_every_error_ends_in_its_exit_code(
    ggbench: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def fail(self: click.Group, ctx: click.Context) -> None:
        raise error

    monkeypatch.setattr(type(cli), "invoke", fail)
    ran = ggbench("models")
    assert ran.code == code
    assert ran.err.lstrip().startswith("Error: ")
    assert "Traceback" not in ran.err
    assert len(ran.err.splitlines()) <= 3


@pytest.mark.parametrize(("words", "code"), [(("plan", "qwen1.5-0.5b", "q2_k"), 3), (("doctor", "--json"), 0)])
def test_a_full_disk_of_temporary_files(home: Path, words: tuple[str, ...], code: int) -> None:
    limit = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (0, 0))
    command = [sys.executable, "-P", "-m", "ggbench", *words]
    ran = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False, cwd=home)
    assert ran.returncode == code, ran.stderr
    if code:
        error, hint = ran.stderr.splitlines()[-2:]
        assert error == "Error: no folder for temporary files can be written"
        assert "TMPDIR" in hint


def test_debug_shows_the_traceback(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GGBENCH_DEBUG", "1")
    with pytest.raises(UsageError):
        ggbench("decode", "m", "--memory-limit", "lots")


@pytest.mark.parametrize("line", ["prefill twin:m -np 4", "results -m m"])
def test_an_option_of_several_letters_is_named_whole(ggbench: Run, line: str) -> None:
    """Not by its first letter, which click looks for, nor as the value `p` of an option -n."""
    ran = ggbench(*line.split())
    assert ran.code == 2
    assert f"No such option '{line.split()[-2]}'" in ran.err


def test_a_missing_checkpoint_is_missing_and_not_looked_for_on_the_hub(ggbench: Run) -> None:
    ran = ggbench("inspect", "models/gone.safetensors")
    assert (ran.code, ran.err.splitlines()[0]) == (5, "Error: no such file or folder: models/gone.safetensors")
