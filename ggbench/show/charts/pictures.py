"""Charts as SVG and PNG, and as what a page draws itself, by vl-convert: Vega-Lite in one wheel, without a browser.

Weighed in November 2026, wheels on Linux: vl-convert-python 33.5 MB (84 MB unpacked, BSD-3) draws the first SVG after
0.4 s, a PNG in 0.1 s, and has the JavaScript that a page needs, 0.9 MB; plotly 9.9 MB needs kaleido and a Chrome for
pictures, and 4.6 MB of JavaScript in each page; matplotlib 9.9 MB has no interaction, so that HTML would be a second
definition of each chart. SVG by hand and resvg (1.4 MB) leave zoom, axes and legends to be written here.
"""

from __future__ import annotations

from typing import Any

from ggbench.engines.llama import address_space
from ggbench.errors import DoesNotFit
from ggbench.show.charts_ import Chart
from ggbench.show.vega import Drawing, Spec, chart_spec
from ggbench.units import GIB, format_bytes

_VERSION = "6.4"
"""Of Vega-Lite, of those that vl-convert has."""
_SCALE = 2.0
"""Pixels of a PNG for each of an SVG: sharp on a screen of twice the density, and in print."""
_ADDRESS_SPACE_BYTES = 65 * GIB
"""That V8 in vl-convert 1.9 reserves, and of which it uses 0.2 GiB: a lower limit makes it end the whole process."""


def as_svg(chart: Chart, drawing: Drawing) -> str:
    """Return a chart that is not empty as SVG, which loads nothing."""
    svg: str = _library().vegalite_to_svg(chart_spec(chart, drawing), vl_version=_VERSION)
    return svg


def as_png(chart: Chart, drawing: Drawing) -> bytes:
    """Return a chart that is not empty as PNG."""
    png: bytes = _library().vegalite_to_png(chart_spec(chart, drawing), vl_version=_VERSION, scale=_SCALE)
    return png


def as_vega(chart: Chart, drawing: Drawing) -> Spec:
    """Return a chart as Vega, which a page draws without the compiler of Vega-Lite."""
    vega: dict[str, Any] = _library().vegalite_to_vega(chart_spec(chart, drawing), vl_version=_VERSION)
    return vega


def vega_script() -> str:
    """Return the JavaScript that defines `window.vegaEmbed`, safe inside of a script element.

    Vega alone would be 0.6 MB, but vl-convert 1.9 binds the name `vega` to null in its bundles.
    """
    script: str = _library().javascript_bundle("window.vegaEmbed=vegaEmbed;", vl_version=_VERSION)
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _library() -> Any:  # noqa: ANN401 - vl_convert has no types
    """Return vl_convert. Raises DoesNotFit under a limit of address space that would end this process."""
    limit = address_space.limit_bytes()
    if limit is not None and limit - address_space.used_bytes() < _ADDRESS_SPACE_BYTES:
        needed = format_bytes(_ADDRESS_SPACE_BYTES)
        raise DoesNotFit(
            f"drawing reserves {needed} of address space, and the limit is {format_bytes(limit)}",
            "raise it for this command: ulimit -v unlimited; or write the report as .md or .csv",
        )
    import vl_convert

    return vl_convert
