"""`ggbench forecast`: the speed of a model that need not be here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ggbench.cli.options import Asked, measuring_options, no_measure_option

if TYPE_CHECKING:
    from ggbench.catalog.selector import Target


@click.command()
@no_measure_option
@measuring_options(many=True)
def command(asked: Asked, no_measure: bool) -> None:
    """Forecast the speed of QUANTS of MODEL on this machine; nothing is downloaded but headers.

    Twins of a few of the model's layers are written, timed by turns and removed: two depths show what a layer costs,
    a long context what the KV cache costs. A model of about 1 GB is measured as a twin of all its layers. The model
    itself may be larger than the machine's memory. Twins of the same shapes are not measured again. How long it takes
    and how much disk is said before.

    With --no-measure only what is known already is shown: runs of such a file, else a forecast, else the share of the
    bandwidth that other models reach here, else the bandwidth's bound.
    """
    from ggbench.cli.measuring import measure
    from ggbench.cli.run_output import show_measured
    from ggbench.experiments.forecast import EXPERIMENT
    from ggbench.recording.experiment import Job
    from ggbench.records.forecast import ForecastSettings

    targets = _targets(asked)
    if no_measure:
        _show_known(targets, asked)
        return
    measured = measure([Job(EXPERIMENT, each, asked.setup, ForecastSettings()) for each in targets], asked)
    show_measured(measured)
    measured.leave()


def _targets(asked: Asked) -> tuple[Target, ...]:
    """The quants that are meant; a catalog model's are those of its twins, as `plan` has them. Raises as `resolve`."""
    from ggbench.catalog.reference import CatalogRef, parse_file_model
    from ggbench.catalog.selector import resolve
    from ggbench.cli.gpu_options import check_main_gpu
    from ggbench.cli.rpc_options import check_rpc

    check_main_gpu(asked.setup)
    check_rpc(asked.setup)
    is_catalog = isinstance(parse_file_model(asked.model), CatalogRef)
    return resolve(f"synth:{asked.model}" if is_catalog else asked.model, asked.quants, hub=asked.hub.access())


def _show_known(targets: Sequence[Target], asked: Asked) -> None:
    """What is known of each without measuring."""
    from ggbench.cli.run_output import run_document, show_runs
    from ggbench.experiments.forecast import EXPERIMENT
    from ggbench.experiments.known_forecasts import known_forecasts
    from ggbench.machine.cpu import default_threads
    from ggbench.sizing.budget import machine_budget
    from ggbench.store.database import Store

    setup = asked.setup
    budget = machine_budget(
        n_gpu_layers=setup.n_gpu_layers,
        main_gpu=setup.main_gpu,
        threads=default_threads(),
        reserve_bytes=None,
        bandwidth=asked.bandwidth,
        limit_bytes=setup.memory_limit_bytes,
        measures=False,
    )
    with Store.open() as store:
        runs = known_forecasts(store, targets, setup, budget)
    documents = [run_document(run) for run in runs]
    show_runs(EXPERIMENT.kind, runs, asked.output, documents, model=asked.model, is_sweep=len(runs) > 1)
    for run in runs:
        if run.reason:
            asked.output.notice(f"{run.subject.model} {run.subject.quant}: {run.reason}")
