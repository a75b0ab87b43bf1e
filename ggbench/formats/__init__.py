"""Other tools' formats in and out, and bundles of ggbench's own runs.

What is read was written elsewhere: every text in it goes through `plain` at this edge, every number is checked, and
nothing is loaded whole before its size is known.
"""
