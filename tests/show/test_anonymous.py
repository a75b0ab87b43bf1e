"""Folders as they are shown to others."""

from pathlib import Path

import pytest

from ggbench.show.anonymous import Paths

ALICES = Paths(Path("/home/alice"))


@pytest.mark.parametrize(
    ("path", "shown", "in_a_command"),
    [
        ("/home/alice/.cache/a.db", "~/.cache/a.db", "~/.cache/a.db"),
        ("/home/alice/my runs/a.db", "~/my runs/a.db", "~/'my runs/a.db'"),
        ("/scratch/alice/a.db", "…/a.db", "FILE"),
        ("/home/alicia/a.db", "…/a.db", "FILE"),
    ],
)
def test_only_what_is_below_home_is_named(path: str, shown: str, in_a_command: str) -> None:
    assert ALICES.shown(path) == shown
    assert ALICES.shell_word(path) == in_a_command


def test_paths_in_a_message_are_named_so() -> None:
    text = "OSError: /home/alice/v/libllama.so: libcuda.so.1 not found, see https://example.com/a (3/4) or '/opt/x/y'"
    assert ALICES.without(text) == (
        "OSError: ~/v/libllama.so: libcuda.so.1 not found, see https://example.com/a (3/4) or '…/y'"
    )


def test_a_home_at_the_root_names_nothing_and_whole_paths_are_quoted() -> None:
    """A container gives it to a user that it does not know, and everything is below it."""
    assert Paths(Path("/")).shown("/scratch/alice/a.db") == "…/a.db"
    whole = Paths(Path("/home/alice"), whole=True)
    assert whole.shown("/scratch/al ice/a.db") == "/scratch/al ice/a.db"
    assert whole.shell_word("/scratch/al ice/a.db") == "'/scratch/al ice/a.db'"
