"""Servers that generate text over HTTP: recognizing them, asking them for exact generations, reading their streams.

Like `ggbench.hub`, this is below the engines and the catalog: `models` lists a server's models, the engine measures
them.
"""
