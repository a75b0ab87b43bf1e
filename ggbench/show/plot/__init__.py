"""Plots of latency and of limits, drawn alike in a terminal, in the TUI and as SVG."""
