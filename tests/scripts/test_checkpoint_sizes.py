"""The article's tables 6.3.1 to 6.3.4, cell by cell, beside what configs alone say."""

from dataclasses import replace

import pytest

from scripts.checkpoint_sizes import Cell, cells


@pytest.fixture(scope="module")
def every_cell() -> tuple[Cell, ...]:
    return tuple(cells())


def test_every_cell_is_what_is_counted_and_named_reasons(every_cell: tuple[Cell, ...]) -> None:
    assert [sum(cell.what == what for cell in every_cell) for what in ("file", "memory")] == [24, 40]
    for cell in every_cell:
        name = f"{cell.size} {cell.quant} {cell.what}"
        if cell.published_bytes is None:
            assert cell.published.printed == "oom", name
            assert cell.counted_bytes > 22 * 2**30 or cell.quant == "awq-int4", name
        elif cell.what == "memory" and cell.quant == "awq-int4":
            assert cell.is_explained is None, name
            assert cell.weight_bytes < cell.published_bytes < cell.counted_bytes, name
        elif (cell.quant, cell.size, cell.what) == ("awq-int4", "32b", "file"):
            assert cell.is_explained is None, name
        else:
            assert cell.is_explained, name


def test_a_cell_without_its_reason_is_not_explained(every_cell: tuple[Cell, ...]) -> None:
    for cell in every_cell:
        if cell.is_explained:
            for part in cell.parts:
                if part[1] > 0.02 * cell.counted_bytes:
                    rest = replace(cell, parts=tuple(other for other in cell.parts if other != part))
                    assert rest.is_explained is False, (cell.size, cell.quant, cell.what, part)
