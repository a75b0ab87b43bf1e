"""Time every token of a long decode: how fast it answers, and how much slower as the context fills (W and B)."""
