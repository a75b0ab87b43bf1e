"""Theoretical limits of speed and memory, as pure functions of a ModelFile and a few hardware parameters.

Section numbers in docstrings refer to "the article", the source `article` of `ggbench published`. Functions of a length
take a number or an array and return a float64 array of the same shape.
"""
