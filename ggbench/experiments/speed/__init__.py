"""Measure speed and memory by input length and batch size, as the published tables count."""
