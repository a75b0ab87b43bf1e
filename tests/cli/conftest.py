"""The command line run in this process, with workers that replay messages."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from ggbench.cli.main import cli, main
from ggbench.runs.session import RunContext
from ggbench.runs.store.database import Store
from tests.cli import validation
from tests.fakes.engine import Answer, FakeWorker, fake_rig
from tests.fakes.hub import TestHub
from tests.fakes.kept_worker import KeptEngine
from tests.fakes.projector import a_projector


@pytest.fixture(autouse=True)
def one_worker_sizes_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ggbench.engines.llama.engine.launch", KeptEngine)


@pytest.fixture(autouse=True)
def nobody_else_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts on times depend on what else the machine does."""
    monkeypatch.setattr("ggbench.runs.reading_log.cpu_seconds_of", lambda pid: None)
    monkeypatch.setattr("ggbench.commands.measuring.OthersWatch", lambda: Others(0.0))


@pytest.fixture(autouse=True)
def no_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for no other model where one does not do, as that sizes the catalog."""
    monkeypatch.setattr("ggbench.commands.picking.find_substitute", lambda *_: "")


@dataclass(frozen=True)
class Others:
    """Other programs that use this share of the CPU."""

    used: float

    def share(self) -> float:
        return self.used


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


Run = Callable[..., Ran]


@pytest.fixture
def ggbench(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*args: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(arg) for arg in args])
        code = left.value.code
        captured = capsys.readouterr()
        if captured.out.startswith(validation.START):
            validation.check_document(captured.out)
        return Ran(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run


def parse_words(words: list[str]) -> None:
    """Parse a command line down to its last command, without running anything. Raises ClickException."""
    command: click.Command = cli
    name = "ggbench"
    while isinstance(command, click.Group) and words:
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            break
        command, name, words = found, words[0], words[1:]
    assert command is not cli, words
    command.make_context(name, words)


@dataclass
class FakeMachine:
    answers: dict[int, Answer]
    workers: list[FakeWorker]
    cancel: threading.Event


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    monkeypatch.setattr("ggbench.machine.gpus.list_gpus", tuple)
    fake = FakeMachine({}, [], threading.Event())

    def run_context(store: Store | None, **_: object) -> RunContext:
        rig, fake.workers = fake_rig(store, fake.answers, fake.cancel)
        return rig

    monkeypatch.setattr("ggbench.commands.measuring.run_context", run_context)
    return fake


@pytest.fixture
def projector(tmp_path: Path) -> Path:
    path = tmp_path / "mmproj-f16.gguf"
    path.write_bytes(a_projector())
    return path


@pytest.fixture
def repo(hub: TestHub, tiny_twin: Path) -> str:
    hub.add_repo(
        "org/tiny-GGUF",
        files={
            "tiny-q8_0.gguf": tiny_twin, "tiny-bf16.gguf": tiny_twin.read_bytes() + bytes(64),
            "mmproj-tiny-f16.gguf": b"GGUF and more", "README.md": b"# tiny\n",
        },
    )  # fmt: skip
    return "org/tiny-GGUF"
