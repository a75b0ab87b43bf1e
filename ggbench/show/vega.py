"""Charts as Vega-Lite specifications, from which vl-convert makes HTML, SVG and PNG.

Specifications are plain dictionaries: Altair would write the same JSON but depends on narwhals, jsonschema and Jinja2.
Model names are data, never part of an expression that Vega evaluates.

vl-convert is a wheel of 33.5 MB that includes the 0.9 MB of JavaScript for a page. plotly needs a Chrome for pictures
and 4.6 MB of JavaScript in each page; matplotlib has no interaction.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ggbench.errors import DoesNotFit
from ggbench.machine import address_space
from ggbench.show import letter
from ggbench.show.axes import TICKS, curve_data
from ggbench.show.charts import BarChart, Chart, LineChart, PointChart, StackChart, series_of
from ggbench.text import sanitize
from ggbench.units import GIB, format_bytes

Spec = dict[str, Any]
PictureForm = Literal["svg", "png"]

_VERSION = "6.4"
"""Version of Vega-Lite, which vl-convert must include."""
_SCALE = 2.0
"""Pixels of a PNG per pixel of an SVG."""
_ADDRESS_SPACE_BYTES = 65 * GIB
"""Reserved by V8 in vl-convert 1.9, which uses 0.2 GiB of it; under a lower limit it kills the process."""

ON_PAPER = ("#0072b2", "#c04f00", "#00805c", "#a64d84", "#8a6500", "#2b2b9e", "#5c5c5c", "#b0182f")
"""Okabe and Ito's colours (https://jfly.uni-koeln.de/color), distinguishable with any colour vision, darkened to a
contrast of 4.5 on white (WCAG 2.2, 1.4.3) for letters and thin lines.
"""
ON_SLATE = ("#56b4e9", "#f0954f", "#2fc99b", "#e2a0c6", "#e6c200", "#a9a9ff", "#bdbdbd", "#ff8a94")
"""The same hues, lighter, for a dark page."""
BINS_NAME = "bins"
FONT = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"
"""Common desktop fonts; nothing is downloaded."""
_HEIGHT, _WIDTH = 320, 760
_BAR, _ROW, _BELOW = 16, 43, 8
"""Heights of a bar and of its row, and from the middle of the row down to that of the bar."""
_STEPS, _ERRORS = 0.45, 0.15
"""Opacity of single steps and of intervals behind a line."""
_STEP_WIDTH = 0.8
"""Width of the line around single steps, since the band of a bin with one step has no height."""
_PARTS = 1.0, 0.64, 0.4, 0.24, 0.13
"""Opacities of the parts of a stack, which share the run's colour."""
_DASHES, _DOTS = [9, 5], [1, 5]
LIMITS = "the mark behind a bar is the memory bandwidth limit"
_TEXT_WIDTH = 120
_LABEL_WIDTH = 220
"""Pixels for a run's name next to a point; longer names are cut there, but complete in the legend."""
_TICKS_ACROSS = {"expr": f"clamp(floor(width / 90), 2, {TICKS[0]})"}
_SHOWN = {"filter": "indexof(hidden, datum.s) < 0"}
"""Excludes runs that the reader turned off."""


class Look(msgspec.Struct, frozen=True):
    series: tuple[str, ...]
    ink: str
    muted: str
    """Colour of axes, ticks and limits."""
    grid: str
    page: str | None
    """Background; None for transparent."""

    def color(self, index: int) -> str:
        return self.series[index % len(self.series)]


PICTURE = Look(ON_PAPER, "#1b1b1b", "#6b6b6b", "#e3e3e3", "#ffffff")
"""For SVG and PNG, which may be opened on any background."""
PAGE = Look(
    tuple(f"var(--run{index})" for index in range(len(ON_PAPER))),
    "var(--ink)",
    "var(--muted)",
    "var(--grid)",
    None,
)
"""For HTML, whose style sheet defines the variables for light and dark screens and paper."""


class Drawing(msgspec.Struct, frozen=True):
    look: Look
    names: Sequence[str]
    is_interactive: bool
    """Whether the surrounding page has the legend, title and tooltips."""
    colors: Sequence[int] = ()
    """Colour index of each run, so that runs of one quant can share a colour; empty for one colour per run."""
    source: str = ""
    """Subtitle of a picture: which runs, and where and how they were measured."""

    def color(self, chart: Chart, index: int) -> str:
        """Return the colour of a chart's series: its run's, or its own if a run has several."""
        has_own = isinstance(chart, LineChart) and chart.curves[index].run is not None
        return self.look.color(self.colors[index] if self.colors and not has_own else index)


def chart_spec(chart: Chart, drawing: Drawing) -> Spec:
    """Return the Vega-Lite specification of a non-empty chart."""
    match chart:
        case LineChart():
            spec = _curves(chart, drawing)
        case BarChart():
            spec = _bars(chart, drawing)
        case StackChart():
            spec = _stack(chart, drawing)
        case PointChart():
            spec = _points(chart, drawing)
    labels = {str(run): text for run, text in labels_of(chart, drawing.names).items()}
    is_interactive, look = drawing.is_interactive, drawing.look
    spec |= {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": look.page or "transparent",
        "width": "container" if is_interactive else _WIDTH,
        "autosize": {"type": "fit-x" if is_interactive else "pad", "contains": "padding"},
        "params": [{"name": "hidden", "value": []}, {"name": "labels", "value": labels}],
        "config": _config(look),
    }
    if not is_interactive:
        subtitle = {"subtitle": [drawing.source], "subtitlePadding": 6} if drawing.source else {}
        spec["title"] = {"text": title_of(chart), "anchor": "start", "offset": 12, **subtitle}
        spec["padding"] = 14
    return spec


def title_of(chart: Chart) -> str:
    if isinstance(chart, LineChart):
        return chart.y_title[:1].upper() + chart.y_title[1:]
    return f"{chart.title} [{chart.unit}]" if isinstance(chart, (BarChart, StackChart)) else chart.title


def labels_of(chart: Chart, names: Sequence[str]) -> dict[int, str]:
    labels = {}
    for index in series_of(chart):
        curve = chart.curves[index] if isinstance(chart, LineChart) else None
        name = names[index] if curve is None or curve.run is None else sanitize(curve.name)
        labels[index] = "   ".join(filter(None, (f"{letter(index)}  {name}", curve.note if curve else "")))
    return labels


def _layer(
    mark: str, encoding: Spec, rows: list[Spec] | str | None = None, *, where: str = "", **looks: object
) -> Spec:
    """Return one layer; `rows` are its own data or their name, `where` filters the chart's data."""
    layer: Spec = {"mark": {"type": mark} | looks, "encoding": encoding}
    if rows is not None:
        layer |= {"data": {"name": rows} if isinstance(rows, str) else {"values": rows}, "transform": [_SHOWN]}
    elif where:
        layer["transform"] = [{"filter": where}]
    return layer


def _curves(figure: LineChart, drawing: Drawing) -> Spec:
    data = curve_data(figure)
    has_steps = all(curve.error is None for curve in figure.curves if len(curve.x))
    x = _quantity("x", figure.x_title, (data.x.low, data.x.high), TICKS[0], whole=True)
    y = _quantity("y", figure.y_title, (data.y.low, data.y.high), TICKS[1])
    at: Spec = {"x": x, "y": y, "color": _run_color(figure, drawing)}
    band = at | {"y": y | {"field": "lo"}, "y2": {"field": "hi"}}
    if has_steps:
        band |= {"stroke": at["color"]}
        layers = [_layer("area", band, BINS_NAME, clip=True, opacity=_STEPS, strokeWidth=_STEP_WIDTH)]
    else:
        layers = [_layer("area", band, BINS_NAME, clip=True, opacity=_ERRORS, line=False)]
    for kind, dash, width in (("limit", _DOTS, 2.0), ("fit", _DASHES, 1.4)):
        if rows := [row for row in data.lines if row["k"] == kind]:
            layers.append(
                _layer("line", at, rows, clip=True, strokeDash=dash, strokeWidth=width, strokeCap="round")
            )
    line = _layer("line", at, BINS_NAME, clip=True, strokeWidth=1.8, strokeJoin="round")
    if drawing.is_interactive:
        wheel = "wheel![event.ctrlKey || event.metaKey]"
        line["params"] = [{"name": "zoom", "select": {"type": "interval", "zoom": wheel}, "bind": "scales"}]
    layers.append(line)
    if data.slow:
        top = at | {"y": {"value": 4}}
        layers.append(_layer("point", top, data.slow, shape="triangle-up", filled=True, size=45, opacity=1))
    ends = [row | {"label": letter(row["s"])} for row in data.ends]
    named = at | {"text": _words("label")}
    layers.append(_layer("text", named, ends, align="left", dx=5, fontWeight="bold", fontSize=13, clip=False))
    return {"height": _HEIGHT, "datasets": {BINS_NAME: data.bins}, "layer": layers}


def _bars(chart: BarChart, drawing: Drawing) -> Spec:
    rows = [
        {"s": bar.run, "v": bar.value, "lo": bar.low, "hi": bar.high, "limit": bar.limit, "t": bar.text}
        for bar in chart.bars
    ]
    has_limits = any(bar.limit is not None for bar in chart.bars)
    better = "lower is better" if chart.is_less_better else "higher is better"
    limits = f", {LIMITS}" if has_limits and not drawing.is_interactive else ""
    most = max(max(bar.value, bar.high or 0, bar.limit or 0) for bar in chart.bars)
    x = _bar_length(f"{chart.unit}, {better}{limits}", most)
    y, ink = _run_rows(chart), drawing.look.ink
    colored = {"x": x, "y": y, "color": _run_color(chart, drawing, has_legend=False), "tooltip": _words("t")}
    layers = [_layer("bar", colored, height=_BAR, yOffset=_BELOW, opacity=0.85)]
    span = {"x": x | {"field": "lo"}, "x2": {"field": "hi"}, "y": y}
    layers.append(_layer("rule", span, where="isValid(datum.lo) && isValid(datum.hi)", color=ink, strokeWidth=2,
                         yOffset=_BELOW, y2Offset=_BELOW))  # fmt: skip
    if has_limits:
        layers.append(_layer("tick", {"x": x | {"field": "limit"}, "y": y}, where="isValid(datum.limit)", color=ink,
                             orient="vertical", size=_BAR + 4, thickness=2, yOffset=_BELOW))  # fmt: skip
    text = _layer("text", {"x": x | {"field": "end"}, "y": y, "text": {"field": "t"}}, align="left",
                  baseline="middle", dx=8, yOffset=_BELOW, color=ink)  # fmt: skip
    text["transform"] = [{"calculate": "max(datum.v, datum.hi || 0, datum.limit || 0)", "as": "end"}]
    return {"data": {"values": rows}, "transform": [_SHOWN], "height": {"step": _ROW},
            "layer": [*layers, text]}  # fmt: skip


def _stack(chart: StackChart, drawing: Drawing) -> Spec:
    order = list(dict.fromkeys(part.name for part in chart.parts))
    rows: list[Spec] = [
        {
            "s": part.run,
            "p": part.name,
            "v": part.value,
            "t": f"{part.name} {part.text}",
            "o": order.index(part.name),
        }
        for part in chart.parts
    ]
    totals: list[Spec] = [{"s": total.run, "v": total.value, "t": total.text} for total in chart.totals]
    ink = drawing.look.ink
    part = {"field": "p", "type": "ordinal", "sort": order, "title": None,
            "scale": {"type": "ordinal", "domain": order, "range": _PARTS[: len(order)]},
            "legend": {"orient": "top", "symbolType": "square", "symbolFillColor": ink, "symbolStrokeColor": ink,
                       "symbolStrokeWidth": 0.5}}  # fmt: skip
    x = _bar_length(chart.unit, max(total.value for total in chart.totals)) | {"stack": "zero"}
    y = _run_rows(chart)
    at = {"x": x, "y": y, "color": _run_color(chart, drawing, has_legend=False), "opacity": part,
          "order": {"field": "o", "type": "quantitative"}, "tooltip": _words("t")}  # fmt: skip
    bars = _layer("bar", at, rows, height=_BAR, yOffset=_BELOW, stroke=drawing.look.muted, strokeWidth=0.5)
    end = {"x": x | {"stack": None}, "y": y, "text": {"field": "t"}}
    ends = _layer("text", end, totals, align="left", baseline="middle", dx=6, yOffset=_BELOW,
                  color=drawing.look.ink)  # fmt: skip
    return {"height": {"step": _ROW}, "layer": [bars, ends]}


def _bar_length(title: str, most: float) -> Spec:
    """Return the channel of bars from zero, leaving `_TEXT_WIDTH` pixels after the longest for its text."""
    end = {"expr": f"{most!r} * width / max(width - {_TEXT_WIDTH}, 60)"}
    return {"field": "v", "type": "quantitative", "title": title, "axis": {"tickCount": _TICKS_ACROSS},
            "scale": {"domainMin": 0, "domainMax": end, "nice": False}}  # fmt: skip


def _points(chart: PointChart, drawing: Drawing) -> Spec:
    rows = []
    for point in chart.points:
        (x1, x2), (y1, y2) = point.x_ends or (None, None), point.y_ends or (None, None)
        name = drawing.names[point.run]
        rows.append({"s": point.run, "x": point.x, "y": point.y, "n": name, "x1": x1, "x2": x2,
                     "y1": y1, "y2": y2, "t": f"{letter(point.run)} {name}: {point.text}"})  # fmt: skip
    x: Spec = {"field": "x", "type": "quantitative", "title": chart.x_title, "axis": {"tickCount": _TICKS_ACROSS},
               "scale": {"zero": False, "padding": 24}}  # fmt: skip
    y: Spec = {
        "field": "y",
        "type": "quantitative",
        "title": chart.y_title,
        "scale": {"zero": False, "padding": 16},
    }
    at: Spec = {"x": x, "y": y, "color": _run_color(chart, drawing)}
    layers = []
    for axis in ("x", "y"):
        span = at | {axis: at[axis] | {"field": f"{axis}1"}, f"{axis}2": {"field": f"{axis}2"}}
        layers.append(_layer("rule", span, where=f"isValid(datum.{axis}1)", strokeWidth=1.5, opacity=0.7))
    layers.append(_layer("point", at | {"tooltip": _words("t")}, filled=True, size=90, opacity=1))
    places = [point.x for point in chart.points]
    middle = (min(places) + max(places)) / 2
    for test, align, dx in (("<=", "left", 9), (">", "right", -9)):  # so that names stay inside the chart
        layers.append(_layer("text", at | {"text": {"field": "n"}}, where=f"datum.x {test} {middle!r}",
                             align=align, dx=dx, dy=-9, limit=_LABEL_WIDTH))  # fmt: skip
    return {"data": {"values": rows}, "transform": [_SHOWN], "height": _HEIGHT, "layer": layers}


def _quantity(field: str, title: str, domain: tuple[float, float], ticks: int, *, whole: bool = False) -> Spec:
    axis: Spec = {"tickCount": _TICKS_ACROSS if field == "x" else ticks, "grid": field == "y"}
    if whole:
        axis |= {"format": ",d", "tickMinStep": 1, "labelOverlap": True}
    scale = {"domain": list(domain), "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


def _run_color(chart: Chart, drawing: Drawing, *, has_legend: bool = True) -> Spec:
    series = series_of(chart)
    scale = {"domain": list(series), "range": [drawing.color(chart, index) for index in series]}
    legend = {"orient": "bottom", "columns": 1, "labelLimit": 0, "symbolType": "stroke", "symbolOpacity": 1,
              "symbolStrokeWidth": 3, "labelExpr": "labels[datum.value]"}  # fmt: skip
    is_shown = has_legend and not drawing.is_interactive
    return {
        "field": "s",
        "type": "nominal",
        "scale": scale,
        "title": None,
        "legend": legend if is_shown else None,
    }


def _run_rows(chart: Chart) -> Spec:
    """Return the channel of rows, one per run, with names above the bars: beside them, a phone has too little room."""
    axis = {
        "labelAlign": "left", "labelBaseline": "bottom", "labelOffset": _BELOW - _BAR / 2 - 4, "labelPadding": 0,
        "labelExpr": "labels[datum.value]", "labelLimit": {"expr": "width"}, "labelFontSize": 12, "ticks": False,
        "domain": False, "maxExtent": 0, "labelOverlap": False,
    }  # fmt: skip
    scale = {"paddingInner": 0, "paddingOuter": 0}
    order = list(series_of(chart))
    return {"field": "s", "type": "nominal", "sort": order, "title": None, "axis": axis, "scale": scale}


def _words(field: str) -> Spec:
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


def as_picture(chart: Chart, drawing: Drawing, form: PictureForm) -> bytes:
    spec, library = chart_spec(chart, drawing), _library()
    if form == "svg":
        svg: str = library.vegalite_to_svg(spec, vl_version=_VERSION)
        return svg.encode()
    png: bytes = library.vegalite_to_png(spec, vl_version=_VERSION, scale=_SCALE)
    return png


def as_vega(chart: Chart, drawing: Drawing) -> Spec:
    vega: Spec = _library().vegalite_to_vega(chart_spec(chart, drawing), vl_version=_VERSION)
    return vega


@functools.cache
def vega_script() -> str:
    """Return the JavaScript that defines `window.vegaEmbed`, safe inside a script element; bundling it takes a second.

    Vega alone would be 0.6 MB, but vl-convert 1.9 binds the name `vega` to null in its bundles.
    """
    script: str = _library().javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=_VERSION)
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _library() -> Any:  # noqa: ANN401 - vl_convert has no types
    """Return vl_convert. Raises DoesNotFit under an address space limit that would kill this process."""
    limit = address_space.limit_bytes()
    if limit is not None and limit - address_space.used_bytes() < _ADDRESS_SPACE_BYTES:
        needed = format_bytes(_ADDRESS_SPACE_BYTES)
        raise DoesNotFit(
            f"drawing reserves {needed} of address space, but the limit is {format_bytes(limit)}",
            "raise it for this command: ulimit -v unlimited; or write the report as .md or .csv",
        )
    import vl_convert

    return vl_convert
