"""A report as one HTML file that opens from disk and loads nothing.

Tables and texts are plain HTML; the embedded Vega draws the charts. The
content security policy forbids all requests, in case a name smuggles one in.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files

from ggbench import __version__
from ggbench.decisions.compare.show import comparison_answer
from ggbench.formats.report_contents import Report, all_charts
from ggbench.show import UNKNOWN, letter
from ggbench.show.answer import Answer, Command, Facts, Part
from ggbench.show.charts import LineChart
from ggbench.show.figure import Figure, Row
from ggbench.show.listed_runs import SavedRun
from ggbench.show.machine import machine_text, reproducing
from ggbench.show.presenter import presenter_of
from ggbench.show.vega import ON_PAPER, ON_SLATE, as_vega, color_of, curve_colors, vega_script
from ggbench.stats.intervals import Estimate
from ggbench.text import sanitize
from ggbench.units import counted

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_LICENSE = """Vega: Copyright (c) 2015-2025, University of Washington Interactive Data Lab. All rights reserved.
Redistribution and use in source and binary forms, with or without modification, are permitted under the terms of the
BSD 3-Clause License, https://github.com/vega/vega/blob/main/LICENSE. The software is provided "as is", without any
warranty."""


def report_html(report: Report) -> str:
    """Return the page. Raises StoreError for a run of an unknown kind."""
    specs: list[object] = []
    body = _body(report, specs)
    title, runs = text(report.title), counted(len(report.runs), "run")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{title}: ggbench report</title>",
        f"<style>{_colors()}{_asset('page.css')}</style></head><body><main>",
        f"<header><h1>{title}</h1><p>{runs}, written by ggbench {__version__}."
        " Latency of token n is (n − 1) / W + B.</p></header>",
        body,
        '</main><div id="tip" role="status" hidden></div>',
        "<noscript><p>Charts need JavaScript (included in this file); tables do not.</p></noscript>",
        json_script(specs),
        f"<!-- {_LICENSE} -->",
        f"<script>{vega_script()}</script>",
        f"<script>{_asset('page.js')}</script></body></html>\n",
    ]
    return "\n".join(parts)


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _colors() -> str:
    """Return the variables of colours: on a light page, a dark one, and on paper."""
    light = "".join(f"--run{index}:{color};" for index, color in enumerate(ON_PAPER))
    dark = "".join(f"--run{index}:{color};" for index, color in enumerate(ON_SLATE))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _body(report: Report, specs: list[object]) -> str:
    answer = None if report.comparison is None else comparison_answer(report.comparison)
    return "".join(
        [
            "" if answer is None else _answer(answer),
            _runs_table(report),
            *(_chart(report, chart, specs) for chart in all_charts(report.runs)),
            "" if answer is None else f"<h3>Side by side, in full</h3>{''.join(map(_part, answer.why))}",
            "<h3>Each run</h3>",
            *map(_details, report.runs, report.names),
        ]
    )


def _answer(answer: Answer) -> str:
    command = f"<pre>{text(answer.command)}</pre>" if answer.command else ""
    notes = "".join(f"<li>{text(note)}</li>" for note in answer.notes)
    parts = "".join(map(_part, answer.parts))
    return f'<p class="answer">{text(answer.text)}</p>{command}{parts}<ul class="notes">{notes}</ul>'


def _part(part: Part) -> str:
    match part:
        case str():
            return f"<p>{text(part)}</p>"
        case Command(line):
            return f"<pre>{text(line)}</pre>"
        case Facts(items, title):
            facts = "".join(f"<li>{text(f'{name}: {said}')}</li>" for name, said in items if said)
            return f'<p>{text(title)}</p><ul class="notes">{facts}</ul>' if facts else ""
    return f"<p>{text(part.title)}</p>{_table(part.figures, part.rows)}" if part.rows else ""


def _runs_table(report: Report) -> str:
    """Return the runs with their figures; each is named by its number, in its colour."""
    names = [
        f'<td data-value="{one.run_id}"><a href="#run-{one.run_id}">'
        f'<span class="run" style="color:{color_of(color)}">{one.run_id}</span></a></td>'
        for one, color in zip(report.runs, report.colors, strict=True)
    ]
    return _table(report.figures, report.shown, names)


def _table(figures: Sequence[Figure[Row]], rows: Sequence[Row], names: Sequence[str] = ()) -> str:
    """Return a table that is sorted by clicking a header, with a hint shown while it can be scrolled.

    `names` are the HTML cells of a first column.
    """
    columns = [['<th scope="col"><button type="button">run</button></th>', *names]] if names else []
    columns += [
        _column(figure, rows)
        for figure in figures
        if any(figure.text(row) not in ("", UNKNOWN) for row in rows)
    ]
    head, *body = (f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True))
    return (
        f'<div class="table"><div class="scroll" tabindex="0"><table class="sortable">'
        f"<thead>{head}</thead><tbody>{''.join(body)}</tbody>"
        '</table></div><p class="hint" hidden></p></div>'
    )


def _column(figure: Figure[Row], rows: Sequence[Row]) -> list[str]:
    """Return the cells of a figure, the header first; an estimate is sorted by its value."""
    found = [figure.get(row) for row in rows]
    right = "" if any(isinstance(value, str) for value in found) else ' class="right"'
    cells = [f'<th scope="col"{right}><button type="button">{text(figure.title)}</button></th>']
    for row, value in zip(rows, found, strict=True):
        by = value.value if isinstance(value, Estimate) else value
        data = "" if by is None else f' data-value="{text(str(by))}"'
        cells.append(f"<td{right}{data}>{text(figure.text(row))}</td>")
    return cells


_ZOOM = (
    '<span class="zoom"><button type="button" data-zoom="0.5" title="zoom in">+</button>'
    '<button type="button" data-zoom="2" title="zoom out">−</button>'
    '<button type="button" data-zoom="0" title="show all">reset</button></span>'
)


def _chart(report: Report, chart: LineChart, specs: list[object]) -> str:
    specs.append(as_vega(chart, report.colors))
    title = chart.y_title[:1].upper() + chart.y_title[1:]
    return (
        f'<figure class="chart" data-spec="{len(specs) - 1}" data-x="{text(chart.x_title)}">'
        f'<figcaption><h3>{text(title)}</h3>{_ZOOM}</figcaption><div class="plot"></div>'
        f'{_keys(report, chart)}<p class="legend">{how_to_read(chart)}</p></figure>'
    )


def how_to_read(figure: LineChart) -> str:
    curves = [curve for curve in figure.curves if len(curve.x)]
    has_steps = any(curve.is_smoothed for curve in curves)
    meanings = {
        "Line: the rolling median over 256 positions. Paler behind it: every single step.": has_steps,
        "Band: the 95 % interval.": any(curve.error is not None and curve.error.any() for curve in curves),
        "Dashed: the fit.": any(curve.fit for curve in curves),
        "Dotted: the memory bandwidth limit.": any(curve.limit for curve in curves),
        "▲ slower than the axis shows.": has_steps,
        '<span class="zoom">Drag to move, Ctrl and the wheel to zoom.</span>': True,
    }
    return " ".join(meaning for meaning, is_shown in meanings.items() if is_shown)


def _keys(report: Report, chart: LineChart) -> str:
    buttons = []
    for index, color in curve_colors(chart, report.colors).items():
        curve = chart.curves[index]
        label = "   ".join(filter(None, (f"{letter(index)}  {report.names[index]}", curve.note)))
        buttons.append(
            f'<button type="button" class="key" aria-pressed="true" data-run="{index}">'
            f'<i style="background:{color}"></i>{text(label)}</button>'
        )
    return f'<div class="keys">{"".join(buttons)}</div>'


def _origin(one: SavedRun) -> str:
    run = one.run
    machine = machine_text(run.environment)
    when = f", {text(run.head.started_at)}" if run.head.started_at else ""
    return (
        f'<a href="#run-{one.run_id}">run {one.run_id}</a>, {text(run.head.kind)}{when}'
        f"{f', {text(machine)}' if machine else ''}<br><code>{text(reproducing(run))}</code>"
    )


def _details(one: SavedRun, name: str) -> str:
    run = one.run
    presenter = presenter_of(run.head.kind)
    answer = presenter.details(run)
    return (
        f'<details class="details" id="run-{one.run_id}"><summary>run {one.run_id}, {text(run.head.kind)}, '
        f"{text(name)}: {text(presenter.ending(run))}</summary>"
        f"<p>{_origin(one)}</p>{''.join(map(_part, (*answer.parts, *answer.notes, *answer.why)))}</details>"
    )


_JSON_ESCAPED = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def text(value: str) -> str:
    """Return text for HTML, escaped, on one line and without control characters."""
    return html.escape(sanitize(value))


def json_script(value: object) -> str:
    """Return a script element with data; no text in it can end the element or start a comment."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escaped = _JSON_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", content)
    return f'<script type="application/json" id="charts">{escaped}</script>'
