"""A report as one HTML file, and as Markdown."""
