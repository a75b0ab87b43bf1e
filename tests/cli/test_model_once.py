"""MODEL is parsed once and resolved once by every command, and the disk is asked once whether it is a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggbench import paths
from ggbench.models import reference, targets
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    "command",
    [
        ["decode", "-n", "40"],
        ["bench", "-n", "40"],
        ["maxctx", "--memory-limit", "1GiB"],
        ["plan", "--no-measure"],
        ["limits"],
        ["pick", "--no-measure"],
    ],
    ids=lambda words: words[0],
)
def test_a_command_parses_and_resolves_its_model_once(
    ggbench: Run, tiny_twin: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    parsed: list[str] = []
    looked_at: list[str] = []
    listed: list[Path] = []
    parse, exists, variants = reference._parse, paths.path_exists, targets.local_variants
    monkeypatch.setattr(reference, "_parse", lambda text: (parsed.append(text), parse(text))[1])
    monkeypatch.setattr(reference, "path_exists", lambda text: (looked_at.append(text), exists(text))[1])
    monkeypatch.setattr(targets, "local_variants", lambda path: (listed.append(path), variants(path))[1])
    ran = ggbench(command[0], str(tiny_twin), *command[1:])
    assert ran.code in (0, 3), ran.err
    assert (parsed, looked_at, listed) == ([str(tiny_twin)], [str(tiny_twin)], [tiny_twin])
