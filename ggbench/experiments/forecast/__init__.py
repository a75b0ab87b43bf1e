"""Forecast a model's speed without its file, from twins of few layers."""
