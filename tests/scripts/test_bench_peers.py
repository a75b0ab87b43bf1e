"""scripts/bench_peers with figures that are made up: turns, kept rounds, intervals, and what misses its aim."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import bench_peers
from scripts.peer_figures import Bench, Figure, Values
from scripts.peer_programs import PROGRAMS, find_or_build
from scripts.peer_table import Row

ROW = Row("decode", "ms", "llama-bench", 0.98, 1.02)


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text("#!/bin/sh\necho 'version: 1.2.3 (commit abc)'\n")
        (folder / name).chmod(0o755)
    return folder


def measured(monkeypatch: pytest.MonkeyPatch, peers: Path, ours: float, *words: str) -> tuple[int, list[str]]:
    """Exit code of a run whose only figure has these values, and the order in which the sides were measured."""
    order: list[str] = []

    def side(name: str, value: float) -> Values:
        order.append(name)
        return {ROW: value}

    def our_side(_: Bench) -> Values:
        return side("ours", ours)

    def their_side(_: Bench) -> Values:
        return side("theirs", 10.0)

    monkeypatch.setattr(bench_peers, "FIGURES", {"decode": Figure(our_side, their_side, 4)})
    file = peers / "model.gguf"
    file.touch()
    results = peers / "results.jsonl"
    return bench_peers.main([str(file), "--peers", str(peers), "--results", str(results), *words]), order


def test_sides_take_turns_in_going_first(monkeypatch: pytest.MonkeyPatch, peers: Path) -> None:
    assert measured(monkeypatch, peers, 10.0) == (0, ["ours", "theirs", "theirs", "ours"] * 2)


def test_table_has_the_ratio_first_and_marks_a_missed_aim(
    monkeypatch: pytest.MonkeyPatch, peers: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measured(monkeypatch, peers, 11.0)[0] == 1
    assert "| decode | 1.100 ✗ | 1.100 | 11 | 10 | ms | llama-bench | 4 | 20" in capsys.readouterr().out
    assert measured(monkeypatch, peers, 11.0, "--show") == (1, [])
    shown = capsys.readouterr().out
    assert "1.100 ✗" in shown
    assert "model.gguf; " in shown
    assert "llama.cpp 1.2.3 (commit abc)" in shown


def test_a_folder_without_a_program_is_refused(peers: Path) -> None:
    assert find_or_build(peers, 1).folder == peers
    (peers / "llama-bench").unlink()
    with pytest.raises(SystemExit, match="has no llama-bench"):
        find_or_build(peers, 1)
