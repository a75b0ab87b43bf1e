"""Known models, and how MODEL and QUANT on the command line become a file."""
