"""One module for each kind of server: how to recognize it, what to ask of it, and how to read its stream.

A module is found by being here: `ggbench.engines.server.kind.all_kinds` asks the package, no list names them.
"""
