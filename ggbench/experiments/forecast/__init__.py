"""Forecast the speed of a model without its file, from twins of a few of its layers."""
