"""An answer is the same in a terminal, in a pipe and in Markdown: its sentence first, the rest on request."""

from __future__ import annotations

import msgspec
from markdown_it import MarkdownIt
from rich.console import Console

from ggbench.show.answer import Answer, Facts, Table
from ggbench.show.figure import Figure, figure_values
from ggbench.stats.intervals import Estimate


class Quant(msgspec.Struct):
    name: str
    tok_s: Estimate | None
    n_ctx: int


FIGURES = (
    Figure[Quant]("quant", "quant", lambda row: row.name),
    Figure[Quant]("tok_s", "speed", lambda row: row.tok_s, unit="tok/s", mark=lambda row: "~"),
    Figure[Quant]("n_ctx", "n_ctx", lambda row: row.n_ctx, priority=2),
    Figure[Quant]("loss", "loss", lambda row: None),
)
ROWS = (Quant("q4_k|m", Estimate(24.0, 20.0, 28.0), 16384), Quant("q8_0", None, 4096))
ANSWER = Answer(
    "Run q4_k|m: 24 tok/s.",
    "llama-server -m 'a b.gguf' -c 16384",
    [Table(FIGURES, ROWS)],
    ["A desktop may take more."],
    [Facts([("source", "24 rows of GeForce RTX 30 cards"), ("nothing", "")])],
)


def printed(answer: Answer, width: int = 80, *, why: bool = False) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(answer.rich(why=why), crop=False)
    return captured.get().splitlines()


def test_the_answer_is_on_the_first_line_and_the_command_on_the_second() -> None:
    assert printed(ANSWER) == [
        "Run q4_k|m: 24 tok/s.",
        "llama-server -m 'a b.gguf' -c 16384",
        "",
        "quant   speed tok/s   n_ctx",
        "q4_k|m       ~24 ±4  16,384",
        "q8_0              —   4,096",
        "",
        "A desktop may take more.",
    ]


def test_why_is_below_everything_else() -> None:
    assert printed(ANSWER, why=True)[-2:] == ["", "source  24 rows of GeForce RTX 30 cards"]


def test_the_fourth_note_is_behind_the_answer() -> None:
    answer = Answer("", notes=["one", "", "two", "three", "four"])
    assert printed(answer) == ["one", "two", "three"]
    assert printed(answer, why=True) == ["one", "two", "three", "", "four"]
    assert answer.markdown(why=True) == "- one\n- two\n- three\n\nfour"


def test_a_table_without_a_known_figure_is_left_out() -> None:
    assert Answer("x", parts=[Table(FIGURES[-1:], ROWS)]).markdown() == "**x**"


def test_markdown_shows_underscores_at_the_ends_of_words() -> None:
    text = "__init__ of n_ctx"
    assert f"<strong>{text}</strong>" in MarkdownIt("commonmark").render(Answer(text).markdown())


def test_a_narrow_table_leaves_out_the_least_important_column() -> None:
    assert printed(ANSWER, width=20)[4] == "quant   speed tok/s"


def test_markdown_is_a_table_that_a_forum_renders() -> None:
    text = ANSWER.markdown(why=True)
    assert "| quant | speed tok/s | n_ctx |\n|---|--:|--:|\n" in text
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert html.count("<tr>") == 3
    assert "<td>q4_k|m</td>" in html
    assert "<strong>Run q4_k|m: 24 tok/s.</strong>" in html
    assert "<code class=\"language-sh\">llama-server -m 'a b.gguf' -c 16384\n</code>" in html
    assert "<li>source: 24 rows of GeForce RTX 30 cards</li>" in html


def test_values_for_json_have_their_interval_beside_them() -> None:
    values = figure_values(FIGURES, ROWS[0])
    assert values == {"quant": "q4_k|m", "tok_s": 24.0, "tok_s_ci95": (20.0, 28.0), "n_ctx": 16384, "loss": None}
