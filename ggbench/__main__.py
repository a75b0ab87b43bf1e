"""`python -m ggbench`, the same as the entry point."""

from ggbench.cli.main import main

main()
