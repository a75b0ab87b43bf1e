"""ggbench: which GGUF to run on this machine, how long its context can be, and how fast it will be."""

__version__ = "0.2.0"
