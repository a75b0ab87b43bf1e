"""The options of the planted engine's config."""

from __future__ import annotations

from ggbench.engines.contract import config_type

SCHEMES = {"planted": "planted:<name>"}
NOUN = "model"
CONFIG = config_type("planted")
TAKES = "Planted takes --slots"
SHARED = ()
