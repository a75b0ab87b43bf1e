"""CSV and Markdown, read back by somebody else's reader."""

import csv
import io
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ggbench.engines.endings import Outcome
from ggbench.engines.llama.config import LlamaConfig
from ggbench.experiments.decode.record import DecodeSettings
from ggbench.models.subject import Subject
from ggbench.runs.run import Run, RunHead
from ggbench.show.answer import Table
from ggbench.show.figure import figures_csv
from ggbench.show.presenter import all_figures
from ggbench.show.quants import bench_answer
from ggbench.show.run_figures import figures
from ggbench.text import sanitize, shorten
from tests.fakes.measured import with_subject

Golden = Callable[[str, str], None]


def _csv(rows: Sequence[Run]) -> str:
    return figures_csv(all_figures().values(), rows)


def test_csv(rows: tuple[Run, ...], golden: Golden) -> None:
    text = _csv(rows)
    golden("rows.csv", text)
    read = list(csv.DictReader(io.StringIO(text)))
    assert [key for key in read[0] if "_ci95_" not in key] == list(all_figures())
    assert float(read[0]["w_tokens_per_ms"]) == 1513.2
    assert (read[1]["w_tokens_per_ms"], read[1]["w_ci95_low"], read[1]["w_ci95_high"]) == ("", "1234.4", "")


def test_markdown(rows: tuple[Run, ...], golden: Golden) -> None:
    golden("bench.md", bench_answer(rows).markdown(why=True))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\n@"])
def test_csv_holds_no_formula(completed: Run, start: str) -> None:
    text = _csv([with_subject(completed, model=f'{start}HYPERLINK("x")')])
    cell = next(iter(csv.DictReader(io.StringIO(text))))["model"]
    assert cell.startswith("'")
    assert 'HYPERLINK("x")' in cell


@settings(deadline=None)
@given(name=st.text(st.characters(codec="utf-8"), max_size=40))
def test_any_name_stays_in_its_cell(name: str) -> None:
    subject = Subject(model=f"m{name}", quant="q4_0", source="file", file="f")
    head = RunHead(kind="decode", subject=subject, setup=LlamaConfig(), settings=DecodeSettings(1))
    row = Run(head=head, outcome=Outcome.COMPLETED)
    table = Table(figures("model quant source"), [row])
    html = MarkdownIt("commonmark").enable("table").render(table.markdown())
    assert html.count("<td") == len(table.figures)
    assert html.count("<tr>") == 2
    assert html.count("<") == html.count("</") * 2
    records = list(csv.reader(io.StringIO(_csv([row]))))
    assert [len(record) for record in records] == [len(records[0])] * 2


@settings(deadline=None)
@given(text=st.text(max_size=40))
def test_any_text_stays_on_its_line(text: str) -> None:
    """What comes out can be encoded, has no control character, and is not changed again."""
    out = sanitize(text)
    assert out.encode("utf-8") is not None
    assert not any(ord(character) < 32 or 127 <= ord(character) < 160 for character in out)
    assert len(out.splitlines()) <= 1
    assert sanitize(out) == out
    assert len(shorten(text, 10)) <= 10


def test_only_what_steers_is_taken_out_of_a_name() -> None:
    name = "通义千问 é ß Ж 👍"
    assert sanitize(name) == name
    assert sanitize("a\u200bb\u202ec\x1b[31m\td") == "abc[31m d"


def test_no_text_has_the_password_of_a_url() -> None:
    """Also where a path has made one slash of two; the revision of a repo stays."""
    shown = sanitize("no GPU named 'https://me:p@host/x', no file http:/me:pw@host:8080/x.gguf")
    assert shown == "no GPU named 'https://***@host/x', no file http:/***@host:8080/x.gguf"
    assert sanitize("https://huggingface.co/org/name@rev") == "https://huggingface.co/org/name@rev"
