"""ggbench: which GGUF to run on this machine, how long a context it holds, and how fast it will be."""

__version__ = "0.1.0"
