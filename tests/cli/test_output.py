"""What a command says while something moves on its last line."""

import io
import re
import sys

import pytest

from ggbench.commands.output import Output


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
