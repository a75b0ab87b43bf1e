"""Answers made from plans and runs: pick, compare, bench and doctor."""
