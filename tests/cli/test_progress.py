"""The bar on stderr of a real terminal, whose refresh thread draws between any two records."""

from __future__ import annotations

import os
import pty
import sys

import pytest

from ggbench.commands.output import Output
from ggbench.commands.progress import view_of
from ggbench.runs.progress import SamplesTimed, Started, Working

RECORDS = (
    Started("decode", "m", "q4_0", 0, 2), Working("load", 0.5, 1.0), Working("probe", 0.5, 1.0, left_s=3.0),
    SamplesTimed("decode", 26, (1_000_000,), 1, 10, ""), Started("decode", "m", "q8_0", 1, 2),
)  # fmt: skip


def test_the_bar_can_be_drawn_after_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, end = pty.openpty()
    with os.fdopen(end, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        monkeypatch.setenv("TERM", "xterm-256color")
        monkeypatch.delenv("NO_COLOR", raising=False)
        view = view_of(Output(), ("m q4_0", "m q8_0"))
        for record in RECORDS:
            view.draw(record)
            view.refresh()
        view.close()
    os.close(terminal)
