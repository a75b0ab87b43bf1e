"""Time every token of a long decode, and fit W and B."""
