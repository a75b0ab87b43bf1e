"""Servers that generate text over HTTP: recognizing them, asking them for exact generations, reading their streams.

Beside `ggbench.hub`, below the engines and the catalog: the selector asks what a server offers, the engine measures it.
"""
