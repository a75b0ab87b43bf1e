"""How fast a file will be, and what its quant loses, before it is measured."""
