"""Forecast the speed of a model that need not be here, from twins of a few of its layers."""
