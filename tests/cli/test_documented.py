"""What `--help` and `ggbench help` show: short, with examples that parse; `--help-all` and the topics have the rest."""

import os
import shlex
from collections.abc import Iterator

import click
import pytest

from ggbench.cli.help import EXIT_CODES, TOPICS, figures
from ggbench.cli.main import COMMANDS, cli
from ggbench.commands.documented import DocumentedCommand
from ggbench.errors import ExitCode
from ggbench.show.glossary import terms
from tests.cli.conftest import Run, parse_words

_WIDTH, _MOST_LINES, _MOST_EXAMPLES = 80, 60, 3


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
        assert len(lines) <= _MOST_EXAMPLES
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
def test_help_is_short_and_fits_80_columns(ggbench: Run, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))
    for words, command in _with_subcommands(name):
        lines = ggbench(*words.split(), "--help").out.splitlines()
        assert lines[0].startswith(f"Usage: ggbench {words}")
        assert len(lines) <= _MOST_LINES
        if isinstance(command, DocumentedCommand) and not isinstance(command, click.Group):
            lines += ggbench(*words.split(), "--help-all").out.splitlines()
        assert [line for line in lines if len(line) > _WIDTH] == []


def test_the_help_of_ggbench_itself_is_short(ggbench: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(_WIDTH))
    assert len(ggbench("--help").out.splitlines()) <= _MOST_LINES


@pytest.mark.parametrize("name", ["pick", "plan", "decode"])
def test_help_names_every_option_and_help_all_explains_it(ggbench: Run, name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    short, full = ggbench(name, "--help").out, ggbench(name, "--help-all").out
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            assert param.opts[0] in short
            assert max(param.opts, key=len) in full
            assert param.help
            assert " ".join(param.help.split()[-2:]) in " ".join(full.split())


def test_help_all_says_what_help_leaves_out(ggbench: Run) -> None:
    short, full = ggbench("pick", "--help").out, ggbench("pick", "--help-all").out
    assert "Losses come from a quality run" in full
    assert "Losses come" not in short
    assert "--help-all" in short


def test_help_is_found_after_an_option_without_its_value(ggbench: Run) -> None:
    for flag in ("--help", "--help-all"):
        ran = ggbench("pick", "--gpu", flag)
        assert (ran.code, ran.out) == (0, ggbench("pick", flag).out)


@pytest.mark.parametrize("topic", TOPICS)
def test_topics_are_wrapped_to_the_terminal(ggbench: Run, monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    width = 50
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((width, 24)))
    ran = ggbench("help", topic)
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if len(line) > width and len(line.split()) > 2] == []


def test_what_scripts_need_is_one_page(ggbench: Run) -> None:
    page = ggbench("help", "scripts").out.splitlines()
    assert len(page) <= 60
    assert {"pick", "plan", "check", "decode", "compare"} <= {line.split()[0] for line in page if line.startswith("  ")}


def test_a_number_is_explained_once() -> None:
    explained = {each.header for each in figures() if each.meaning}
    assert {"W", "B", "speed"} <= explained
    assert not explained & terms().keys()


def test_every_exit_code_is_documented() -> None:
    assert {code for code, _ in EXIT_CODES} == set(ExitCode)
