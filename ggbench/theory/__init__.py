"""What the hardware allows, as pure functions of a ModelFile and a few numbers of a machine.

Sections in docstrings are those of "the article", the source `article` of `ggbench published`. Functions of a
length take a number or an array of them and return an array of the same shape, of float64.
"""
