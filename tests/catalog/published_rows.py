"""Rows of the published tables, for the tests of them."""

from ggbench.catalog.published.rows import Figure, PublishedRow, load_published

ROWS = load_published()


def only(**asked: str | int | None) -> PublishedRow:
    """The one row whose fields are as asked."""
    found = [row for row in ROWS if all(getattr(row, name) == value for name, value in asked.items())]
    assert len(found) == 1, f"{len(found)} rows for {asked}"
    return found[0]


def printed(row: PublishedRow, metric: str) -> str:
    """A figure of a row as the document has it."""
    cell = getattr(row, metric)
    assert isinstance(cell, Figure)
    return cell.printed
