"""Measured runs side by side: which is better in what, by how much, and what else differs."""
