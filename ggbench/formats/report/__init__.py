"""Stored runs as a report: one HTML file, Markdown, CSV or pictures."""
