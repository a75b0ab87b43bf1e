"""What `--help` and `ggbench help` show: examples that parse, groups of options, topics within the terminal's width."""

import os
import shlex
from collections.abc import Iterator

import click
import pytest

from ggbench.cli.help import EXIT_CODES, TOPICS
from ggbench.cli.main import COMMANDS, cli
from ggbench.commands.documented import DocumentedCommand
from ggbench.decisions.pick.needs import RULES
from ggbench.errors import ExitCode
from ggbench.experiments.quality.record import N_CTX
from ggbench.sizing.plan import DEFAULT_N_CTX
from tests.cli.conftest import Run, parse_words

_WIDTH = 80


def _with_subcommands(name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and its subcommands, with their words."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    yield name, found
    if isinstance(found, click.Group):
        yield from ((f"{name} {each}", command) for each, command in found.commands.items())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name: str) -> None:
    for words, command in _with_subcommands(name):
        lines = [line.partition("| ")[2] or line for line in _examples(command)]
        assert any(line.startswith(f"ggbench {words}") for line in lines)
        for line in lines:
            program, *arguments = shlex.split(line)
            assert program == "ggbench"
            parse_words(arguments)


def _examples(command: click.Command) -> list[str]:
    """Return the examples, continued lines joined; the TUI's command, which must not import commands, has an epilog."""
    if isinstance(command, DocumentedCommand):
        return command.examples.replace("\\\n", " ").splitlines()
    assert command.epilog is not None, command.name
    return [line.strip() for line in command.epilog.splitlines() if line.startswith("  ")]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_80_columns(ggbench: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))
    for words, _ in _with_subcommands(name):
        lines = ggbench(*words.split(), "--help").out.splitlines()
        assert lines[0].startswith(f"Usage: ggbench {words}")
        assert [line for line in lines if len(line) > _WIDTH] == []


@pytest.mark.parametrize(
    ("words", "default"),
    [
        ("plan", f"Default: {DEFAULT_N_CTX}, or the training context"),
        ("quality", f"Default: {N_CTX}."),
        ("maxctx", "Default: the training context"),
        ("decode", "Default: just enough for the run"),
        ("speed", None),
        ("forecast", None),
    ],
)
def test_help_of_n_ctx_says_what_this_command_takes(ggbench: Run, words: str, default: str | None) -> None:
    text = " ".join(ggbench(*words.split(), "--help").out.split())
    assert ("-c, --n-ctx" in text) == (default is not None)
    assert default is None or default in text.partition("-c, --n-ctx")[2][:160]


def test_help_of_pick_numbers_its_rules(ggbench: Run) -> None:
    lines = ggbench("pick", "--help").out.splitlines()
    assert [line[2:4] for line in lines if line[2:3].isdigit() and line[3:5] == ". "] == [
        f"{number}." for number in range(1, len(RULES) + 1)
    ]


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("width", [50, 80])
def test_topics_are_wrapped_to_the_terminal(
    ggbench: Run, monkeypatch: pytest.MonkeyPatch, topic: str, width: int
) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    ran = ggbench("help", topic)
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if len(line) > width and len(line.split()) > 2] == []


def test_every_exit_code_is_documented() -> None:
    assert {code for code, _ in EXIT_CODES} == set(ExitCode)
