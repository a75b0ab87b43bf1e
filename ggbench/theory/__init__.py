"""What the hardware allows, as pure functions of a ModelFile and a few numbers of a machine."""
