"""The command line as it is registered: a new command is tried without a line here."""

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import psutil

from tests.hardening.trials import Trials

_WORDS: Mapping[str, tuple[str, ...]] = {
    "bench": ("-n", "3000"),
    "decode": ("-n", "3000"),
    "prefill": ("--lengths", "64,512,2048"),
    "quality": ("--text", str(Path(__file__).parent.parent / "data" / "prose.txt"), "-c", "64"),
    "session": ("--workload", "chat"),
    "speculate": ("--draft", "MODEL", "-k", "1,3", "-d", "0", "--within", "10s"),
    "speed": ("--inputs", "64,512", "-n", "512"),
    "tune": ("--depth", "0,512", "--within", "10s"),
}
"""Options with which a command measures for longer than a kill waits, and for no minutes; any other is run as it is."""
LIMIT = "3GiB"
"""The memory that every command gets that measures a model."""
_GONE_WITHIN_S = 2.0
_TRIAL = "GGBENCH_TEST_TRIAL"
"""Variable by which the processes are found that a command starts, and those that they start."""


def options_of(name: str) -> frozenset[str]:
    return frozenset(parameter.name or "" for parameter in _command(name).params)


def _command(name: str) -> click.Command:
    from ggbench.cli.main import cli

    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    return command


def _prints_alone(name: str) -> bool:
    """Whether a command needs no argument and loads no model; one with commands of its own is `results`."""
    command = _command(name)
    has_arguments = any(isinstance(parameter, click.Argument) for parameter in command.params)
    prints = "as_json" in options_of(name) and "n_gen" not in options_of(name)
    return prints and not has_arguments and (name == "results" or not isinstance(command, click.Group))


def measuring_commands() -> tuple[str, ...]:
    """Return every command that loads a model, by the options that all of them have."""
    from ggbench.cli.main import cli

    names = cli.list_commands(click.Context(cli))
    return tuple(name for name in names if {"model", "memory_limit_bytes", "yes"} <= options_of(name))


def stopped_commands(model: Path, trained: Path | None = None) -> dict[str, list[str]]:
    """Return every command that measures with its words; `quality` only with a trained model, as it refuses a twin."""
    names = [name for name in (*measuring_commands(), "demo") if name != "quality" or trained]
    return {name: measuring(name, trained if name == "quality" and trained else model) for name in names}


def measuring(name: str, model: Path) -> list[str]:
    """Return the words that measure this file, limited in memory so that no search takes the machine's."""
    if name == "demo":
        return ["demo", "-n", "60"]
    given = [str(model) if word == "MODEL" else word for word in _WORDS.get(name, ())]
    known = ("--bandwidth", "20GB/s") if "bandwidth" in options_of(name) else ()
    return [name, str(model), *given, "--memory-limit", LIMIT, *known]


def reading_commands() -> dict[str, list[str]]:
    """Return commands that print what is stored, on this disk or shipped, and need nothing else."""
    from ggbench.cli.main import COMMANDS

    known = {
        "compare": ["1", "3"], "export": ["1"], "help": ["numbers"], "inspect": ["MODEL"],
        "limits": ["MODEL", "--gpu", "rtx-4090"], "models": [], "plan": ["MODEL", "-c", "512"],
        "pick": ["MODEL"],
    }  # fmt: skip
    return {name: known.get(name, []) for name in COMMANDS if name in known or _prints_alone(name)}


@contextmanager
def started(row: Trials, label: str, words: Sequence[str], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run the command line in a process of its own, which is gone at the end, and count what it leaves behind."""
    trial = uuid.uuid4().hex
    process = subprocess.Popen(  # type: ignore[call-overload]
        [sys.executable, "-P", "-m", "ggbench", *words],
        stdin=subprocess.DEVNULL,
        env={**os.environ, _TRIAL: trial},
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        count_orphans(row, label, _processes_of(trial))
        process.communicate()


def _processes_of(trial: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(_TRIAL) == trial:
                yield process


def finish(row: Trials, label: str, process: subprocess.Popen[str], limit_s: float = 120.0) -> None:
    """Wait for a command that was left alone, longer at a load of more than the cores, and judge how it ends."""
    limit_s *= max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    row.tried += 1
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        row.hangs += 1
        row.fault(f"{label}: no end after {limit_s:.0f} s")
        return
    row.judge(label, process.returncode, out or "", err or "")


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def count_orphans(row: Trials, label: str, workers: Iterable[psutil.Process]) -> None:
    _, left = psutil.wait_procs(list(workers), timeout=_GONE_WITHIN_S)
    for orphan in left:
        with contextlib.suppress(psutil.NoSuchProcess):  # ended, and not yet reaped by the init process
            words = orphan.cmdline()
            row.orphans += 1
            row.fault(f"{label}: {' '.join(words)[:80]} lived on")
            orphan.kill()
