"""What the README says of the program is what the program says."""

from __future__ import annotations

from ggbench.cli.main import COMMANDS
from ggbench.errors import ExitCode
from tests.readme import README, parts, updated


def test_generated_parts_have_not_drifted() -> None:
    """Help and the tables of columns and defaults; ./scripts/update_readme writes them."""
    text = README.read_text(encoding="utf-8")
    assert set(parts(text)) == {"help", "columns", "defaults"}
    assert updated(text) == text


def test_every_command_has_an_example() -> None:
    """One line that a person can copy, for each command that there is."""
    text = README.read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"ggbench {name}" not in text.split("<!-- generated: help -->")[0]] == []


def test_every_exit_code_is_documented() -> None:
    """The table has each of them."""
    text = README.read_text(encoding="utf-8")
    assert [code for code in ExitCode if f"| {int(code)} |" not in text] == []
