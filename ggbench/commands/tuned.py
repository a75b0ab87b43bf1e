"""`--tuned`: measure with the settings that `ggbench tune` found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ggbench.commands.options import MeasureRequest, option
from ggbench.engines.llama.config import LlamaConfig
from ggbench.errors import UsageError
from ggbench.text import sanitize

if TYPE_CHECKING:
    from ggbench.models.targets import Target
    from ggbench.runs.experiment import FoundSetup, Job

tuned_option = option(
    "--tuned",
    "Take the settings that ggbench tune found for this machine, file and llama.cpp; other options come before them.",
    is_flag=True,
)


def with_tuned(jobs: Sequence[Job], asked: MeasureRequest, *, keeps_cache: bool = False) -> list[Job]:
    """Return the jobs, where --tuned was given with the settings that were found, and print which.

    Of several quants, one without a search has the defaults, and a notice says so. Raises UsageError where no quant has
    one that holds. `keeps_cache` leaves the types of the KV cache as they are.
    """
    if not asked.tuned:
        return list(jobs)
    from ggbench.runs.experiment import experiment_of
    from ggbench.runs.store.database import Store

    with Store.open() as store:
        found = [experiment_of("tune").find_setup(store, job.target) for job in jobs]
    changed, first_error = [], None
    for job, tuned in zip(jobs, found, strict=True):
        try:
            taken = require_tuned(job.target, tuned)
        except UsageError as error:
            if len(jobs) > 1:
                asked.output.notice(f"{error.message}: measured with the defaults; {error.hint}")
            first_error = first_error or error
            changed.append(job)
        else:
            asked.output.notice(f"{job.target.quant}: {taken.text}")
            changed.append(replace(job, setup=taken.of(job.setup, keeps_cache=keeps_cache)))
    if first_error is not None and not any(each and not each.stale for each in found):
        raise first_error
    return changed


def require_tuned(target: Target, found: FoundSetup | None) -> FoundSetup:
    """Return what was found. Raises UsageError where nothing was, or where it is stale: what changed, what to do."""
    from ggbench.runs.experiment import Job, experiment_of

    if found is not None and not found.stale:
        return found
    name, tune = sanitize(f"{target.model} {target.quant}"), experiment_of("tune")
    command = tune.command(Job(tune, target, LlamaConfig(), tune.settings_type()))
    if found is None:
        raise UsageError(f"no settings were found for {name} on this machine", f"{command} searches for them")
    changed = "; ".join(found.stale)
    raise UsageError(
        f"the settings that run {found.run_id} found for {name} are out of date; changed since: {changed}",
        f"{command} searches again",
    )
