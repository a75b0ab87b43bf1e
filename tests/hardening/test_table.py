"""A few trials of every row of the hardening table; `scripts/hardening` runs them all."""

from pathlib import Path

import pytest

from ggbench.errors import BadFile
from tests.hardening.damage import MUTATIONS, TEXT_MUTATIONS, damaged
from tests.hardening.names import _harm
from tests.hardening.table import ROWS, SLOW, markdown, run_rows
from tests.hardening.trials import Trials


@pytest.mark.llama
@pytest.mark.parametrize("name", [name for name in ROWS if name not in SLOW])
def test_a_row_counts_no_fault(name: str) -> None:
    ((row, _),) = run_rows([name], is_quick=True)
    assert row.tried
    assert row.is_clean, row.faults


def test_what_goes_wrong_is_counted() -> None:
    row = Trials("a row")

    def fail() -> None:
        raise KeyError("x")

    def hang() -> None:
        while True:
            pass

    def refuse() -> None:
        raise BadFile("damaged", "take another")

    def print_escapes() -> None:
        raise BadFile("\x1b[2J")

    row.attempt("refused", refuse)
    row.attempt("failed", fail)
    row.attempt("hung", hang, 0.05)
    row.attempt("escapes", print_escapes)
    row.judge("unexpected", 1, "", "Error: unexpected, KeyError: 1")
    row.judge("bidi", 0, "a\u202eb", "")
    row.judge("gone", 2, "", "Error: No such option '--gone'")
    assert row.counts == (4, 4, 1, 0, 0, 0)
    assert not row.is_clean
    assert "| a row | 4 | 4 | 1 | 0 | 0 | 0 |" in markdown([row])


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("html", "<img src=x onerror=alert(1)>"),
        ("csv", "a,b\n=1+1,2\n"),
        ("txt", "\x1b[2J"),
    ],
)
def test_harm_in_a_file_is_found(form: str, text: str) -> None:
    assert list(_harm(text, form))


@pytest.mark.parametrize("kind", MUTATIONS | TEXT_MUTATIONS)
def test_every_mutation_damages(kind: str) -> None:
    import random

    content = sorted((Path(__file__).parent.parent / "data" / "headers").iterdir())[0].read_bytes()
    assert sum(damaged(content, random.Random(seed), kind) != content for seed in range(40)) >= 20
