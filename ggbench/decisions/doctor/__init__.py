"""The state of the machine and of ggbench itself and the problems found, as `ggbench doctor` shows them."""
