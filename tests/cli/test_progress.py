"""Progress and notices on stderr: the bar in a terminal, lines elsewhere."""

from __future__ import annotations

import io
import re
import sys

import pytest

from ggbench.commands.downloads import byte_progress
from ggbench.commands.output import Output
from ggbench.commands.progress import view_of
from ggbench.runs.progress import SamplesTimed, Started


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def test_a_narrow_terminal_keeps_the_model_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", terminal)
    name = "SmolLM2-135M-Instruct q4_1"
    view = view_of(Output(), (name,))
    view.draw(Started("decode", "m", "q4_1", 0, 1))
    view.draw(SamplesTimed("decode", 26, tuple(15_000_000 + 9_000 * n for n in range(406)), 406, 600))
    view.refresh()
    drawn = terminal.text
    view.close()
    assert f"[1/1] {name}" in drawn
    assert re.search(r"406/600  .* tok/s  .* ms.*--:--", drawn)


def test_a_notice_is_a_line_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    output = Output(as_json=False, quiet=False)
    with byte_progress(output, "moving") as on_progress:
        on_progress(1, 10)
        output.notice("said meanwhile")
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text))
    assert "said meanwhile" in [line.strip() for line in lines]
