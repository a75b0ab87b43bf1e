"""From an engine's events to a stored run: one driver for every experiment, live and after a kill."""
