"""Measure speed and memory by input length and batch size, as defined by the published tables."""
