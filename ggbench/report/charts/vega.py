"""Charts as Vega-Lite specifications, the one definition that HTML, SVG and PNG are made from.

Specifications are plain dictionaries: Altair would write the same JSON, and brings narwhals, jsonschema and Jinja2.
Names of models are data, never a part of an expression that Vega evaluates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ggbench.report.charts.charts import BarChart, Chart, PointChart, StackChart, runs_of
from ggbench.report.charts.curve_data import TICKS, curve_data
from ggbench.report.charts.look import FONT, Look
from ggbench.report.plot.curves import Figure
from ggbench.report.plot.palette import letter

Spec = dict[str, Any]

BINS_NAME = "bins"
"""The data set of a figure's curves, from which a page shows the values under the pointer."""
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Names the language; nothing loads it."""
_HEIGHT, _BAR, _WIDTH = 320, 26, 760
_FAINT, _ERRORS = 0.22, 0.15
_DASHES, _DOTS = [9, 5], [1, 5]
LIMITS = "the dashed line is the limit of the memory's bandwidth"
_TEXT_WIDTH = 120
_LABEL_WIDTH = 220
"""Pixels of a run's name beside its bar; longer ones are cut with an ellipsis."""
_TICKS_ACROSS = {"expr": f"clamp(floor(width / 90), 2, {TICKS[0]})"}
"""As many as there is room for."""
_SHAPES = ["circle", "cross", "square", "triangle-up", "diamond", "triangle-down"]
_SHOWN = {"filter": "indexof(hidden, datum.s) < 0"}
"""Leaves out the runs that a reader switched off."""
_LABEL = "labels[datum.value]"
"""A run's name in place of its index."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a chart is drawn with."""

    look: Look
    names: Sequence[str]
    """Of all runs of the report; printable."""
    is_interactive: bool
    """Whether a page around it has legend, title and tooltips, so that the chart itself needs none."""
    source: str = ""
    """Under the title of a picture: which runs, measured where and with what."""


def chart_spec(chart: Chart, drawing: Drawing) -> Spec:
    """Return the Vega-Lite specification of a chart that is not empty."""
    if isinstance(chart, Figure):
        spec = _curves(chart, drawing)
    elif isinstance(chart, BarChart):
        spec = _bars(chart, drawing)
    elif isinstance(chart, StackChart):
        spec = _stack(chart, drawing)
    else:
        spec = _points(chart, drawing)
    look = drawing.look
    spec |= {
        "$schema": _SCHEMA,
        "background": look.page or "transparent",
        "width": "container" if drawing.is_interactive else _WIDTH,
        "autosize": {"type": "fit-x" if drawing.is_interactive else "pad", "contains": "padding"},
        "params": [
            {"name": "hidden", "value": []},
            {"name": "labels", "value": {str(run): text for run, text in labels_of(chart, drawing.names).items()}},
        ],
        "config": _config(look),
    }
    if not drawing.is_interactive:
        subtitle = {"subtitle": [drawing.source], "subtitlePadding": 6} if drawing.source else {}
        spec["title"] = {"text": title_of(chart), "anchor": "start", "offset": 12, **subtitle}
        spec["padding"] = 14
    return spec


def title_of(chart: Chart) -> str:
    """Return the title of a chart: `latency of one token [ms]`."""
    if isinstance(chart, Figure):
        return chart.y_title[:1].upper() + chart.y_title[1:]
    return f"{chart.title} [{chart.unit}]" if isinstance(chart, (BarChart, StackChart)) else chart.title


def labels_of(chart: Chart, names: Sequence[str]) -> dict[int, str]:
    """Return what each run of a chart is called, by its index: letter, name and, of a curve, its note."""
    notes = [curve.note for curve in chart.curves] if isinstance(chart, Figure) else [""] * len(names)
    return {
        index: f"{letter(index)}  {names[index]}{f'   {notes[index]}' if notes[index] else ''}"
        for index in runs_of(chart)
    }


def _curves(figure: Figure, drawing: Drawing) -> Spec:
    """The band behind the line, then limit, fit, marks of steps beyond the top, and a letter at each end."""
    data = curve_data(figure)
    has_steps = all(curve.error is None for curve in figure.curves if len(curve.x))
    x = _quantity("x", figure.x_title, (data.x.low, data.x.high), TICKS[0], whole=True)
    y = _quantity("y", figure.y_title, (data.y.low, data.y.high), TICKS[1])
    color = _run_color(figure, drawing)
    labels = {"field": "label", "type": "nominal"}
    band: Spec = {
        "data": {"name": BINS_NAME},
        "transform": [_SHOWN],
        "mark": {"type": "area", "clip": True, "opacity": _FAINT if has_steps else _ERRORS, "line": False},
        "encoding": {"x": x, "y": y | {"field": "lo"}, "y2": {"field": "hi"}, "color": color},
    }
    line: Spec = {
        "data": {"name": BINS_NAME},
        "transform": [_SHOWN],
        "mark": {"type": "line", "clip": True, "strokeWidth": 1.8, "strokeJoin": "round"},
        "encoding": {"x": x, "y": y, "color": color},
    }
    if drawing.is_interactive:
        wheel = "wheel![event.ctrlKey || event.metaKey]"
        line["params"] = [{"name": "zoom", "select": {"type": "interval", "zoom": wheel}, "bind": "scales"}]
    layers = [band]
    for kind, dash, width in (("limit", _DOTS, 2.0), ("fit", _DASHES, 1.4)):
        rows = [row for row in data.lines if row["k"] == kind]
        if rows:
            mark = {"type": "line", "clip": True, "strokeDash": dash, "strokeWidth": width, "strokeCap": "round"}
            layers.append({"data": {"values": rows}, "transform": [_SHOWN], "mark": mark,
                           "encoding": {"x": x, "y": y, "color": color}})  # fmt: skip
    layers.append(line)
    if data.slow:
        mark = {"type": "point", "shape": "triangle-up", "filled": True, "size": 45, "opacity": 1}
        at_the_top = {"value": 4}
        layers.append({"data": {"values": data.slow}, "transform": [_SHOWN], "mark": mark,
                       "encoding": {"x": x, "y": at_the_top, "color": color}})  # fmt: skip
    ends = [row | {"label": letter(row["s"])} for row in data.ends]
    mark = {"type": "text", "align": "left", "dx": 5, "fontWeight": "bold", "fontSize": 13, "clip": False}
    layers.append({"data": {"values": ends}, "transform": [_SHOWN], "mark": mark,
                   "encoding": {"x": x, "y": y, "text": labels, "color": color}})  # fmt: skip
    return {"height": _HEIGHT, "datasets": {BINS_NAME: data.bins}, "layer": layers}


def _bars(chart: BarChart, drawing: Drawing) -> Spec:
    """Horizontal bars with their intervals; the limit is a dashed line across each."""
    rows = [
        {"s": bar.run, "v": bar.value, "lo": bar.low, "hi": bar.high, "limit": bar.limit, "t": bar.text}
        for bar in chart.bars
    ]
    has_limits = any(bar.limit is not None for bar in chart.bars)
    better = "less is better" if chart.is_less_better else "more is better"
    limits = f", {LIMITS}" if has_limits and not drawing.is_interactive else ""
    x = {
        "field": "v",
        "type": "quantitative",
        "title": f"{chart.unit}, {better}{limits}",
        "axis": {"tickCount": _TICKS_ACROSS},
    }
    y = _run_rows(chart, drawing)
    ink = drawing.look.ink
    layers: list[Spec] = [
        {"mark": {"type": "bar", "height": {"band": 0.62}, "opacity": 0.85},
         "encoding": {"x": x, "y": y, "color": _run_color(chart, drawing, has_legend=False), "tooltip": _tooltip("t")}},
    ]  # fmt: skip
    if any(bar.low is not None and bar.high is not None for bar in chart.bars):
        layers.append({"transform": [{"filter": "isValid(datum.lo) && isValid(datum.hi)"}],
                       "mark": {"type": "rule", "color": ink, "strokeWidth": 2},
                       "encoding": {"x": x | {"field": "lo"}, "x2": {"field": "hi"}, "y": y}})  # fmt: skip
    if has_limits:
        across = {"y": y | {"bandPosition": 0.04}, "y2": {"field": "s", "bandPosition": 0.96}}
        layers.append({"transform": [{"filter": "isValid(datum.limit)"}],
                       "mark": {"type": "rule", "color": ink, "strokeWidth": 2, "strokeDash": [4, 2]},
                       "encoding": {"x": x | {"field": "limit"}, **across}})  # fmt: skip
    layers.append({"mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 8, "color": ink},
                   "transform": [{"calculate": "max(datum.v, datum.hi || 0, datum.limit || 0)", "as": "end"}],
                   "encoding": {"x": x | {"field": "end"}, "y": y, "text": {"field": "t"}}})  # fmt: skip
    ends = [value for bar in chart.bars for value in (bar.value, bar.high, bar.limit) if value is not None]
    x["scale"] = _with_room(max(ends))
    return {"data": {"values": rows}, "transform": [_SHOWN], "height": {"step": _BAR}, "layer": layers}


def _stack(chart: StackChart, drawing: Drawing) -> Spec:
    order = list(dict.fromkeys(part.name for part in chart.parts))
    rows = [
        {"s": part.run, "p": part.name, "v": part.value, "t": f"{part.name} {part.text}", "o": order.index(part.name)}
        for part in chart.parts
    ]
    colors = [drawing.look.color(index) for index in range(len(order))]
    color = {"field": "p", "type": "nominal", "scale": {"domain": order, "range": colors}, "title": None,
             "legend": {"orient": "top", "symbolType": "square"}}  # fmt: skip
    x: Spec = {"field": "v", "type": "quantitative", "title": chart.unit, "stack": "zero",
               "axis": {"tickCount": _TICKS_ACROSS}}  # fmt: skip
    y = _run_rows(chart, drawing)
    totals = [{"s": total.run, "v": total.value, "t": total.text} for total in chart.totals]
    x["scale"] = _with_room(max(total.value for total in chart.totals))
    bars = {
        "data": {"values": rows},
        "transform": [_SHOWN],
        "mark": {"type": "bar", "height": {"band": 0.62}, "opacity": 0.9},
        "encoding": {"x": x, "y": y, "color": color, "order": {"field": "o", "type": "quantitative"},
                     "tooltip": _tooltip("t")},
    }  # fmt: skip
    ends = {
        "data": {"values": totals},
        "transform": [_SHOWN],
        "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 6, "color": drawing.look.ink},
        "encoding": {"x": x | {"stack": None}, "y": y, "text": {"field": "t"}},
    }
    return {"height": {"step": _BAR}, "layer": [bars, ends]}


def _with_room(most: float) -> Spec:
    """A scale from zero that ends `_TEXT_WIDTH` pixels beyond the longest bar, where its text is."""
    end = {"expr": f"{most!r} * width / max(width - {_TEXT_WIDTH}, 60)"}
    return {"domainMin": 0, "domainMax": end, "nice": False}


def _points(chart: PointChart, drawing: Drawing) -> Spec:
    """Points with their intervals; groups differ by shape."""
    rows = []
    for point in chart.points:
        x_low, x_high = point.x_ends or (None, None)
        y_low, y_high = point.y_ends or (None, None)
        ends = {"x1": x_low, "x2": x_high, "y1": y_low, "y2": y_high}
        row = {"s": point.run, "x": point.x, "y": point.y, "g": point.group, "n": drawing.names[point.run]}
        rows.append(row | ends | {"t": f"{letter(point.run)} {drawing.names[point.run]}: {point.text}"})
    x_scale: Spec = {"zero": False, "padding": 24} if chart.has_labels else {"zero": False, "padding": 10}
    x: Spec = {"field": "x", "type": "quantitative", "title": chart.x_title, "scale": x_scale}
    x["axis"] = {"format": ",d", "tickMinStep": 1} if chart.counts else {}
    y_scale = {"zero": False, "padding": 16}
    y = {"field": "y", "type": "quantitative", "title": chart.y_title, "scale": y_scale}
    color = _run_color(chart, drawing, has_legend=not chart.has_labels)
    mark: Spec = {"type": "point", "filled": True, "size": 90, "opacity": 1}
    encoding: Spec = {"x": x, "y": y, "color": color, "tooltip": _tooltip("t")}
    groups = sorted({point.group for point in chart.points})
    if groups != [""]:
        legend = {"orient": "top", "symbolFillColor": drawing.look.muted, "symbolStrokeColor": drawing.look.muted}
        scale = {"domain": groups, "range": [_SHAPES[index % len(_SHAPES)] for index in range(len(groups))]}
        encoding["shape"] = {"field": "g", "type": "nominal", "title": None, "scale": scale, "legend": legend}
    layers: list[Spec] = []
    if chart.counts:
        layers.append({"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.6},
                       "encoding": {"x": x, "y": y, "color": color}})  # fmt: skip
    for low, high, along, across in (("x1", "x2", x, y), ("y1", "y2", y, x)):
        if any(row[low] is not None for row in rows):
            name, other = ("x", "y") if low == "x1" else ("y", "x")
            layers.append({"transform": [{"filter": f"isValid(datum.{low})"}],
                           "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.7},
                           "encoding": {name: along | {"field": low}, f"{name}2": {"field": high}, other: across,
                                        "color": color}})  # fmt: skip
    layers.append({"mark": mark, "encoding": encoding})
    if chart.has_labels:
        layers.append({"mark": {"type": "text", "align": "left", "dx": 9, "dy": -9, "limit": _LABEL_WIDTH},
                       "encoding": {"x": x, "y": y, "text": {"field": "n"}, "color": color}})  # fmt: skip
    return {"data": {"values": rows}, "transform": [_SHOWN], "height": _HEIGHT, "layer": layers}


def _quantity(field: str, title: str, domain: tuple[float, float], ticks: int, *, whole: bool = False) -> Spec:
    """An axis from one end to the other, with a title that has its unit."""
    axis: Spec = {"tickCount": _TICKS_ACROSS if field == "x" else ticks, "grid": field == "y"}
    if whole:
        axis |= {"format": ",d", "tickMinStep": 1, "labelOverlap": True}
    scale = {"domain": list(domain), "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _run_color(chart: Chart, drawing: Drawing, *, has_legend: bool = True) -> Spec:
    """A colour for each run, and in a picture a legend with its letter, its name and its note."""
    return _by_run(chart, drawing) | {
        "legend": None
        if drawing.is_interactive or not has_legend
        else {
            "orient": "bottom",
            "columns": 1,
            "labelLimit": 0,
            "symbolType": "stroke",
            "symbolOpacity": 1,
            "symbolStrokeWidth": 3,
            "labelExpr": _LABEL,
        }
    }


def _by_run(chart: Chart, drawing: Drawing) -> Spec:
    runs = runs_of(chart)
    scale = {"domain": list(runs), "range": [drawing.look.color(index) for index in runs]}
    return {"field": "s", "type": "nominal", "scale": scale, "title": None}


def _run_rows(chart: Chart, drawing: Drawing) -> Spec:
    """A row for each run, called by its name."""
    limit = 110 if drawing.is_interactive else _LABEL_WIDTH
    axis = {"labelLimit": limit, "ticks": False, "domain": False, "grid": False,
            "labelExpr": _LABEL}  # fmt: skip
    return {"field": "s", "type": "nominal", "sort": list(runs_of(chart)), "title": None, "axis": axis}


def _tooltip(field: str) -> Spec:
    return {"field": field, "type": "nominal"}


def _config(look: Look) -> Spec:
    axis = {
        "labelColor": look.ink, "titleColor": look.ink, "gridColor": look.grid, "domainColor": look.muted,
        "tickColor": look.muted, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "titlePadding": 8,
    }  # fmt: skip
    return {
        "font": FONT,
        "axis": axis,
        "legend": {"labelColor": look.ink, "titleColor": look.ink, "labelFontSize": 12},
        "title": {"color": look.ink, "subtitleColor": look.muted, "fontSize": 15, "subtitleFontSize": 11},
        "view": {"stroke": None},
        "text": {"fontSize": 12},
        "customFormatTypes": False,
    }
