"""A report as one HTML file that opens from disk and loads nothing.

Tables and texts are plain HTML; the embedded Vega draws the charts from the same specifications as SVG and PNG. The
content security policy forbids all requests, in case a name smuggles one in.
"""

from __future__ import annotations

import html
import io
import json
import re
from collections.abc import Iterable, Sequence
from importlib.resources import files

from ggbench import __version__
from ggbench.decisions.compare.comparison import Comparison
from ggbench.formats.report_contents import ReportedModel, all_charts
from ggbench.show import UNKNOWN, letter
from ggbench.show.charts import OUTSIDE, BarChart, Chart, LineChart, StackChart, runs_of
from ggbench.show.figure import Value
from ggbench.show.listed_runs import SavedRun
from ggbench.show.machine import machine_text, reproducing
from ggbench.show.presenter import figure_of, presenter_of
from ggbench.show.vega import (
    LIMITS,
    ON_PAPER,
    ON_SLATE,
    PAGE,
    Drawing,
    as_vega,
    labels_of,
    title_of,
    vega_script,
)
from ggbench.stats.intervals import Estimate
from ggbench.text import in_words, sanitize
from ggbench.units import counted

_DETAILS_WIDTH = 100
"""Characters per line of a run's details."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)
_LICENSE = """Vega: Copyright (c) 2015-2025, University of Washington Interactive Data Lab. All rights reserved.
Redistribution and use in source and binary forms, with or without modification, are permitted under the terms of the
BSD 3-Clause License, https://github.com/vega/vega/blob/main/LICENSE. The software is provided "as is", without any
warranty."""


def report_html(models: Sequence[ReportedModel]) -> str:
    """Return the page. Raises StoreError for a run of an unknown kind."""
    specs: list[object] = []
    body = "".join(
        f'<section id="model-{number}">{f"<h2>{text(model.title)}</h2>" if len(models) > 1 else ""}'
        f"{_model(model, specs)}</section>"
        for number, model in enumerate(models)
    )
    title = f"{', '.join(model.title for model in models[:3])}{' …' if len(models) > 3 else ''}"
    runs = [one for model in models for one in model.runs]
    contents = "".join(
        f'<li><a href="#model-{number}">{text(model.title)}</a> {counted(len(model.runs), "run")}</li>'
        for number, model in enumerate(models)
    )
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{text(title)}: ggbench report</title>",
        f"<style>{_colors()}{_asset('page.css')}</style></head><body><main>",
        f"<header><h1>{text(title)}</h1><p>{counted(len(runs), 'run')}, written by ggbench {__version__}."
        f" Latency of token n is (n − 1) / W + B.</p></header>",
        f"<nav><ul>{contents}</ul></nav>" if len(models) > 1 else "",
        body,
        '</main><div id="tip" role="status" hidden></div>',
        "<noscript><p>Charts need JavaScript (included in this file); tables do not.</p></noscript>",
        json_script("charts", specs),
        f"<!-- {_LICENSE} -->",
        f"<script>{vega_script()}</script>",
        f"<script>{_asset('page.js')}</script></body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _colors() -> str:
    """Return the variables of `vega.PAGE`: on a light page, a dark one, and on paper."""
    light = "".join(f"--run{index}:{color};" for index, color in enumerate(ON_PAPER))
    dark = "".join(f"--run{index}:{color};" for index, color in enumerate(ON_SLATE))
    return f":root{{{light}}}@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _model(model: ReportedModel, specs: list[object]) -> str:
    comparison = model.comparison
    sentences = comparison.sentences if comparison else ()
    return (
        (
            f'<ul class="answer">{"".join(f"<li>{text(each)}</li>" for each in sentences)}</ul>'
            if sentences
            else ""
        )
        + _runs_table(model)
        + "".join(_chart(model, chart, specs) for chart in all_charts(model.runs))
        + ("" if comparison is None else _comparison(comparison))
        + "<h3>Each run</h3>"
        + "".join(map(_details, model.runs, model.names))
    )


def _runs_table(model: ReportedModel) -> str:
    figures = [figure_of(key) for key in model.columns]
    headers = [("", False), *((figure.title, figure.better != "") for figure in figures)]
    rows = []
    for index, one in enumerate(model.runs):
        cells = [figure.text(one.summary) for figure in figures]
        values = [_number(figure.get(one.summary)) for figure in figures]
        color = PAGE.color(model.colors[index])
        name = f'<a href="#run-{one.run_id}"><span class="run" style="color:{color}">{letter(index)}</span></a>'
        rows.append([(name, index), *((text(cell), value) for cell, value in zip(cells, values, strict=True))])
    return table(headers, rows)


def _number(value: Value) -> Value:
    return value.value if isinstance(value, Estimate) else value


def _chart(model: ReportedModel, chart: Chart, specs: list[object]) -> str:
    drawing = Drawing(PAGE, model.names, is_interactive=True, colors=model.colors)
    specs.append(as_vega(chart, drawing))
    figure = chart if isinstance(chart, LineChart) else None
    keys = "" if isinstance(chart, (BarChart, StackChart)) else _keys(chart, drawing)
    zoom = (
        '<span class="zoom"><button type="button" data-zoom="0.5" title="zoom in">+</button>'
        '<button type="button" data-zoom="2" title="zoom out">−</button>'
        '<button type="button" data-zoom="0" title="show all">reset</button></span>'
    )
    note = how_to_read(figure) if figure else _marks_note(chart)
    legend = f'<p class="legend">{note}</p>' if note else ""
    return (
        f'<figure class="chart" data-spec="{len(specs) - 1}" data-kind="{"curves" if figure else "marks"}"'
        f' data-x="{text(figure.x_title) if figure else ""}">'
        f'<figcaption><h3>{text(title_of(chart))}</h3>{zoom if figure else ""}</figcaption><div class="plot"></div>'
        f"{keys}{legend}{_source(model, chart)}</figure>"
    )


def how_to_read(figure: LineChart) -> str:
    curves = [curve for curve in figure.curves if len(curve.x)]
    has_steps = any(curve.error is None for curve in curves)
    meanings = {
        "Line: the rolling median over 256 positions. Paler behind it: every single step.": has_steps,
        "Band: the 95 % interval.": any(curve.error is not None and curve.error.any() for curve in curves),
        "Dashed: the fit.": any(curve.fit for curve in curves),
        "Dotted: the memory bandwidth limit.": any(curve.limit for curve in curves),
        "▲ slower than the axis shows.": has_steps,
        '<span class="zoom">Drag to move, Ctrl and the wheel to zoom.</span>': True,
    }
    return " ".join(meaning for meaning, is_shown in meanings.items() if is_shown)


def _keys(chart: Chart, drawing: Drawing) -> str:
    buttons = "".join(
        f'<button type="button" class="key" aria-pressed="true" data-run="{index}">'
        f'<i style="background:{drawing.color(chart, index)}"></i>{text(label)}</button>'
        for index, label in labels_of(chart, drawing.names).items()
    )
    return f'<div class="keys">{buttons}</div>'


def _marks_note(chart: Chart) -> str:
    if isinstance(chart, StackChart):
        is_outside = any(part.name == OUTSIDE for part in chart.parts)
        return f"{OUTSIDE.capitalize()}: other memory of the process at its peak." if is_outside else ""
    has_limits = isinstance(chart, BarChart) and any(bar.limit is not None for bar in chart.bars)
    return f"{LIMITS[:1].upper()}{LIMITS[1:]}." if has_limits else ""


def _source(model: ReportedModel, chart: Chart) -> str:
    """Return the runs in a chart, where they were measured, and the commands that measure and draw them."""
    shown = [model.runs[index] for index in runs_of(chart)]
    numbers = [str(one.run_id) for one in shown]
    rows = "".join(f"<li>{_origin(one)}</li>" for one in shown)
    return (
        f"<details><summary>Source: run{'s' * (len(shown) > 1)} {in_words(numbers)}</summary>"
        f"<ul>{rows}</ul><p>This picture: <code>ggbench report {' '.join(numbers)} -o report.svg</code></p></details>"
    )


def _origin(one: SavedRun) -> str:
    run = one.summary.run
    machine = machine_text(run.head.environment)
    when = f", {text(run.head.started_at)}" if run.head.started_at else ""
    return (
        f'<a href="#run-{one.run_id}">run {one.run_id}</a>, {text(run.head.kind)}{when}'
        f"{f', {text(machine)}' if machine else ''}<br><code>{text(reproducing(run))}</code>"
    )


def _comparison(comparison: Comparison) -> str:
    headers = [("", False), *((f"{letter(index)} {name}", True) for index, name in enumerate(comparison.names))]
    rows: list[list[tuple[str, object]]] = []
    for line in comparison.lines:
        if {*line.texts} != {UNKNOWN}:
            pairs = zip(line.texts, line.better, strict=True)
            cells = [text(f"★ {cell}" if is_better else cell) for cell, is_better in pairs]
            header = text(f"{line.header} {line.unit}".rstrip())
            rows.append([(cell, None) for cell in (header, *cells)])
    notes = [text(warning) for warning in comparison.warnings]
    differing = [(topic, lines) for topic, lines in comparison.differences.items() if lines]
    notes += ["<br>".join([f"Different {text(topic)}", *map(text, lines)]) for topic, lines in differing]
    return (
        "<h3>Side by side</h3><p>★ better: the 95 % interval of the ratio excludes 1.</p>"
        + table(headers, rows)
        + f'<ul class="notes">{"".join(f"<li>{note}</li>" for note in notes)}</ul>'
    )


def _details(one: SavedRun, name: str) -> str:
    from rich.console import Console

    run = one.summary.run
    presenter = presenter_of(run.head.kind)
    console = Console(file=io.StringIO(), width=_DETAILS_WIDTH, color_system=None, highlight=False)
    console.print(presenter.details(run, one.readings).rich(why=True), crop=False)
    assert isinstance(console.file, io.StringIO)
    printed = "\n".join(text(line.rstrip()) for line in console.file.getvalue().strip("\n").split("\n"))
    return (
        f'<details class="details" id="run-{one.run_id}"><summary>run {one.run_id}, {text(run.head.kind)}, '
        f"{text(name)}: {text(presenter.ending(run))}</summary>"
        f"<p>{_origin(one)}</p><pre>{printed}</pre></details>"
    )


_JSON_ESCAPED = re.compile("[<>&\u2028\u2029\ud800-\udfff]")


def text(value: str) -> str:
    """Return text for HTML, escaped, on one line and without control characters."""
    return html.escape(sanitize(value))


def json_script(name: str, value: object) -> str:
    """Return a script element with data; no text in it can end the element or start a comment."""
    content = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    escaped = _JSON_ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", content)
    return f'<script type="application/json" id="{name}">{escaped}</script>'


def table(
    headers: Sequence[tuple[str, bool]],
    rows: Iterable[Sequence[tuple[str, object]]],
) -> str:
    """Return a table that is sorted by clicking a header, with a hint shown while it can be scrolled.

    `headers` are pairs of text and whether to right-align; cells are pairs of HTML and sort value, None for last.
    """
    aligned = [' class="right"' if right else "" for _, right in headers]
    head = "".join(
        f'<th scope="col"{align}><button type="button">{text(header)}</button></th>'
        for (header, _), align in zip(headers, aligned, strict=True)
    )
    body = ""
    for row in rows:
        body += "<tr>"
        for (cell, value), align in zip(row, aligned, strict=True):
            sorted_by = "" if value is None else f' data-value="{text(str(value))}"'
            body += f"<td{align}{sorted_by}>{cell}</td>"
        body += "</tr>"
    return (
        f'<div class="table"><div class="scroll" tabindex="0"><table class="sortable">'
        f'<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div><p class="hint" hidden></p></div>'
    )
