"""The one definition of every column, and the sanitizer under it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.runs.summary import QuantSummary
from ggbench.show.columns import all_columns, b_text, tok_s_text, w_text
from ggbench.stats.decode_timing import LatencySummary, LineFit
from ggbench.stats.linefit import fit_line
from ggbench.text import plain, shorten
from tests.fakes.summaries import with_decode


@pytest.mark.parametrize(
    ("w", "ci95", "text"),
    [
        (205.31, (201.4, 209.5), "205 ±4"),
        (None, (1234.4, None), "> 1234"),
        (205.31, (150.0, None), "> 150"),
        (None, None, "—"),
        (205.31, None, "205"),
    ],
)
def test_w_is_a_value_or_a_bound(w: float | None, ci95: tuple[float, float | None] | None, text: str) -> None:
    assert w_text(LineFit(300, w, ci95, None, None, None, None)) == text
    assert w_text(None) == "—"


@pytest.mark.parametrize(
    ("b", "ci95", "text"),
    [
        (10.917, (10.84, 10.99), "10.92 ±0.08"),
        (None, (10.84, 13.55), "< 13.6"),
        (None, (0.0, 822.0), "< 822"),
        (None, None, "—"),
    ],
)
def test_b_is_a_value_or_a_bound(b: float | None, ci95: tuple[float, float] | None, text: str) -> None:
    assert b_text(LineFit(300, 205.0, (201.0, 209.0), b, ci95, None, None)) == text


@pytest.mark.parametrize(
    ("ci95", "text"), [((106.9, 109.5), "108.2 ±1.3"), ((106.9, None), "> 107"), (None, "108"), ((108.2, 108.2), "108")]
)
def test_speed_has_its_interval(ci95: tuple[float, float | None] | None, text: str) -> None:
    assert tok_s_text(LatencySummary(9.2, 12.5, 12.7, 108.2, None, ci95)) == text


def test_nothing_is_derived_from_a_bound_of_b(completed: QuantSummary) -> None:
    bounded = with_decode(completed, fit=LineFit(300, None, (1234.4, None), None, (10.8, 11.0), 0.1, None))
    for key in ("b_ms", "b_ratio", "b_w16_ms", "w_ratio"):
        assert all_columns()[key].value(bounded) is None
    assert (all_columns()["b_ratio"].text(bounded), all_columns()["b_w16_ms"].text(bounded)) == ("—", "—")


def test_unknown_is_a_dash_for_people_and_nothing_for_programs() -> None:
    subject = Subject(model="m", quant="q", source="file", file="f")
    head = RunHead(kind="decode", subject=subject, setup=LlamaConfig(), settings=DecodeSettings(1), command="c")
    row = QuantSummary.of([Run(head=head, outcome=Outcome.FAILED, reason="refused")])
    known = {"model", "quant", "file", "source", "outcome", "note", "command"}
    for key in set(all_columns()) - known:
        assert all_columns()[key].value(row) is None
        assert all_columns()[key].text(row) == "—"


def test_a_row_without_w_says_how_many_tokens_it_takes(completed: QuantSummary) -> None:
    note = all_columns()["note"].text
    short = with_decode(completed, fit=LineFit(30, None, None, None, None, None, None))
    assert note(short) == "30 tokens are too few for W, which takes at least 247"
    assert note(with_decode(short, fit=LineFit(90, None, None, None, (0.0, 13.6), None, None))).startswith("90 tokens")
    assert note(with_decode(short, unsteady="the clock fell")).endswith("247; unsteady: the clock fell")
    assert note(with_decode(short, fit=LineFit(300, None, (1234.4, None), None, (9.0, 11.0), None, None))) == ""
    constant = fit_line(np.arange(1, 3001), np.full(3000, 20e6))
    assert constant is not None
    assert note(with_decode(short, fit=constant)) == ""


@settings(deadline=None)
@given(st.text())
def test_plain_text_stays_on_its_line(text: str) -> None:
    out = plain(text)
    assert out.encode("utf-8") is not None
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in out)
    assert len(out.splitlines()) <= 1
    assert plain(out) == out
    assert len(shorten(text, 10)) <= 10


def test_plain_keeps_every_script() -> None:
    name = "通义千问 é ß Ж 👍"
    assert plain(name) == name
    assert cell_len(plain("a\u200bb\u202ec\x1b[31m\td")) == len("abc[31m d")
