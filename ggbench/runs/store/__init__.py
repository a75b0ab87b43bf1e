"""Runs and raw samples in one SQLite file."""
