"""What runs a model: the contract, and a folder for each engine."""
