"""Measured runs side by side: which one is better, in which metric, by how much, and what else differs."""
