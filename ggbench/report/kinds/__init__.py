"""One presenter for each kind of run, found by its name."""
