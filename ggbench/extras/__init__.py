"""Verticals that nothing imports: each folder is found by the modules that it has, as `ggbench.plugins` says."""
