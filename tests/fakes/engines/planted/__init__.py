"""An engine outside the package: all of it is this folder, found where `ggbench.extras.__path__` has its parent."""
