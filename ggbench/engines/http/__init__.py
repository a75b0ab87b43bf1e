"""Servers that generate text over HTTP: those at a URL, and a llama-server that ggbench starts itself."""
