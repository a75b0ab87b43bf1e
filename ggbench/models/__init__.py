"""The catalog of known models, and resolution of MODEL and QUANT on the command line to files."""
