"""What surrounds a command: narrow terminals, encodings that lack most characters, and odd variables."""

import itertools
import os
import random
from pathlib import Path
from unittest import mock

from ggbench.errors import ExitCode
from tests.hardening.commands import finish, reading_commands, started, stopped_commands
from tests.hardening.served import served_hub
from tests.hardening.trials import Trials

_ENCODINGS = {"UTF-8": "utf-8", "Latin-1": "latin-1", "code page 437": "cp437"}
_WIDTHS = (1, 20, 80)
_REPO = "org/small-GGUF"
_DRAWN = {"compare": ["--plot"], "bench": ["--plot"], "decode": ["--plot"]}
_UNKNOWN = "no such model"
_VARIABLES = (
    "HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "TMPDIR", "HF_HOME", "HF_HUB_CACHE", "HF_ENDPOINT",
    "HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_DOWNLOAD_TIMEOUT", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE",
    "SSL_CERT_DIR", "LC_ALL", "TERM", "COLUMNS", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LLAMA_ARG_CTX_SIZE",
)  # fmt: skip
_VALUES = (
    "", " ", "-1", "0", "x", "..", "/dev/null", "/dev/full", "/proc/1", "/proc/no/such", "a\nb\x1b[2J",
    "\udcff", "é", "9" * 30, "n" * 5000, "http://[", "http://127.0.0.1:9", "ftp://x", "socks5://127.0.0.1:9",
)  # fmt: skip


def narrow_terminals(model: Path, *, is_quick: bool = False) -> Trials:
    """Print with every command, at each width and in each encoding, and with those that measure.

    Quickly: at one width, in the encoding that lacks most of the characters, and nothing measured.
    """
    encodings = {name: _ENCODINGS[name] for name in (("code page 437",) if is_quick else _ENCODINGS)}
    row = Trials("narrow terminals and encodings without most characters")
    reading = {name: [str(model) if word == "MODEL" else word for word in words] for name, words in _reading().items()}
    for label, encoding in encodings.items():
        for width in (20,) if is_quick else _WIDTHS:
            with mock.patch.dict(os.environ, {"COLUMNS": str(width)}):
                for name, words in reading.items():
                    ran = row.run(f"{name} in {label} of {width} columns", *words, encoding=encoding)
                    if ran and (ran.code == ExitCode.USAGE) != (name == _UNKNOWN):
                        row.fault(f"{name}: exit code {ran.code}, {ran.err[-300:]}")
    for label, encoding in () if is_quick else list(_ENCODINGS.items())[1:2]:
        with mock.patch.dict(os.environ, {"COLUMNS": "20"}):
            for name, long in stopped_commands(model).items():
                words = ["60" if word == "3000" else word for word in long]
                ran = row.run(
                    f"{name} in {label} of 20 columns", *words, *_DRAWN.get(name, ()), encoding=encoding, limit_s=300
                )
                if ran and ran.code:
                    row.fault(f"{name}: exit code {ran.code}, {ran.err[-300:]}")
    return row


def odd_variables(n: int, draw: random.Random, folder: Path, model: Path) -> Trials:
    """Run commands with a variable that has any of the values; they end in a line of what is wrong, or do without."""
    row = Trials("variables of the environment that are set oddly")
    folder.mkdir(parents=True)
    commands = (
        ["results"], ["models"], ["models", _REPO], ["pull", f"hf:{_REPO}", "q8_0"], ["plan", str(model), "-c", "512"],
        ["report", "1", "--force", "-o", str(folder / "r.html")],
        ["decode", str(model), "-n", "8", "--bandwidth", "20GB/s"],
    )  # fmt: skip
    cases = list(itertools.product(_VARIABLES, _VALUES, commands))
    draw.shuffle(cases)
    with served_hub() as (hub, _):
        hub.add_repo(_REPO, {"small-q8_0.gguf": bytes(1000)})
        for name, value, words in itertools.islice(cases, n):
            label = f"{words[0]} with {name}={value[:40]!r}"
            given = mock.patch.dict(os.environ, {name: value})
            with given, started(row, label, words, cwd=folder, errors="replace") as process:
                finish(row, label, process)
    return row


def _reading() -> dict[str, list[str]]:
    commands = {name: [name, *words, *_DRAWN.get(name, ())] for name, words in reading_commands().items()}
    return commands | {
        "results show": ["results", "show", "1", "--plot"],
        "results show --json": ["results", "show", "1", "--json"],
        _UNKNOWN: ["decode", "通义—no"],
        "help": ["--help"],
    }
