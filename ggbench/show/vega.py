"""Charts as Vega specifications for a page, by vl-convert from Vega-Lite.

Specifications are plain dictionaries: Altair would write the same JSON but depends on narwhals, jsonschema and Jinja2.
They have no names of models: the page has its own legend.

vl-convert is a wheel of 33.5 MB that includes the 0.9 MB of JavaScript for a page. plotly needs 4.6 MB of JavaScript in
each page; matplotlib has no interaction.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ggbench.errors import DoesNotFit
from ggbench.machine import address_space
from ggbench.show import letter
from ggbench.show.axes import TICKS, curve_data
from ggbench.show.charts import FEW, LineChart
from ggbench.units import GIB, format_bytes

Spec = dict[str, Any]

_VERSION = "6.4"
"""Version of Vega-Lite, which vl-convert must include."""
_ADDRESS_SPACE_BYTES = 65 * GIB
"""Reserved by V8 in vl-convert 1.9, which uses 0.2 GiB of it; under a lower limit it kills the process."""

ON_PAPER = ("#0072b2", "#c04f00", "#00805c", "#a64d84", "#8a6500", "#2b2b9e", "#5c5c5c", "#b0182f")
"""Okabe and Ito's colours (https://jfly.uni-koeln.de/color), distinguishable with any colour vision, darkened to a
contrast of 4.5 on white (WCAG 2.2, 1.4.3) for letters and thin lines.
"""
ON_SLATE = ("#56b4e9", "#f0954f", "#2fc99b", "#e2a0c6", "#e6c200", "#a9a9ff", "#bdbdbd", "#ff8a94")
"""The same hues, lighter, for a dark page."""
_INK, _MUTED, _GRID = "var(--ink)", "var(--muted)", "var(--grid)"
"""Variables of the page's style sheet, for light and dark screens and paper."""
BINS_NAME = "bins"
_FONT = "system-ui, 'Segoe UI', Roboto, 'Liberation Sans', 'DejaVu Sans', sans-serif"
"""Common desktop fonts; nothing is downloaded."""
_HEIGHT = 320
_STEPS, _ERRORS = 0.45, 0.15
"""Opacity of single steps and of intervals behind a line."""
_STEP_WIDTH = 0.8
"""Width of the line around single steps, since the band of a bin with one step has no height."""
_DASHES, _DOTS = [9, 5], [1, 5]
_TICKS_ACROSS = {"expr": f"clamp(floor(width / 90), 2, {TICKS[0]})"}
_SHOWN = {"filter": "indexof(hidden, datum.s) < 0"}
"""Excludes runs that the reader turned off."""
_WHEEL = "wheel![event.ctrlKey || event.metaKey]"


def color_of(index: int) -> str:
    """Return the variable of a colour in the page's style sheet."""
    return f"var(--run{index % len(ON_PAPER)})"


def curve_colors(chart: LineChart, run_colors: Sequence[int]) -> dict[int, str]:
    """Return the colour of each curve that is drawn, that of its run."""
    return {index: color_of(run_colors[index]) for index, curve in enumerate(chart.curves) if len(curve.x)}


def as_vega(chart: LineChart, run_colors: Sequence[int]) -> Spec:
    """Return the Vega specification of a non-empty chart; runs of one quant share a colour."""
    spec = _chart_spec(chart, curve_colors(chart, run_colors))
    vega: Spec = _library().vegalite_to_vega(spec, vl_version=_VERSION)
    return vega


def _chart_spec(chart: LineChart, colors: dict[int, str]) -> Spec:
    data = curve_data(chart)
    shown = [chart.curves[index] for index in colors]
    x = _axis(
        "x", chart.x_title, (data.x.low, data.x.high), {"format": ",d", "tickMinStep": 1, "labelOverlap": True}
    )
    y = _axis("y", chart.y_title, (data.y.low, data.y.high), {"tickCount": TICKS[1]})
    scale = {"domain": [*colors], "range": [*colors.values()]}
    color = {"field": "s", "type": "nominal", "scale": scale, "title": None, "legend": None}
    at: Spec = {"x": x, "y": y, "color": color}
    band = at | {"y": y | {"field": "lo"}, "y2": {"field": "hi"}}
    area: Spec = {"opacity": _ERRORS, "line": False}
    if all(curve.error is None for curve in shown):
        band["stroke"] = color
        area = {"opacity": _STEPS, "strokeWidth": _STEP_WIDTH}
    layers = [_layer("area", band, BINS_NAME, clip=True, **area)]
    for kind, dash, width in (("limit", _DOTS, 2.0), ("fit", _DASHES, 1.4)):
        if rows := [row for row in data.lines if row["k"] == kind]:
            layers.append(
                _layer("line", at, rows, clip=True, strokeDash=dash, strokeWidth=width, strokeCap="round")
            )
    are_few = all(len(curve.x) <= FEW for curve in shown)
    line = _layer("line", at, BINS_NAME, clip=True, strokeWidth=1.8, strokeJoin="round", point=are_few)
    line["params"] = [{"name": "zoom", "select": {"type": "interval", "zoom": _WHEEL}, "bind": "scales"}]
    layers.append(line)
    if data.slow:
        top = at | {"y": {"value": 4}}
        layers.append(_layer("point", top, data.slow, shape="triangle-up", filled=True, size=45, opacity=1))
    ends = [row | {"label": letter(row["s"])} for row in data.ends]
    named = at | {"text": {"field": "label", "type": "nominal"}}
    layers.append(_layer("text", named, ends, align="left", dx=5, fontWeight="bold", fontSize=13, clip=False))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "background": "transparent",
        "width": "container",
        "height": _HEIGHT,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "params": [{"name": "hidden", "value": []}],
        "datasets": {BINS_NAME: data.bins},
        "layer": layers,
        "config": _CONFIG,
    }


def _layer(mark: str, encoding: Spec, rows: list[Spec] | str, **looks: object) -> Spec:
    """Return one layer; `rows` are its own data or their name."""
    data = {"name": rows} if isinstance(rows, str) else {"values": rows}
    return {"mark": {"type": mark} | looks, "encoding": encoding, "data": data, "transform": [_SHOWN]}


def _axis(field: str, title: str, domain: tuple[float, float], looks: Spec) -> Spec:
    axis = {"tickCount": _TICKS_ACROSS, "grid": field == "y", **looks}
    scale = {"domain": list(domain), "nice": False, "zero": False}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, "axis": axis}


_CONFIG: Spec = {
    "font": _FONT,
    "axis": {
        "labelColor": _INK, "titleColor": _INK, "gridColor": _GRID, "domainColor": _MUTED, "tickColor": _MUTED,
        "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "titlePadding": 8,
    },
    "view": {"stroke": None},
    "text": {"fontSize": 12},
    "customFormatTypes": False,
}  # fmt: skip


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
            "raise it for this command: ulimit -v unlimited; or write the report as .csv",
        )
    import vl_convert

    return vl_convert
