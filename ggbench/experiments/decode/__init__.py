"""Time every token as the context fills: how fast it is, and W and B."""
