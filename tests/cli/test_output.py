"""What a command says while something moves on its last line."""

from __future__ import annotations

import io
import re
import sys

import pytest

from ggbench.commands.output import Output
from ggbench.commands.progress import view_of
from ggbench.runs.progress import Stage, Working
from ggbench.units import MIB


class Terminal(io.TextIOWrapper):
    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        assert isinstance(self.buffer, io.BytesIO)
        return self.buffer.getvalue().decode()


def test_a_notice_is_a_line_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    output = Output(as_json=False, quiet=False)
    with output.byte_progress("moving") as on_progress:
        on_progress(1, 10)
        output.notice("said meanwhile")
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.text))
    assert "said meanwhile" in [line.strip() for line in lines]


def test_a_notice_without_a_bar_is_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    Output(as_json=False, quiet=False).notice("a [bold] word " * 20)
    Output(as_json=False, quiet=True).notice("nothing")
    assert terminal.text == "a [bold] word " * 20 + "\n"


@pytest.mark.parametrize(("stage", "verb"), [("write", "writing"), ("download", "downloading")])
def test_a_download_is_not_called_writing(monkeypatch: pytest.MonkeyPatch, stage: Stage, verb: str) -> None:
    terminal = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal)
    view = view_of(Output(as_json=False, quiet=False), ["a q8_0"])
    view.draw(Working(stage, 0, MIB))
    view.close()
    assert f" {verb} 0 B of 1.00 MiB" in terminal.text
