"""`ggbench models`: what there is to measure."""

from __future__ import annotations

from pathlib import Path

import click

from ggbench.cli.output import Output, output_options


@click.command()
@click.option(
    "--dir", "folder", type=click.Path(path_type=Path), metavar="DIR", help="List the GGUF files in a folder."
)
@output_options
def command(folder: Path | None, output: Output) -> None:
    """List the models of the catalog with the twins there are of each, or with --dir the variants in a folder.

    Your own models go into models.toml in the config folder; they add to the catalog and override it.
    """
    from ggbench.catalog.local_files import local_variants
    from ggbench.catalog.models import load_catalog
    from ggbench.catalog.selector import cached_twins
    from ggbench.report.documents import catalog_document, variant_document
    from ggbench.report.terminal import catalog_table, variants_table

    if folder is not None:
        variants = local_variants(folder)
        if output.as_json:
            output.document("models", rows=[variant_document(variant) for variant in variants])
        else:
            output.show(variants_table(variants))
        return
    catalog = load_catalog()
    twins = cached_twins(catalog)
    if output.as_json:
        output.document("models", rows=[catalog_document(model, twins.get(model.id, ())) for model in catalog])
    else:
        output.show(catalog_table(catalog, twins, width=output.console().width))
        output.notice("Measure a twin of any of them with: ggbench bench synth:<id>")
