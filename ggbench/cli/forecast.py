"""`ggbench forecast`: the speed of a model that need not be here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ggbench.cli.options import Asked, measuring_options

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target


@click.command()
@measuring_options(many=True)
def command(asked: Asked) -> None:
    """Forecast the speed of QUANTS of MODEL on this machine; nothing is downloaded but headers.

    Twins of a few of the model's layers are written, timed by turns and removed: two depths show what a layer costs,
    a long context what the KV cache costs. A model of up to 1 GB is measured as a twin of all its layers. The model
    itself may be larger than the machine's memory. A forecast of the same twins is not measured again.
    """
    from ggbench.cli.measuring import measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.forecast import EXPERIMENT
    from ggbench.recording.experiment import Job
    from ggbench.records.forecast import ForecastSettings

    targets = _targets(asked)
    measured = measure([Job(EXPERIMENT, each, asked.setup, ForecastSettings()) for each in targets], asked)
    show_measured(measured)
    measured.leave()


def _targets(asked: Asked) -> tuple[Target, ...]:
    """The quants that are meant; a catalog model's are those of its twins, as `plan` has them. Raises as `resolve`."""
    from ggbench.catalog.reference import CatalogRef, parse_model
    from ggbench.catalog.selector import resolve
    from ggbench.cli.gpu_options import check_main_gpu

    check_main_gpu(asked.setup)
    is_catalog = isinstance(parse_model(asked.model), CatalogRef)
    return resolve(f"synth:{asked.model}" if is_catalog else asked.model, asked.quants, hub=asked.hub.access())
