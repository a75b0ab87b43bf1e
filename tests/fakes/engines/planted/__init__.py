"""An engine outside the package: all of it is this folder, found where `ggbench.engines.__path__` has its parent."""

SCHEMES = {"planted": "planted:<name>"}
NOUN, PROGRAM = "model", "Planted"
