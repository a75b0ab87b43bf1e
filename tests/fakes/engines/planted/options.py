"""The options of the planted engine's config."""

from __future__ import annotations

import click

from ggbench.engines.contract import config_type

CONFIG = config_type("planted")
TAKES = "Planted takes --slots"
SHARED = ()
NAMES = ("slots",)
OPTIONS = (click.option("--slots", type=int, default=1, help="Slots of the planted engine."),)
