"""HTML and JSON from untrusted text: every name is escaped here, and nowhere else is HTML put together from data."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence

from ggbench.text import plain

_JSON_ESCAPED = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def text(value: str) -> str:
    """Return text, on one line and without control characters, that HTML shows as it is."""
    return html.escape(plain(value))


def lines(value: str) -> str:
    """Return text of several lines that a `pre` element shows as it is."""
    return "\n".join(map(text, value.split("\n")))


def json_script(name: str, value: object) -> str:
    """Return a script element with data: no text in it ends the element, or begins a comment."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escaped = _JSON_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", content)
    return f'<script type="application/json" id="{name}">{escaped}</script>'


def table(headers: Sequence[tuple[str, bool]], rows: Iterable[Sequence[tuple[str, object]]], *, css: str = "") -> str:
    """Return a table that the page sorts by a click on a header; wider than the page it scrolls.

    `headers` are texts and whether the column is right-aligned; cells are HTML and the value to sort by, None for last.
    """
    head = "".join(
        f'<th scope="col"{_aligned(right)}><button type="button">{text(header)}</button></th>'
        for header, right in headers
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{_aligned(right)}{_sorted_by(value)}>{cell}</td>"
            for (cell, value), (_, right) in zip(row, headers, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table class="sortable {css}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _aligned(right: bool) -> str:
    return ' class="right"' if right else ""


def _sorted_by(value: object) -> str:
    return "" if value is None else f' data-value="{text(str(value))}"'
