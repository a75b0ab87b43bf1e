"""The frozen records that cross layers, one module for each idea. None is unknown, never zero."""
