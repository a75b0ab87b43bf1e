"""Engines that run a model: their contract, and a folder for each."""
