"""Rows of the published tables, for the tests of them."""

from ggbench.models.published import PublishedRow, load_published

ROWS = load_published()


def only(**asked: str | int | None) -> PublishedRow:
    found = [row for row in ROWS if all(getattr(row, name) == value for name, value in asked.items())]
    assert len(found) == 1, f"{len(found)} rows for {asked}"
    return found[0]


def printed(row: PublishedRow, metric: str) -> str:
    return row.figures[metric].printed
