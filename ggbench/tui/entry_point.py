"""`ggbench tui`: open the interactive screens."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ggbench.errors import UsageError

_EXAMPLES = """\b
Examples:
  ggbench tui
  ggbench tui ~/models
  ggbench tui qwen2.5-7b:q4_k_m
"""


@click.command(epilog=_EXAMPLES)
@click.argument("model", required=False)
@click.option("--offline", is_flag=True, help="Make no network request; HF_HUB_OFFLINE=1 does the same.")
def command(model: str | None, offline: bool) -> None:
    """Choose a model that fits, watch it run, compare results. Press ? for the keys.

    Opens MODEL first; it is named as in other commands. Folders and files given here, or typed into the filter (/),
    stay in the list; d removes them without deleting files. The screens work at 80x24, by keyboard or mouse, without
    colour.
    """
    from ggbench.hub.access import HubAccess
    from ggbench.tui.app import GgbenchApp
    from ggbench.tui.host import Services

    if not is_terminal():
        raise UsageError(
            "the TUI needs a terminal", "without one: ggbench plan, ggbench bench, ggbench results"
        )
    opens, quant = (None, None) if model is None else _opened(model)
    app = GgbenchApp(Services(HubAccess.from_environment(offline=offline)), opens=opens, opens_quant=quant)
    try:
        app.run()
    finally:
        app.close_queues()
    if app.return_code:
        raise click.exceptions.Exit(app.return_code)


def is_terminal() -> bool:
    """Return whether keys can be read and screens drawn."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _opened(model: str) -> tuple[Path | str, str | None]:
    """Return a path's file, which is remembered, or the model's name; and the quant or file to choose.

    Raises UnknownName for a model not in the catalog, and like `parse_model` and
    `add_place`.
    """
    from ggbench.gguf_file.quants import canonical_quant
    from ggbench.models.added_places import add_place
    from ggbench.models.catalog import load_catalog
    from ggbench.models.reference import parse_model

    ref = parse_model(model).require_gguf()
    quant = next(iter(ref.quants), None)
    match ref.kind:
        case "path":
            found_here = add_place(ref.path)
            wanted = canonical_quant(quant or "")
            chosen = next((each for each in found_here if each.quant == wanted), found_here[0])
            return chosen.paths[0], chosen.paths[0].name if quant or ref.path.is_file() else None
        case "catalog" | "twin":
            found = load_catalog().model(ref.name)
            return found.id if ref.kind == "catalog" and found.repo else f"twin:{found.id}", quant
        case _:
            return ref.label.removeprefix("hf:"), quant
