"""State of the machine and of ggbench itself, the problems found in it, and the output of both by `ggbench doctor`."""
