"""Servers that generate text over HTTP: recognizing them, asking them for exact generations, reading their streams.

Like `ggbench.hub`, this lies below the engines and the catalog: the selector lists a server's models, the engine
measures them.
"""
