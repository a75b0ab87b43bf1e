"""Measure speed and memory as published tables do, by input and batch."""
