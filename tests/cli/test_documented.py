"""What `--help` and `ggbench help` show: examples that parse, groups of options, topics within the terminal's width."""

import os
import shlex
from collections.abc import Iterator

import click
import pytest

from ggbench.cli.help import EXIT_CODES, TOPICS
from ggbench.cli.main import COMMANDS, cli
from ggbench.commands.documented import DocumentedCommand
from ggbench.errors import ExitCode
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


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_are_wrapped_to_the_terminal(ggbench: Run, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    width = 50
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    ran = ggbench("help", topic)
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if len(line) > width and len(line.split()) > 2] == []


def test_every_exit_code_is_documented() -> None:
    assert {code for code, _ in EXIT_CODES} == set(ExitCode)
