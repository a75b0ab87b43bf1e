"""Rows of the published tables, for the tests of them."""

from ggbench.models.published import PublishedFigure, PublishedRow, load_published

ROWS = load_published()


def only(**asked: str | int | None) -> PublishedRow:
    found = [row for row in ROWS if all(getattr(row, name) == value for name, value in asked.items())]
    assert len(found) == 1, f"{len(found)} rows for {asked}"
    return found[0]


def printed(row: PublishedRow, metric: str) -> str:
    cell = getattr(row, metric)
    assert isinstance(cell, PublishedFigure)
    return cell.printed
