"""MODEL is parsed once and resolved once by every command, and the disk is asked once whether it is a path."""

import pkgutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    "command",
    [
        ["decode", "-n", "40"], ["bench", "-n", "40"], ["maxctx", "--memory-limit", "1MiB"],
        ["plan", "--no-measure"], ["limits"], ["pick", "--no-measure"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_command_parses_and_resolves_its_model_once(
    ggbench: Run, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    asked: list[tuple[str, object]] = []

    def count(place: str) -> None:
        name = place.rpartition(".")[2]
        function = pkgutil.resolve_name(place)

        def counted(argument: object) -> object:
            asked.append((name, argument))
            return function(argument)

        monkeypatch.setattr(place, counted)

    for name in ("reference._parse", "reference.path_exists", "targets.local_variants"):
        count(f"ggbench.models.{name}")
    ran = ggbench(command[0], str(tiny_twin), *command[1:])
    assert ran.code in (0, 3), ran.err
    text = str(tiny_twin)
    assert asked == [("_parse", text), ("path_exists", text), ("local_variants", tiny_twin)]
