"""Charts of a report, defined once as Vega-Lite specifications, and drawn from them as HTML, SVG and PNG."""
