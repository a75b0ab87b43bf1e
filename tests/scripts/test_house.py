"""scripts/house on a package that is made up: what it counts, and that a ceiling holds from both sides."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.house import count_file, count_package, mismatches

MODULE = '''"""A docstring
of two lines."""

# a comment
def sign(n: int) -> str:
    return "+" if n > 0 else "-" if n < 0 else ""
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "stats").mkdir()
    (tmp_path / "stats" / "signs.py").write_text(MODULE)
    (tmp_path / "units.py").write_text("MIB = 1 << 20\n")
    return tmp_path


def test_lines_of_code_leave_out_docstrings_comments_and_blanks() -> None:
    counted = count_file(MODULE)
    assert (counted["lines"], counted["code"]) == (6, 2)


def test_a_function_of_more_than_ten_decisions_is_long() -> None:
    body = "    if n: pass\n"
    assert count_file("def f(n):\n" + 10 * body)["long_functions"] == 0
    assert count_file("def f(n):\n" + 11 * body)["long_functions"] == 1


@pytest.mark.parametrize(("factor", "said"), [(0.5, "exceeds its ceiling"), (1.5, "is above what is there")])
def test_a_ceiling_holds_from_both_sides(package: Path, factor: float, said: str) -> None:
    """A budget raised by hand fails as a grown room does, in a line with room and figure."""
    counted = count_package(package)
    ceilings = {**counted, "stats": {**counted["stats"], "nodes": factor * counted["stats"]["nodes"]}}
    (line,) = mismatches(counted, ceilings)
    assert line.startswith("stats: ")
    assert "nodes" in line
    assert said in line
