"""`ggbench tui`: open the interactive screens."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ggbench.errors import UsageError
from ggbench.tui.host import DEFAULT_N_GEN
from ggbench.units import parse_tokens


@click.command()
@click.argument("model", required=False)
@click.option("--offline", is_flag=True, help="Make no network request; HF_HUB_OFFLINE=1 does the same.")
@click.option(
    "--n-gen",
    type=str,
    callback=lambda _ctx, _param, text: parse_tokens(text, most=1 << 24),
    default=DEFAULT_N_GEN,
    show_default=True,
    metavar="TOKENS",
    help="Number of tokens that each run decodes, e.g. 1k, which is 1024.",
)
def command(model: str | None, offline: bool, n_gen: int) -> None:
    """Choose a model that fits, watch it run, compare results. Press ? for the keys.

    MODEL is opened first, as the other commands name it. A folder or a file is remembered and listed from then on.
    """
    from ggbench.tui.app import GgbenchApp
    from ggbench.tui.services import Services

    if not is_terminal():
        raise UsageError("the TUI needs a terminal", "without one: ggbench plan, ggbench bench, ggbench results")
    opens, quant = (None, None) if model is None else _opened(model)
    app = GgbenchApp(Services.of_this_machine(offline=offline), n_gen=n_gen, opens=opens, opens_quant=quant)
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
    """Return a file of a path, which is remembered, or the model's name; and the quant or the file to choose.

    Raises UnknownName for a model that is not in the catalog, and as `parse_file_model` and `add_place` do.
    """
    from ggbench.catalog.added_places import add_place
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.reference import CatalogRef, PathRef, SynthRef, model_label, parse_file_model

    match parse_file_model(model):
        case PathRef(path, quant):
            found_here = add_place(path)
            chosen = next((each for each in found_here if quant and each.quant == quant.lower()), found_here[0])
            return chosen.paths[0], chosen.paths[0].name if quant or path.is_file() else None
        case CatalogRef(model_id) | SynthRef(model_id) as ref:
            found = load_catalog().model(model_id)
            return found.id if isinstance(ref, CatalogRef) and found.repo else f"synth:{found.id}", ref.quant
        case ref:
            return model_label(model, ref).removeprefix("hf:"), ref.quant
