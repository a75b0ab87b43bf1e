"""Rows as tables, text and plots, from one definition of every column."""
